"""Translate a document of a known format."""

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.decoding.protection.blocks import Document, unify_line_ends
from vanilla_transformer.decoding.sentence_splitter import SentenceSplitter, find_splitter
from vanilla_transformer.decoding.sentences import Sentence, TranslateSentences
from vanilla_transformer.decoding.translations import Translation
from vanilla_transformer.errors import UserError
from vanilla_transformer.files.formats import FORMATS, TABLE_FORMATS, Format, document_format
from vanilla_transformer.files.inputs import STDIN, open_input
from vanilla_transformer.files.text_files import ZIP, decode_document, decompress
from vanilla_transformer.machine.imports import requires_extra
from vanilla_transformer.text.languages import NO_DIRECTION, Direction, find_direction

from .block_translator import BlockTranslator

if TYPE_CHECKING:
    from vanilla_transformer.decoding.translation_pipeline import TranslationPipeline

# Formats of messages with keys in one language; of XML that of Android, of tables those by columns
_FILLED = [
    name
    for name, row in FORMATS.items()
    if row.corpus == "two files" or name in ("xml", "stringsdict", *TABLE_FORMATS)
]


def translate_document(
    text: str,
    format: str,
    translate: TranslateSentences,
    splitter: SentenceSplitter,
    direction: Direction = NO_DIRECTION,
    existing: str | None = None,
    columns: str = "",
    previous: Sequence[str] = (),
) -> str:
    """
    Return a document with its text translated and its markup kept.

    Args:
        format: One of `DOCUMENT_FORMATS`.
        translate: Any engine, such as [`TranslationPipeline.translate_sentences`].
        direction: The languages, as far as they are known: attributes such as `lang` name the
            target language then, and XLIFF must be of these languages.
        existing: A translation of messages, which is returned with what it lacks, see
            [`FilledDocument`].
        columns: The columns of a table that are translated, see [`TableDocument`].
        previous: An earlier version of the text and its translation, of which all is kept that did
            not change, see [`UpdatedDocument`]. With `existing`, only the version that this
            translates; of a file with both languages, only the translation.
    """
    document = parse_document(text, format, direction, existing, columns, previous)
    return document.render(BlockTranslator(translate, splitter)(document.blocks))


def parse_document(
    text: str,
    format: str,
    direction: Direction = NO_DIRECTION,
    existing: str | None = None,
    columns: str = "",
    previous: Sequence[str] = (),
) -> Document:
    """Return the document of a text, of its existing translation with what that lacks, or of what
    changed since a previous version.
    """
    row = document_format(format)
    if existing is not None:
        return _fill_document(text, row, direction, existing, columns, previous)
    if previous:
        return _update_document(text, row, direction, columns, previous)
    if text.startswith(ZIP) and row.is_text:
        raise UserError(
            f"A file of the format {format} must be text, got a zip. Name it as its format, such "
            "as a.docx."
        )
    try:
        with requires_extra(row.extra, f"The format {format}"):
            read = find_reader(row)
            further = {"form": format} if row.is_shared else {}
            if columns:
                further["columns"] = columns
            return read(text, direction, **further)
    except RecursionError as error:
        raise UserError("A document must not be nested as deeply as one that was given.") from error


def _update_document(
    text: str, row: Format, direction: Direction, columns: str, previous: Sequence[str]
) -> Document:
    """Return the document of what changed in a text since a previous version."""
    from .updated_document import UpdatedDocument

    if row.is_bilingual and not row.corpus:
        raise UserError(
            f"A file of the format {row.name} has its translations itself. Leave the previous one "
            "out."
        )
    if len(previous) != (1 if row.is_bilingual else 2):
        wanted = "the earlier version and its translation"
        if row.is_bilingual:
            wanted = "one file, the earlier translation, which has both languages"
        raise UserError(f"`previous` of {row.name} must be {wanted}, got {len(previous)}.")
    try:
        versions = list[Document]()
        line_end = unify_line_ends(text)[1]
        for version in previous:
            if row.is_text:
                mark, _, unified = unify_line_ends(version)
                version = mark + unified.replace("\n", line_end)
            versions.append(parse_document(version, row.name, columns=columns))
    except UserError as error:
        raise UserError(f"The previous version cannot be used. {error}") from error
    if row.is_bilingual and direction.target is None:
        direction = direction._replace(target=versions[0].directions[0].target)
    source = parse_document(text, row.name, direction, columns=columns)
    return UpdatedDocument(source, *versions)


