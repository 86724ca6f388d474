"""Where lines of plain text meet and break, in scripts with and without spaces between words."""

import unicodedata
from collections.abc import Iterable

import regex

from vanilla_transformer.text.units import FURTHER, UNSPACED_SCRIPTS

# Before and after such a character a line may break.
_CHARACTER = r"[\p{Han}\p{Hiragana}\p{Katakana}]"
_OPENING = r"[\p{Ps}\p{Pi}]"
# A piece that no line break divides: a word, or a character of a script without spaces. White space
# may precede it.
_PIECE = regex.compile(
    rf"(?<!\s)\s*+(?:{_OPENING}*{_CHARACTER}[[\p{{P}}{FURTHER}ー]--{_OPENING}]*|(?:(?!{_CHARACTER})\S)+)",
    regex.V1,
)
_UNSPACED_END = regex.compile(rf"{UNSPACED_SCRIPTS}[{FURTHER}]*\p{{P}}*\Z", regex.V1)
STARTS_UNSPACED = regex.compile(rf"\p{{P}}*{UNSPACED_SCRIPTS}", regex.V1)
_SOFT_HYPHEN = "\u00ad"
_COMPOUND_END = regex.compile(r"\p{L}[-\u2010]\Z")
_FINAL = regex.compile(r"[\p{Sentence_Terminal}…\u0F0D\u0F0E][\p{Pe}\p{Pf}\"'\p{M}]*\s*\Z")
# The mark of an item of a list
ITEM = r"(?:(?:[-*•+]|\d{1,3}[.)]|\(?[^\W\d]\)|\(\d{1,3}\))[^\S\n]++(?=\S))"
_LONGEST_END = 16  # characters that say whether a space follows


def join_lines(lines: Iterable[str]) -> str:
    """Return lines as one, with a space between them where their script has one."""
    text = ""
    for line in lines:
        line = line.strip()
        if text.endswith(_SOFT_HYPHEN):
            text = text.removesuffix(_SOFT_HYPHEN)
        elif text and line:
            text += find_space(text, 0, len(text), line)
        text += line
    return text


def find_space(text: str, start: int, end: int, line: str) -> str:
    """Return the space between a line, which is a range of a text, and the next one."""
    # Or long texts would take time that grows with its square.
    before = text[max(start, end - _LONGEST_END) : end]
    is_compound = _COMPOUND_END.search(before) and line[:1].islower()
    is_unspaced = _UNSPACED_END.search(before) and STARTS_UNSPACED.match(line)
    return "" if is_compound or is_unspaced or before.endswith(_SOFT_HYPHEN) else " "


def ends_sentence(text: str) -> bool:
    """Return whether a text ends in a mark that ends a sentence, in any script."""
    return bool(_FINAL.search(text))


def find_cuts(text: str) -> list[int]:
    """Return where a text can be divided, before words and between characters of scripts without
    spaces.
    """
    return [match.end() - len(match[0].lstrip()) for match in _PIECE.finditer(text)][1:]


def count_columns(text: str) -> int:
    """Return the width of a text in a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        1 + (unicodedata.east_asian_width(character) in "WF")
        for character in text
        if not unicodedata.combining(character)
    )


def wrap(text: str, width: int, first: str = "", further: str = "") -> list[str]:
    """
    Return the lines of a text. A word that is longer than a line stays whole.

    Args:
        width: Width of a line, in columns.
        first, further: What the first line and the further ones begin with.
    """
    lines, pieces, columns = list[str](), [first], count_columns(first)
    for piece in _PIECE.findall(text):
        if len(pieces) > 1 and columns + count_columns(piece) > width:
            lines.append("".join(pieces))
            pieces, columns = [further], count_columns(further)
        pieces.append(piece if len(pieces) > 1 else piece.lstrip())
        columns += count_columns(pieces[-1])
    return [*lines, "".join(pieces)]
