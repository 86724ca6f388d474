"""The tokens of a vocabulary that add letters to the word before them."""

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import regex

from vanilla_transformer.text.protection import WORD_CHARACTER

from .search.lexical_constraints import WordContinuations

_IN_WORD = regex.compile(WORD_CHARACTER, regex.V1)
_WORD = "a"
_known = WeakKeyDictionary[Any, tuple[int, WordContinuations]]()


def word_continuations(tokenizer: Any) -> WordContinuations:
    """Return the tokens that begin with a letter or digit and continue a word, as far as the decoder tells.

    Scripts that write no spaces between words have none, nor do tokens that are parts of a character.
    """
    size = len(tokenizer)
    if tokenizer not in _known or _known[tokenizer][0] != size:
        _known[tokenizer] = size, WordContinuations(_find(tokenizer, size))
    return _known[tokenizer][1]


def ends_in_word(text: str) -> bool:
    """Return whether further letters after a text would continue its last word."""
    return _IN_WORD.match(text[-1:]) is not None


def _find(tokenizer: Any, size: int) -> Sequence[int]:
    before = tokenizer(text_target=[_WORD], add_special_tokens=False)["input_ids"][0]
    tokens = sorted({*range(size)} - {*tokenizer.all_special_ids})
    texts = tokenizer.batch_decode([[*before, token] for token in tokens])
    start = len(tokenizer.decode(before))
    return [token for token, text in zip(tokens, texts, strict=True) if _IN_WORD.match(text, start)]


__all__ = ["ends_in_word", "word_continuations"]
