"""The text of each token of a sentence."""

import copy
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from vanilla_transformer.text.protection import Range, mask

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_BYTE = re.compile("<0x[0-9A-Fa-f]{2}>")  # a token of SentencePiece
# Stands for bytes that the next token may complete
_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"


def token_texts(
    tokenizer: "PreTrainedTokenizerBase", ids: Sequence[int], as_source: bool = False
) -> list[str]:
    """
    Return the text of each token. Without the names of special tokens, they join to the text of the
    sentence.

    A character whose bytes are in several tokens is part of the last one.

    Args:
        as_source: The tokens are of a source, for tokenizers with a separate vocabulary for each
            side.
    """
    # Marian's tokenizer decodes translations.
    if as_source and getattr(tokenizer, "separate_vocabs", False):
        tokenizer = copy.copy(tokenizer)
        tokenizer.decoder = {token: name for name, token in tokenizer.encoder.items()}
        tokenizer.separate_vocabs = False
    special = {*tokenizer.all_special_ids}
    plain = _texts(tokenizer, [token for token in ids if token not in special])
    texts = []
    for token in ids:
        if token in special:
            texts.append(tokenizer.convert_ids_to_tokens(token))
        else:
            texts.append(next(plain))
    return texts


def _texts(tokenizer: "PreTrainedTokenizerBase", ids: Sequence[int]) -> Iterator[str]:
    """Yield what each token adds to the text of the tokens before it.

    The text of a few tokens is enough to find this: they begin before the last token that ends with
    a whole character.
    """
    start = whole = 0  # places in `ids`
    done = 0  # how many characters of the text from `start` are known
    for end in range(1, len(ids) + 1):
        longer = tokenizer.decode(ids[start:end], skip_special_tokens=True)
        kept = longer if end == len(ids) else longer.rstrip(_INCOMPLETE)
        yield kept[done:]
        done = max(done, len(kept))
        # A run of such tokens is decoded as one.
        is_byte = _BYTE.fullmatch(str(tokenizer.convert_ids_to_tokens(ids[end - 1])))
        if kept == longer and not is_byte:
            start, whole = whole, end
            done = len(tokenizer.decode(ids[start:end], skip_special_tokens=True))


def next_token_text(tokenizer: "PreTrainedTokenizerBase", before: Sequence[int], token: int) -> str:
    """Return the text that a token adds to the tokens before it: empty if it has only a part of a
    character.
    """
    if token in tokenizer.all_special_ids:
        return tokenizer.convert_ids_to_tokens(token)
    shorter = tokenizer.decode(before, skip_special_tokens=True).rstrip(_INCOMPLETE)
    longer = tokenizer.decode([*before, token], skip_special_tokens=True)
    return longer.rstrip(_INCOMPLETE)[len(shorter) :]


class Token(NamedTuple):
    """A token in a text: where it ends, and its name if it is special and has no text."""

    end: int
    log_probability: float
    name: str = ""


def locate_tokens(
    tokenizer: "PreTrainedTokenizerBase",
    ids: Sequence[int],
    log_probabilities: Sequence[float],
    text: str,
) -> list[Token]:
    """Return where the tokens are in the text that they are decoded to."""
    special = {*tokenizer.all_special_ids}
    tokens, decoded = list[Token](), ""
    texts = token_texts(tokenizer, ids)
    for token, shown, value in zip(ids, texts, log_probabilities, strict=True):
        name = shown if token in special else ""
        if not name:
            decoded += shown
        tokens.append(Token(len(decoded), value, name))
    return move_tokens(tokens, decoded, text)


def move_tokens(
    tokens: Sequence[Token], old: str, new: str, replaced: Sequence[tuple[Range, Range]] = ()
) -> list[Token]:
    """Return where the tokens of a text are in a new one. White space belongs to the token after
    it.

    Args:
        old, new: Both texts, with white space instead of the characters that only one of them has.
        replaced: Places of text in the old one, and of other text in the new one. The first token
            there has all of it.
    """
    if old == new:
        return [*tokens]
    old_ranges, old_masks = [], []
    new_ranges, new_masks = [], []
    for (old_start, old_end), (new_start, new_end) in replaced:
        if old[old_start:old_end] != new[new_start:new_end]:
            old_ranges.append((old_start, old_end))
            new_ranges.append((new_start, new_end))
            old_masks.append("x".ljust(old_end - old_start))
            new_masks.append("x".rjust(new_end - new_start))
    old, _ = mask(old, old_ranges, old_masks)
    new, _ = mask(new, new_ranges, new_masks)
    known = [at for at, character in enumerate(old) if not character.isspace()]
    ends = [0]
    for end, character in enumerate(new, start=1):
        if not character.isspace():
            ends.append(end)
    moved = []
    for token in tokens:
        count = min(bisect_left(known, token.end), len(ends) - 1)
        moved.append(token._replace(end=ends[count]))
    return moved


def to_entries(tokens: Sequence[Token], text: str) -> list[dict[str, Any]]:
    """Return `{"text": …, "log_probability": …}` for each token, and one of 0 for what follows the
    last one.
    """
    entries, start = list[dict[str, Any]](), 0
    for end, log_probability, name in [*tokens, Token(len(text), 0.0)]:
        end = start if name else max(start, end)
        shown = name or text[start:end]
        entries.append({"text": shown, "log_probability": log_probability})
        start = end
    return entries if entries[-1]["text"] else entries[:-1]
