"""Find the translation of a term in a text: as it is, or with another ending."""

from .units import split_units

_LONGEST_ENDING = 3  # letters by which a form is longer than the wanted one
_LONGEST_CHANGE = 1  # letters of the wanted form that another form lacks, unless it is short
_SHORT = 4  # letters


def count_forms(wanted: str, text: str, exactly: bool = False) -> int:
    """Return how often a text has a phrase, in any case; unless `exactly`, its words may have other endings."""
    phrase, words = _words(wanted), _words(text)
    windows = (words[first : first + len(phrase)] for first in range(len(words) - len(phrase) + 1))
    if exactly:
        return sum(window == phrase for window in windows)
    return sum(all(map(is_form, window, phrase)) for window in windows)


def is_form(word: str, wanted: str) -> bool:
    """Return whether a word differs from the wanted one by its ending only, as far as letters tell."""
    kept = len(wanted) - (_LONGEST_CHANGE if len(wanted) > _SHORT else 0)
    return word.startswith(wanted[:kept]) and len(word) <= len(wanted) + _LONGEST_ENDING


def _words(text: str) -> list[str]:
    return [text[start:end].casefold() for start, end in split_units(text)]


__all__ = ["count_forms", "is_form"]