def _fill_document(
    text: str,
    row: Format,
    direction: Direction,
    existing: str,
    columns: str,
    previous: Sequence[str],
) -> Document:
    """Return the document of an existing translation that gets what it lacks."""
    from .filled_document import FilledDocument

    if row.name not in _FILLED:
        raise UserError(
            f"An existing translation must be in one of {', '.join(_FILLED)}, got {row.name}. "
            "Leave it out: a file with both languages gets what it lacks without it, and a "
            "document is translated as a whole."
        )
    parse = partial(parse_document, format=row.name, direction=direction, columns=columns)
    source: Any = parse(unify_line_ends(text)[2])
    try:
        translation: Any = parse(unify_line_ends(existing)[2])
        if len(previous) > 1:
            raise UserError(
                "Its previous version must be one file, the source that it translates, got "
                f"{len(previous)}."
            )
        earlier: list[Any] = [parse(unify_line_ends(version)[2]) for version in previous]
        return FilledDocument(source, translation, existing, *earlier)
    except UserError as error:
        raise UserError(f"The existing translation cannot be filled. {error}") from error


def find_reader(row: Format) -> Callable[..., Document]:
    """Return the class of the documents of a format, whose module is imported when it is needed."""
    module, _, name = row.reader.partition(":")
    return getattr(import_module(f".{module}", __package__), name)


def read_document(path: str | None, format: str) -> tuple[str, str]:
    """Return the text of a file with its byte order mark, or of standard input if there is none,
    and its encoding.
    """
    with open_input(path or STDIN) as file, decompress(file) as plain:
        return decode_document(plain.read(), path or "Standard input", format)


class DocumentTask(NamedTuple):
    """
    Documents of a format to translate, see [`BlockTranslator`].

    Attributes:
        splitter: The arguments of [`find_splitter`].
        columns: The columns of a table that are translated, see [`TableDocument`].
        existing: A translation of the only text, see [`parse_document`].
        previous: An earlier version of the only text and its translation, see [`parse_document`].
    """

    texts: Sequence[str]
    format: str
    direction: Direction = NO_DIRECTION
    splitter: tuple[str, str | None] = ("abbreviations", None)
    protect: bool = True
    columns: str = ""
    existing: str | None = None
    previous: Sequence[str] = ()


def translate_task(translate: TranslateSentences, task: DocumentTask) -> list[str]:
    """Return translated documents; their sentences are translated together.

    An error of one of them has its position as a note.
    """
    documents = []
    others = task.existing, task.columns, task.previous
    for position, text in enumerate(task.texts):
        try:
            document = parse_document(text, task.format, task.direction, *others)
        except UserError as error:
            error.add_note(f"at position {position}")
            raise
        documents.append(document)
    translator = BlockTranslator(translate, find_splitter(*task.splitter), task.protect)
    blocks = chain.from_iterable(document.blocks for document in documents)
    translated = iter(translator(list(blocks)))
    rendered = []
    for document in documents:
        rendered.append(document.render(list(islice(translated, len(document.blocks)))))
    return rendered


class DocumentTranslator:
    """
    Translate documents by a pipeline.

    Args:
        pipeline: Decodes sentences.
        language: ISO 639-1 code of the language of the documents, for its abbreviations.
        direction: The languages of requests that do not name them, as far as they are known.
    """

    def __init__(
        self,
        pipeline: "TranslationPipeline",
        language: str | None = None,
        direction: Direction = NO_DIRECTION,
    ):
        self._pipeline, self._language, self._direction = pipeline, language, direction

    def __call__(self, texts: Sequence[str], format: str, **options: Any) -> list[str]:
        """Return documents of a format with their text translated, with options of the pipeline."""
        resolved = TranslationOptions.resolve(options)
        task = self.describe(texts, format, resolved)
        return translate_task(partial(self.translate, options=resolved), task)

    def describe(
        self,
        texts: Sequence[str],
        format: str,
        options: TranslationOptions,
        default: Direction = NO_DIRECTION,
    ) -> DocumentTask:
        """Return what another process needs to read and write documents, which asks for
        translations.

        Args:
            default: Languages that are neither options nor known.
        """
        source = options.src_lang or self._direction.source or default.source
        target = options.tgt_lang or self._direction.target or default.target
        return DocumentTask(
            texts,
            format,
            find_direction(self._pipeline.tokenizer, source, target),
            ("abbreviations", options.src_lang or self._language),
            options.protect,
        )

    def translate(
        self, sentences: Sequence[Sentence], options: TranslationOptions
    ) -> list[Translation]:
        """Return translations of the sentences of documents."""
        return self._pipeline.translate_sentences(sentences, progress_bar=False, **options.given)
