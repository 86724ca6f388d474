"""Split texts into units: words, Chinese and Japanese characters, and punctuation marks."""

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


__all__ = ["Span", "split_units", "split_words"]
