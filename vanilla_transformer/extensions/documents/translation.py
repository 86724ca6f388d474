"""Translate a document of a known format."""

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from itertools import islice
from typing import Any, NamedTuple

from vanilla_transformer.decoding.options import several_beams
from vanilla_transformer.decoding.protection.blocks import Document
from vanilla_transformer.decoding.sentence_splitter import (
    SentenceSplitter,
    find_splitter,
    split_simply,
)
from vanilla_transformer.decoding.steps import split_on_error
from vanilla_transformer.errors import UserError
from vanilla_transformer.text.languages import NO_DIRECTION, Direction, find_direction
from vanilla_transformer.text.protection import find_masks
from vanilla_transformer.utils.formats import DOCUMENT_FORMATS, FORMATS, Format
from vanilla_transformer.utils.import_utils import requires_extra
from vanilla_transformer.utils.input_files import STDIN, open_input
from vanilla_transformer.utils.text_files import ZIP, decode_document, decompress

from .block_translator import Answer, BlockTranslator, Constrain, Translate


def translate_document(
    text: str,
    format: str,
    translate: Translate,
    splitter: SentenceSplitter,
    masks: Sequence[str] = (),
    constrain: Constrain | None = None,
    direction: Direction = NO_DIRECTION,
) -> str:
    """
    Return a document with its text translated and its markup kept.

    Args:
        format: One of `DOCUMENT_FORMATS`.
        direction: The languages, as far as they are known: attributes such as `lang` name the
            target language then, and XLIFF must be of these languages.
    """
    translator = BlockTranslator(translate, splitter, masks, constrain)
    (translated,) = translate_documents([text], format, translator, direction)
    return translated


def translate_documents(
    texts: Sequence[str],
    format: str,
    translator: BlockTranslator,
    direction: Direction = NO_DIRECTION,
) -> list[str]:
    """Return documents as [`translate_document`] does; their sentences are translated together."""
    documents = [parse_document(text, format, direction) for text in texts]
    return render_documents(documents, translator)


def render_documents(documents: Sequence[Document], translator: BlockTranslator) -> list[str]:
    """Return the texts of documents with their blocks translated."""
    translated = iter(translator([block for document in documents for block in document.blocks]))
    return [
        document.render(list(islice(translated, len(document.blocks)))) for document in documents
    ]


def parse_document(text: str, format: str, direction: Direction = NO_DIRECTION) -> Document:
    """Return the document of a text."""
    if format not in DOCUMENT_FORMATS:
        raise UserError(f"`format` must be one of {', '.join(DOCUMENT_FORMATS)}, got {format!r}.")
    row = FORMATS[format]
    if text.startswith(ZIP) and row.is_text:
        raise UserError(
            f"A file of the format {format} must be text, got a zip. Name it as its format, such "
            "as a.docx."
        )
    try:
        with requires_extra(row.extra, f"The format {format}"):
            read = find_reader(row)
            return read(text, direction, form=format) if row.is_shared else read(text, direction)
    except RecursionError as error:
        raise UserError("A document must not be nested as deeply as one that was given.") from error


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


def translator_by(
    pipeline: Any, splitter: SentenceSplitter, protect: bool = True, **options: Any
) -> BlockTranslator:
    """Return the translator of blocks by a pipeline, with all that its model and its tokenizer can
    do.
    """
    options |= {"protect": False}  # the document protects, which knows fixed spans, too
    if getattr(pipeline.model.config, "alignment_heads", None):
        options |= {"return_alignments": True}

    def translate(texts: list[str], **more: Any) -> list[Answer]:
        answers = pipeline(texts, **options | more)
        return [(answer["translation_text"], answer.get("alignment")) for answer in answers]

    def constrain(texts: list[str], phrases: list[list[str]]) -> list[Answer | None]:
        beams = several_beams(
            options.get("num_beams") or pipeline.model.generation_config.num_beams
        )
        search, rows = partial(translate, num_beams=beams), [*zip(texts, phrases, strict=True)]
        return split_on_error(
            lambda rows: search([row[0] for row in rows], constraints=[row[1] for row in rows]),
            rows,
        )

    constrain_by_engine = constrain if pipeline.uses_engine else None
    return BlockTranslator(
        translate, splitter, find_masks(pipeline.tokenizer), constrain_by_engine, protect
    )


class DocumentTask(NamedTuple):
    """
    Documents of a format to translate, see [`BlockTranslator`].

    Attributes:
        splitter: The arguments of [`find_splitter`].
        constrains: Whether the caller can return translations that contain given phrases.
    """

    texts: Sequence[str]
    format: str
    direction: Direction = NO_DIRECTION
    splitter: tuple[str, str | None] = ("abbreviations", None)
    masks: Sequence[str] = ()
    constrains: bool = False
    protect: bool = True


class DocumentTranslator:
    """
    Translate documents by a pipeline.

    Args:
        pipeline: A [`TranslationPipeline`].
        language: ISO 639-1 code of the language of the documents, for its abbreviations.
        direction: The languages of requests that do not name them, as far as they are known.
    """

    def __init__(
        self, pipeline: Any, language: str | None = None, direction: Direction = NO_DIRECTION
    ):
        self._pipeline, self._language, self._direction = pipeline, language, direction
        self._masks = find_masks(pipeline.tokenizer)

    def __call__(self, texts: Sequence[str], format: str, **options: Any) -> list[str]:
        """Return documents of a format with their text translated, with options of the pipeline."""
        task = self.describe(texts, format, **options)
        translator = self._translator(find_splitter(*task.splitter), **options)
        return translate_documents(texts, format, translator, task.direction)

    def describe(
        self,
        texts: Sequence[str],
        format: str,
        default: Direction = NO_DIRECTION,
        **options: Any,
    ) -> DocumentTask:
        """Return what another process needs to read and write documents, which asks for
        translations.

        Args:
            default: Languages that are neither options nor known.
        """
        source, target = self._direction
        source, target = source or default.source, target or default.target
        languages = options.get("src_lang", source), options.get("tgt_lang", target)
        return DocumentTask(
            texts,
            format,
            find_direction(self._pipeline.tokenizer, *languages),
            ("abbreviations", options.get("src_lang", self._language)),
            self._masks,
            self._pipeline.uses_engine,
            options.get("protect", True),
        )

    def answer(
        self, texts: list[str], phrases: list[list[str]] | None = None, **options: Any
    ) -> Sequence[Answer | None]:
        """Return translations of sentences, with their phrases if there are any; None where there
        is none.
        """
        translator = self._translator(split_simply, **options)
        if phrases is None:
            return translator.translate(texts)
        assert translator.constrain is not None
        return translator.constrain(texts, phrases)

    def _translator(self, splitter: SentenceSplitter, **options: Any) -> BlockTranslator:
        return translator_by(self._pipeline, splitter, progress_bar=False, **options)
