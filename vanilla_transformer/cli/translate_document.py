"""Translate a document and keep its markup: `translate --format`."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .language_arguments import DEFAULT_LANGUAGE, LanguageArguments, language_settings
from .model_arguments import ModelArguments, open_model


@dataclass
class DocumentArguments(LanguageArguments):
    """Flags of documents and their sentences."""

    format: str = field(
        default="text",
        metadata={"help": "text (a sentence a line), html, xml, markdown, srt or xliff, whose markup is kept."},
    )
    sentence_splitter: str = field(
        default="abbreviations",
        metadata={
            "help": "How documents and, with --split_sentences, lines of text are split: abbreviations (sentencex), "
            "simple (after each period), or your own function, such as my_module:split."
        },
    )


def translate_document(
    model: str,
    options: DocumentArguments,
    loading: ModelArguments,
    files: tuple[str | None, str | None],
    settings: Mapping[str, Any],
) -> None:
    """
    Translate a document and write it.

    Args:
        files: Where it is read and written; None for standard input and output.
        settings: Keyword arguments of the pipeline.

    Raises:
        ValueError: The format or the splitter is unknown, or the document is malformed.
    """
    from vanilla_transformer.decoding.sentence_splitter import find_splitter
    from vanilla_transformer.documents import parse_document, read_document, translator_by
    from vanilla_transformer.file_utils import write_text_atomically

    source, output = files
    splitter = find_splitter(options.sentence_splitter, options.source_language or DEFAULT_LANGUAGE)
    document = parse_document(read_document(source), options.format)
    with open_model(model, loading, settings.get("num_beams")) as pipeline:
        settings = dict(settings) | language_settings(pipeline.tokenizer, options)
        translated = document.render(translator_by(pipeline, splitter, **settings)(document.blocks))
    if output is None:
        sys.stdout.write(translated)
    else:
        write_text_atomically(output, translated)
