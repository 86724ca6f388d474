"""Rules for text that must survive: its order, its neighbors, and masks that a model invents."""

from collections.abc import Iterable, Sequence
from typing import Any

import regex

from vanilla_transformer.text.protection import MASK, PERCENT_NAME, WIDTH, Range, find_masks

# Words beside which there is a space. In other scripts, and as short ones, they may be parts of the next word.
_APART = r"[\p{Latin}\p{Greek}\p{Cyrillic}\p{Armenian}\p{Georgian}\d_]|[\p{Arabic}\p{Hebrew}]{4}"

_ONLY_NUMBERS = regex.compile(r"[\d\s.,:/'’()+-]+")
_MASK_IN_TEXT = regex.compile(rf"\A{MASK.pattern}\s?|\s?{MASK.pattern}")
# Fields without names or numbers, which are filled in the order in which they come; and codes that open and close.
# Neither %%, %name% nor an escape of a URL, such as %20, is one.
_ORDERED = [
    regex.compile(
        rf"(?<!%)(?:%%)*+\K(?!(?<=(?:://|www\.)\S*)%[0-9A-Fa-f]{{2}})(?!{PERCENT_NAME})%[-+0# ]*+{WIDTH}[A-Za-z@]"
    ),
    regex.compile(r"\{(?:[:!][^{}]*)?\}"),
    regex.compile(r"<[^<>]+>|\{%.*?%\}"),
]


def find_invented_masks(translation: str, source: str) -> list[Range]:
    """Return where a translation has masks that its source does not have, each with a space beside it."""
    return [match.span() for match in _MASK_IN_TEXT.finditer(translation) if match[0].strip() not in source]


def find_own_tokens(tokenizer: Any) -> set[str]:
    """Return the tokens that a model reads as marks, such as `<term>` and the tags of sources, and not as text."""
    return {*getattr(tokenizer, "get_added_vocab", dict)()} - {*find_masks(tokenizer)}


def has_others(translation: str, found: Sequence[Range], kept: Sequence[Range]) -> bool:
    """Return whether a translation has masks and text to keep besides the `kept` ones, or longer than these.

    Numbers are none of them, because models may write words as numbers.

    Args:
        found: Places where [`find_protected`] finds text to keep.
    """
    ranges = [*found, *(match.span() for match in MASK.finditer(translation))]
    return any(_is_other(translation, each, kept) for each in ranges)


def _is_other(text: str, place: Range, kept: Sequence[Range]) -> bool:
    inside = [(start, end) for start, end in kept if start < place[1] and place[0] < end]
    if not inside:
        return not _ONLY_NUMBERS.fullmatch(text, *place)
    edges = [place[0], *(edge for each in sorted(inside) for edge in each), place[1]]
    return any(start < end for start, end in zip(edges[::2], edges[1::2], strict=True))


def keeps_order(texts: Sequence[str], order: Sequence[int]) -> bool:
    """
    Return whether a translation may have the texts to keep in another order.

    Fields such as `%d` and `{}` stand for values in a fixed order, and tags open before they close.

    Args:
        order: The indices of the texts, as the translation has them.
    """
    moved = [texts[index] for index in order]
    return all(_find_each(expression, texts) == _find_each(expression, moved) for expression in _ORDERED)


def _find_each(expression: regex.Pattern[str], texts: Iterable[str]) -> list[str]:
    return [found for text in texts for found in expression.findall(text)]


def space_gap(gap: str, after: str | None, before: str | None) -> tuple[int, str]:
    """
    Return the text of a translation between two texts that are kept, with white space beside them as in the source.

    A word that touches one gets a space if the source has white space there, or its edge. The same word or sign
    touches one that it touches in the source.

    Args:
        after: The text after the first of the two in the source, or None if the gap begins the translation.
        before: The text before the second one in the source, or None if the gap ends the translation.

    Returns: how much longer the gap begins, and the gap.
    """
    if after is not None and before is not None and not gap:
        return 0, " " if _is_space(after[:1]) or _is_space(before[-1:]) else ""
    size = len(gap)
    if after is not None:
        if _is_space(after[:1]):
            gap = _space(after[:1]) + gap if regex.match(_APART, gap) else gap
        elif regex.match(rf"\s+{_whole(_UNIT.match(after)[0])}", gap):  # type: ignore[index]
            gap = gap.lstrip()
    lead = len(gap) - size
    if before is not None:
        if _is_space(before[-1:]):
            gap += _space(before[-1:]) if regex.search(rf"(?:{_APART})$", gap) else ""
        elif regex.search(rf"{_whole(_LAST_UNIT.search(before)[0])}\s+$", gap):  # type: ignore[index]
            gap = gap.rstrip()
    return lead, gap


_UNIT, _LAST_UNIT = regex.compile(r"\w+|."), regex.compile(r"(?:\w+|.)$")


def _is_space(character: str) -> bool:
    return not character or character.isspace()


def _space(character: str) -> str:
    """Return the white space of the source, or a space for a line break or the edge of the text."""
    return character if character in ("\t", "\u00a0", "\u202f") else " "


def _whole(unit: str) -> str:
    """Return the expression of a word or sign."""
    return rf"\b{regex.escape(unit)}\b" if unit[0].isalnum() else regex.escape(unit)
