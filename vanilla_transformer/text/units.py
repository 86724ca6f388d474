"""Units of a text: words, letters of scripts without spaces, and punctuation marks; and forms of one word."""

import regex

Span = tuple[int, int]
# Letters between whose words there are no spaces. Each one is a unit, with its marks.
UNSPACED = (
    r"[\p{L}&&[\p{Han}\p{Hiragana}\p{Katakana}\u30FC\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}\p{Tai_Tham}]]"
)
_FURTHER = r"\p{M}\p{Cf}"  # marks, joiners and soft hyphens, which belong to the character before them
_UNIT = regex.compile(
    rf"{UNSPACED}[{_FURTHER}]*|[[\w\p{{N}}]--[{UNSPACED}{_FURTHER}]][[\w\p{{N}}{_FURTHER}]--{UNSPACED}]*"
    rf"|[^\w\s\p{{Cf}}][{_FURTHER}]*",
    regex.V1,
)


def split_units(text: str) -> list[Span]:
    """Return the start and the end of each unit of a text."""
    return [match.span() for match in _UNIT.finditer(text)]


def split_words(text: str) -> list[str]:
    """Return the units of a text that have letters or digits."""
    units = [text[start:end] for start, end in split_units(text)]
    return [unit for unit in units if any(map(str.isalnum, unit))]


_LONGEST_ENDING = 3  # letters by which a form is longer than the wanted one
_LONGEST_CHANGE = 1  # letters of the wanted form that another form lacks, unless it is short
_SHORT = 4  # letters


def count_forms(wanted: str, text: str, exactly: bool = False) -> int:
    """Return how often a text has a phrase, in any case; unless `exactly`, its words may have other endings."""
    phrase, words = _folded_units(wanted), _folded_units(text)
    windows = (words[first : first + len(phrase)] for first in range(len(words) - len(phrase) + 1))
    if exactly:
        return sum(window == phrase for window in windows)
    return sum(all(map(is_form, window, phrase)) for window in windows)


def is_form(word: str, wanted: str) -> bool:
    """Return whether a word differs from the wanted one by its ending only, as far as letters tell."""
    kept = len(wanted) - (_LONGEST_CHANGE if len(wanted) > _SHORT else 0)
    return word.startswith(wanted[:kept]) and len(word) <= len(wanted) + _LONGEST_ENDING


def _folded_units(text: str) -> list[str]:
    return [text[start:end].casefold() for start, end in split_units(text)]
