"""Translate documents, such as HTML, XLIFF and PO: they keep their structure, and only their text
changes.
"""

from vanilla_transformer.decoding.protection.blocks import Block, Span
from vanilla_transformer.decoding.sentences import Sentence, TranslateSentences
from vanilla_transformer.decoding.translations import Translation

from .block_translator import BlockTranslator
from .translation import (
    DocumentTranslator,
    parse_document,
    read_document,
    translate_document,
)
from .wrapped_text import WrappedText
from .xliff_format import TargetLanguageError

__all__ = [
    "Block",
    "BlockTranslator",
    "DocumentTranslator",
    "Sentence",
    "Span",
    "TargetLanguageError",
    "TranslateSentences",
    "Translation",
    "WrappedText",
    "parse_document",
    "read_document",
    "translate_document",
]
