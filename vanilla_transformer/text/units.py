"""Units of a text: words, letters of scripts without spaces, and punctuation marks; graphemes; and forms of a word."""

import unicodedata

import regex

Span = tuple[int, int]
# Scripts between whose words there are no spaces, and their letters. Each one is a unit, with its marks.
UNSPACED_SCRIPTS = r"[\p{Han}\p{Hiragana}\p{Katakana}\u30FC\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}\p{Tai_Tham}]"
UNSPACED = rf"[\p{{L}}&&{UNSPACED_SCRIPTS}]"
FURTHER = r"\p{M}\p{Cf}"  # marks, joiners and soft hyphens, which belong to the character before them
_UNIT = regex.compile(
    rf"{UNSPACED}[{FURTHER}]*|[[\w\p{{N}}]--[{UNSPACED}{FURTHER}]][[\w\p{{N}}{FURTHER}]--{UNSPACED}]*"
    rf"|[^\w\s\p{{Cf}}][{FURTHER}]*",
    regex.V1,
)
_GRAPHEME = regex.compile(rf"\X[{FURTHER}]*")
# A word of letters only, at least two. In scripts without spaces no unit is one.
_LETTERS = regex.compile(rf"\p{{L}}[{FURTHER}]*+(?:\p{{L}}[{FURTHER}]*+)+")


def split_units(text: str) -> list[Span]:
    """Return the start and the end of each unit of a text."""
    return [match.span() for match in _UNIT.finditer(text)]


def split_words(text: str) -> list[str]:
    """Return the units of a text that have letters or digits."""
    units = [text[start:end] for start, end in split_units(text)]
    return [unit for unit in units if any(map(str.isalnum, unit))]


def is_word_of_letters(unit: str) -> bool:
    """Return whether a unit has two letters or more, with their marks, and nothing else."""
    return _LETTERS.fullmatch(unit) is not None


def split_graphemes(text: str) -> list[str]:
    """Return the characters of a text as a reader counts them: each with its marks, joiners and soft hyphens."""
    return list(text) if text.isascii() else _GRAPHEME.findall(text)


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
    text = unicodedata.normalize("NFC", text)
    return [text[start:end].casefold() for start, end in split_units(text)]
