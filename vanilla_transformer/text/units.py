"""Units of a text: words, Chinese and Japanese characters, and punctuation marks; and forms of one word."""

import re
import unicodedata

Span = tuple[int, int]
_CJK = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_UNIT = re.compile(rf"[{_CJK}]|[^\W{_CJK}]+|[^\w\s]")


def split_units(text: str) -> list[Span]:
    """Return the start and the end of each unit of a text."""
    joined = "".join("a" if unicodedata.category(each)[0] == "M" else each for each in text)  # marks are of their word
    return [match.span() for match in _UNIT.finditer(joined)]


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
