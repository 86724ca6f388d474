"""Units of a text: words, letters of scripts without spaces, and punctuation marks; and
graphemes.
"""

import re

import regex

Span = tuple[int, int]
# Scripts between whose words there are no spaces, and their letters. Each one is a unit, with its
# marks.
UNSPACED_SCRIPTS = (
    r"[\p{Han}\p{Hiragana}\p{Katakana}\u30FC\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}"
    r"\p{Tai_Tham}]"
)
UNSPACED = rf"[\p{{L}}&&{UNSPACED_SCRIPTS}]"
# Marks, joiners and soft hyphens, which belong to the character before them
FURTHER = r"\p{M}\p{Cf}"
_UNIT = regex.compile(
    rf"{UNSPACED}[{FURTHER}]*|[[\w\p{{N}}]--[{UNSPACED}{FURTHER}]][[\w\p{{N}}{FURTHER}]--{UNSPACED}]*"
    rf"|[^\w\s\p{{Cf}}][{FURTHER}]*",
    regex.V1,
)
_ASCII_UNIT = re.compile(r"\w+|[^\w\s]", re.ASCII)  # the same, in a sixth of the time
_GRAPHEME = regex.compile(rf"\X[{FURTHER}]*")
# Text each of whose characters is a grapheme, which is read in a tenth of the time
_SINGLE = regex.compile(rf"[\p{{Grapheme_Cluster_Break=Other}}--[{FURTHER}]]*+", regex.V1)
# A word of letters only, at least two. In scripts without spaces no unit is one.
_LETTERS = regex.compile(rf"\p{{L}}[{FURTHER}]*+(?:\p{{L}}[{FURTHER}]*+)+")


def split_units(text: str) -> list[Span]:
    """Return the start and the end of each unit of a text."""
    unit = _ASCII_UNIT if text.isascii() else _UNIT
    return [match.span() for match in unit.finditer(text)]


def split_words(text: str) -> list[str]:
    """Return the units of a text that have letters or digits."""
    units = [text[start:end] for start, end in split_units(text)]
    return [unit for unit in units if any(map(str.isalnum, unit))]


def is_word_of_letters(unit: str) -> bool:
    """Return whether a unit has two letters or more, with their marks, and nothing else."""
    return _LETTERS.fullmatch(unit) is not None


def split_graphemes(text: str) -> list[str]:
    """Return the characters of a text as a reader counts them: each with its marks, joiners and
    soft hyphens.
    """
    if text.isascii() or _SINGLE.fullmatch(text):
        return list(text)
    return _GRAPHEME.findall(text)
