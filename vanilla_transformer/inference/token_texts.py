"""The text of each token of a sentence."""

from collections.abc import Sequence
from typing import Any


def token_texts(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """
    Return the text of each token. Without the names of special tokens, they join to the text of the sentence.

    A character whose bytes are in several tokens is part of the last one.
    """
    special, texts, kept, done = {*tokenizer.all_special_ids}, list[str](), list[int](), 0
    for position, token in enumerate(ids):
        if token in special:
            texts.append(tokenizer.convert_ids_to_tokens(token))
            continue
        kept.append(token)
        longer = tokenizer.decode(kept, skip_special_tokens=True)
        if any(each not in special for each in ids[position + 1 :]):
            longer = longer.rstrip("\N{REPLACEMENT CHARACTER}")  # bytes that the next token may complete
        texts.append(longer[done:])
        done = max(done, len(longer))
    return texts


def token_entries(tokenizer: Any, ids: Sequence[int], log_probabilities: Sequence[float]) -> list[dict[str, Any]]:
    """Return `{"text": …, "log_probability": …}` for each token."""
    rows = zip(token_texts(tokenizer, ids), log_probabilities, strict=True)
    return [{"text": text, "log_probability": value} for text, value in rows]


__all__ = ["token_entries", "token_texts"]
