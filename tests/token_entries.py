"""The `tokens` of an answer."""

from collections.abc import Mapping, Sequence
from typing import Any

EOS = "</s>"


def joined(tokens: Sequence[Mapping[str, Any]]) -> str:
    """Return the texts of tokens as one, without the ends of sentences."""
    return "".join(token["text"] for token in tokens if token["text"] != EOS)
