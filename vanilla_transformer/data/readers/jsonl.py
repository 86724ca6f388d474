"""JSON Lines: an object with a pair in each line."""

import json
from collections.abc import Iterator
from typing import Any

from .columns import find_columns
from .corpus_spec import SentencePair
from .lines import read_file_lines
from .open_corpora import OpenCorpus


def parse_jsonl(corpus: OpenCorpus) -> Iterator[SentencePair]:
    """Parse objects with both languages, maybe in a `translation`."""
    for number, line in enumerate(read_file_lines(corpus.files[0]), start=1):
        location = f"Line {number} of {corpus.files[0].name}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{location} must be JSON: {error}.") from error
        if not isinstance(row, dict):
            raise ValueError(f"{location} must be a JSON object, got {type(row).__name__}.")
        texts = row.get("translation", row)
        if not isinstance(texts, dict):
            raise ValueError(f"{location} must have sentences by language in its `translation`, got {texts!r}.")
        source, target = find_columns(texts, "translation" in row, corpus.spec, location)
        yield SentencePair(_json_text(texts[source], location), _json_text(texts[target], location))


def _json_text(value: Any, location: str) -> str:
    """Return a sentence of a row; null is a missing sentence."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{location} must hold sentences, got {value!r}.")
    return value.strip()
