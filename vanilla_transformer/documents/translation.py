"""Translate a document of a known format."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vanilla_transformer.file_utils import decode_text
from vanilla_transformer.inference.sentence_splitter import SentenceSplitter

from .block_translator import BlockTranslator, Translate
from .html_format import HtmlDocument
from .markdown_format import MarkdownDocument
from .srt_format import SrtDocument
from .xliff_format import XliffDocument
from .xml_format import XmlDocument

FORMATS: dict[str, Callable[[str], Any]] = {
    "html": HtmlDocument,
    "xml": XmlDocument,
    "markdown": MarkdownDocument,
    "srt": SrtDocument,
    "xliff": XliffDocument,
}


def translate_document(
    text: str, format: str, translate: Translate, splitter: SentenceSplitter, masks: Sequence[str] = ()
) -> str:
    """
    Return a document with its text translated and its markup kept.

    Args:
        format: One of `FORMATS`.
        translate, splitter, masks: See [`BlockTranslator`].

    Raises:
        ValueError: The format is unknown, or the text is not of this format.
        OSError: A library that the format needs is not installed.
    """
    document = parse_document(text, format)
    return document.render(BlockTranslator(translate, splitter, masks)(document.blocks))


def parse_document(text: str, format: str) -> Any:
    """Return a document with its `blocks` and the method `render`.

    Raises:
        ValueError: The format is unknown, or the text is not of this format.
        OSError: A library that the format needs is not installed.
    """
    if format not in FORMATS:
        raise ValueError(f"`format` must be one of {', '.join(FORMATS)}, got {format!r}.")
    return FORMATS[format](text)


def read_document(path: str | None) -> str:
    """Return the text of a file, or of standard input if there is none.

    Raises:
        ValueError: It is not UTF-8.
        OSError: The file cannot be read.
    """
    content = sys.stdin.buffer.read() if path is None else Path(path).read_bytes()
    return decode_text(content, path or "Standard input")


def translate_by(pipeline: Any, **options: Any) -> Translate:
    """Return the function that translates by a pipeline, with alignments if its model has heads for them."""
    if getattr(pipeline.model.config, "alignment_heads", None):
        options["return_alignments"] = True

    def translate(texts: list[str]) -> list[tuple[str, Any]]:
        return [(answer["translation_text"], answer.get("alignment")) for answer in pipeline(texts, **options)]

    return translate


__all__ = ["FORMATS", "parse_document", "read_document", "translate_by", "translate_document"]
