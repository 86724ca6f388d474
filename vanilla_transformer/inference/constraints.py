"""Lexical constraints of a request: the words and phrases that translations must contain, and their tokens."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import islice, repeat
from typing import Any

from .search.lexical_constraints import ConstraintError, Phrases, WholeWords
from .word_continuations import ends_in_word

_LEAST_ROOM, _MOST_ROOM = 8, 256  # tokens of a text's phrases
_STEM = "*"  # at the end of a word that may be continued
_RULE = "`constraints` must be a list of phrases, or a list of phrases for each text"


@dataclass(frozen=True)
class ConstraintOptions:
    """
    Options of a request that constrain its translations.

    Args:
        constraints: A list of phrases that each translation must contain, or an iterable of such a list for each text.
            The last word of a phrase may be continued by further letters only if the phrase ends with `*`.
        force_words_ids: A list of phrases as token ids, for all texts; as in `generate()` of transformers 4.
    """

    constraints: Any = None
    force_words_ids: Any = None


class TextConstraints:
    """
    Tokenize the phrases of each text of a request, in the order of the texts.

    Args:
        options: See [`ConstraintOptions`].
        tokenizer: Of the translations.
        count: The number of texts, if it is known.

    Raises:
        ConstraintError: A phrase is not a string, is empty, or has unknown tokens.
    """

    def __init__(self, options: ConstraintOptions, tokenizer: Any, count: int | None = None):
        self._tokenizer = tokenizer
        self._forced = _check_token_ids(options.force_words_ids)
        given = options.constraints
        if given is None:
            given = []
        if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
            raise ConstraintError(f"{_RULE}, got {given!r}.")
        self._are_shared = isinstance(given, Sequence) and (not given or isinstance(given[0], str))
        if not self._are_shared and isinstance(given, Sized) and count not in (None, len(given)):
            raise ConstraintError(f"{_RULE}, but there are {len(given)} lists for {count} texts.")
        self._each: Iterator[Phrases] = (
            repeat(self._tokenize(given)) if self._are_shared else map(self._tokenize, given)
        )

    def of_segments(self, counts: Sequence[int]) -> list[Phrases]:
        """Return the phrases of each segment of the next texts, which have so many segments.

        Phrases for all texts are not for blank ones, which have no segment.

        Raises:
            ConstraintError: A text has no list of phrases, or has phrases and is not one segment.
        """
        phrases = list(islice(self._each, len(counts)))
        if len(phrases) < len(counts):
            raise ConstraintError(f"{_RULE}, but there are lists for {len(phrases)} of {len(counts)} texts.")
        for own, count in zip(phrases, counts, strict=True):
            if own and count != 1 and not (count == 0 and self._are_shared):
                found = "a blank one" if count == 0 else f"one of {count}"
                raise ConstraintError(f"A text with constraints must be one line or sentence, got {found}.")
        return [own for own, count in zip(phrases, counts, strict=True) for _ in range(count)]

    def _tokenize(self, phrases: Any) -> Phrases:
        if isinstance(phrases, str) or not isinstance(phrases, Sequence):
            raise ConstraintError(f"{_RULE}, got {phrases!r} for a text.")
        return [*(tokenize_constraint(self._tokenizer, phrase) for phrase in phrases), *self._forced]


def tokenize_constraint(tokenizer: Any, phrase: Any) -> Sequence[int]:
    """
    Return the tokens of a constraint: [`WholeWords`], unless further letters may follow.

    Raises:
        ConstraintError: See [`tokenize_phrase`].
    """
    text = phrase.strip() if isinstance(phrase, str) else phrase
    if isinstance(text, str) and text.endswith(_STEM) and ends_in_word(text.removesuffix(_STEM)):
        return tokenize_phrase(tokenizer, text.removesuffix(_STEM))
    tokens = tokenize_phrase(tokenizer, phrase)
    return WholeWords(tokens) if ends_in_word(text) else tokens


def tokenize_phrase(tokenizer: Any, phrase: Any) -> list[int]:
    """
    Return the tokens of a phrase, as in running text.

    Raises:
        ConstraintError: It is not a string, is empty, or has unknown or special tokens.
    """
    if not isinstance(phrase, str):
        raise ConstraintError(f"A constraint must be a string, got {phrase!r}.")
    words = phrase.split()
    if not words:
        raise ConstraintError(f"A constraint must have a word, got {phrase!r}.")
    tokens = tokenizer(text_target=[" ".join(words)], add_special_tokens=False)["input_ids"][0]
    wrong = [token for token in tokens if token in tokenizer.all_special_ids]
    if wrong or not tokens:
        found = tokenizer.convert_ids_to_tokens(wrong[0]) if wrong else "no token"
        raise ConstraintError(f"A constraint must be in the model's vocabulary, but {phrase!r} gives {found}.")
    return list(tokens)


def room_for_phrases(phrases: Sequence[Phrases]) -> int:
    """Return room for the tokens of each sentence's phrases, a power of two, so that few engines are built.

    Raises:
        ConstraintError: There are too many tokens.
    """
    most = max(sum(map(len, each)) for each in phrases)
    if most > _MOST_ROOM:
        raise ConstraintError(f"The constraints of a text may have at most {_MOST_ROOM} tokens, got {most}.")
    return max(_LEAST_ROOM, 1 << (most - 1).bit_length())


def _check_token_ids(phrases: Any) -> Phrases:
    """Check `force_words_ids`.

    Raises:
        ConstraintError: It is not a list with lists of token ids.
    """
    if phrases is None:
        return []
    lists = phrases if isinstance(phrases, list | tuple) else [phrases]
    for each in lists:
        if not isinstance(each, list | tuple) or not each or any(type(token) is not int for token in each):
            hint = " Alternatives are not supported." if isinstance(each, list | tuple) and each else ""
            raise ConstraintError(
                f"`force_words_ids` must be a list with a list of token ids each, got {each!r}.{hint}"
            )
    return [list(each) for each in lists]


__all__ = ["ConstraintOptions", "TextConstraints", "room_for_phrases", "tokenize_constraint"]
__all__ += ["tokenize_phrase"]
