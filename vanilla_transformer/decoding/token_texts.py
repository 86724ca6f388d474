"""The text of each token of a sentence."""

import copy
import re
from collections.abc import Iterator, Sequence
from typing import Any

_BYTE = re.compile("<0x[0-9A-Fa-f]{2}>")  # a token of SentencePiece
_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"  # stands for bytes that the next token may complete


def token_texts(tokenizer: Any, ids: Sequence[int], as_source: bool = False) -> list[str]:
    """
    Return the text of each token. Without the names of special tokens, they join to the text of the sentence.

    A character whose bytes are in several tokens is part of the last one.

    Args:
        as_source: The tokens are of a source, for tokenizers with a separate vocabulary for each side.
    """
    if as_source and getattr(tokenizer, "separate_vocabs", False):  # Marian's, which decodes translations
        tokenizer = copy.copy(tokenizer)
        tokenizer.decoder = {token: name for name, token in tokenizer.encoder.items()}
        tokenizer.separate_vocabs = False
    special = {*tokenizer.all_special_ids}
    texts = _texts(tokenizer, [token for token in ids if token not in special])
    return [tokenizer.convert_ids_to_tokens(token) if token in special else next(texts) for token in ids]


def _texts(tokenizer: Any, ids: Sequence[int]) -> Iterator[str]:
    """Yield what each token adds to the text of the tokens before it.

    The text of a few tokens is enough to find this: they begin before the last token that ends with a whole character.
    """
    start, whole, done = 0, 0, 0  # places in `ids`, and how many characters of the text from `start` are known
    for end in range(1, len(ids) + 1):
        longer = tokenizer.decode(ids[start:end], skip_special_tokens=True)
        kept = longer if end == len(ids) else longer.rstrip(_INCOMPLETE)
        yield kept[done:]
        done = max(done, len(kept))
        is_byte = _BYTE.fullmatch(str(tokenizer.convert_ids_to_tokens(ids[end - 1])))  # whose run is decoded as one
        if kept == longer and not is_byte:
            start, whole = whole, end
            done = len(tokenizer.decode(ids[start:end], skip_special_tokens=True))


def next_token_text(tokenizer: Any, before: Sequence[int], token: int) -> str:
    """Return the text that a token adds to the tokens before it: empty if it has only a part of a character."""
    if token in tokenizer.all_special_ids:
        return tokenizer.convert_ids_to_tokens(token)
    shorter, longer = (tokenizer.decode(ids, skip_special_tokens=True) for ids in (before, [*before, token]))
    return longer.rstrip(_INCOMPLETE)[len(shorter.rstrip(_INCOMPLETE)) :]


def token_entries(tokenizer: Any, ids: Sequence[int], log_probabilities: Sequence[float]) -> list[dict[str, Any]]:
    """Return `{"text": …, "log_probability": …}` for each token."""
    rows = zip(token_texts(tokenizer, ids), log_probabilities, strict=True)
    return [{"text": text, "log_probability": value} for text, value in rows]
