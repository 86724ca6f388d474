"""A document that `translate` reads from a file or standard input, and writes."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from textwrap import shorten
from typing import TYPE_CHECKING

from vanilla_transformer.cli.lines import print_texts, report_doubts
from vanilla_transformer.decoding.answers import warning_finder
from vanilla_transformer.decoding.protection.blocks import BYTE_ORDER_MARK, Block, Document
from vanilla_transformer.decoding.sentence_splitter import find_splitter
from vanilla_transformer.errors import UserError
from vanilla_transformer.files.text_files import fit_encoding
from vanilla_transformer.text.languages import NO_DIRECTION, Direction, find_direction

from .block_translator import BlockTranslator
from .document_process import limited_work
from .translation import parse_document, read_document
from .wrapped_text import WrappedText
from .xliff_format import TargetLanguageError

if TYPE_CHECKING:
    from vanilla_transformer.cli.translate import TranslateArguments
    from vanilla_transformer.decoding.translation_pipeline import TranslationPipeline

_SHOWN = 40  # characters of a doubtful translation
# Of the processor, and bytes: far more than documents take that were made to be read
_SECONDS, _MEMORY = 300, 4_000_000_000


class DocumentFile:
    """
    The document of a command, which is read when this is made.

    Attributes:
        text: The whole document.
        is_wrapped: Whether it is more than lines that are translated one by one: False only for
            text in which `--join_lines auto` finds no paragraphs.
    """

    def __init__(self, options: "TranslateArguments"):
        self._options = options
        self._format = options.source_format
        self._name = "Standard input" if options.input in (None, "-") else str(options.input)
        self._splitter = find_splitter(options.sentence_splitter, options.source_language)
        self.text, self._encoding = read_document(options.input, self._format)
        self.is_wrapped = True
        self._notice = ""
        if options.join_lines == "auto":
            wrapped = WrappedText(self.text)
            self.is_wrapped = wrapped.is_wrapped
            self._notice = (
                f"The lines are wrapped at {wrapped.width} characters, so their paragraphs are "
                "translated; --join_lines no translates each line."
            )
        elif options.join_lines == "no" and not options.format:
            self._notice = (
                f"{options.input} is translated as {self._format}; --format text translates its "
                "lines."
            )

    def lines(self) -> list[str] | None:
        """Return the lines of standard input, or None for a file, which can be read again."""
        if self._options.input is not None:
            return None
        lines = self.text.removeprefix(BYTE_ORDER_MARK).removesuffix("\n").split("\n")
        return [line.rstrip("\r") for line in lines] if self.text else []

    def translate(self, opening: AbstractContextManager["TranslationPipeline"]) -> None:
        """
        Write the translation, and print its summary and its warnings.

        Args:
            opening: Loads the model, once the document was found to be one of its format.
        """
        options = self._options
        encoding, existing = self._encoding, None
        if options.existing is not None:
            existing, encoding = read_document(options.existing, self._format)
        previous = [read_document(path, self._format)[0] for path in options.previous or ()]
        parse = partial(
            parse_document,
            self.text,
            self._format,
            existing=existing,
            columns=options.columns,
            previous=previous,
        )
        # Names mistakes before a model is loaded, which may know the language
        with suppress(TargetLanguageError), self._reading():
            parse(direction=NO_DIRECTION)
        if self._notice and not options.quiet:
            print(self._notice, file=sys.stderr)
        with opening as pipeline:
            codes = (options.source_language, options.target_language)
            direction = find_direction(pipeline.tokenizer, *codes)
            with self._reading():
                document = parse(direction=direction)
            translator = self._open_translator(pipeline)
            blocks = translator(document.blocks)
            document.doubts = translator.doubts
            with self._reading():
                translated = document.render(blocks)
        print_texts([fit_encoding(translated, encoding)], options.output, encoding)
        if document.summary and not options.quiet:
            self._warn_of_languages(document, direction)
            print(document.summary, file=sys.stderr)
        if options.fail_on_warnings or not options.quiet:
            self._report_doubts(blocks, translator.doubts)

    def _open_translator(self, pipeline: "TranslationPipeline") -> BlockTranslator:
        options = self._options
        translate = partial(
            pipeline.translate_sentences,
            protect=options.protect,
            num_beams=options.num_beams,
            batch_size=options.batch_size,
        )
        find_warnings = warning_finder(
            pipeline.tokenizer, pipeline.model.config, pipeline.default_options
        )
        return BlockTranslator(translate, self._splitter, options.protect, find_warnings)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Limit the work on the document, and begin its mistakes with its name."""
        try:
            with limited_work(_SECONDS, _MEMORY):
                yield
        except TargetLanguageError:
            raise
        except UserError as error:
            raise UserError(f"{self._name}: {error}") from None

    def _warn_of_languages(self, document: Document, direction: Direction) -> None:
        """Say that a document asks for a language, of which the model does not say that it writes
        it.
        """
        targets = {named.target for named in document.directions if named.target}
        if targets and direction.target is None:
            shown = ", ".join(sorted(targets))
            print(
                f"warning: The file asks for {shown}, and the model does not say what it writes. "
                "Name its language by --target_language.",
                file=sys.stderr,
            )

    def _report_doubts(self, blocks: Sequence[Block], doubts: Mapping[int, Sequence[str]]) -> None:
        texts = (repr(shorten(blocks[number].text, _SHOWN, placeholder="…")) for number in doubts)
        report_doubts(texts, doubts, len(blocks), self._options.fail_on_warnings)
