"""Rules for text that must survive: its order, and its neighbors."""

from collections.abc import Collection, Sequence
from itertools import chain

import regex

from vanilla_transformer.text.protection import (
    MASK,
    PERCENT_NAME,
    WIDTH,
    WORD_CHARACTER,
    Range,
    overlapping,
)

# A letter beside which there is a space. Korean attaches particles, and Hebrew a letter that is a
# preposition.
_LETTER = rf"(?V1)[{WORD_CHARACTER}--[\p{{Hangul}}\p{{M}}]]"
_BEGINS_WORD = regex.compile(_LETTER)
_ENDS_WORD = regex.compile(rf"(?!\b\p{{Hebrew}}$){_LETTER}\p{{M}}*$")
# A letter may touch what touches one of these in the source. An apostrophe is within a word.
_JOINED_AFTER, _JOINED_BEFORE = regex.compile(r"\w|['’]\w"), regex.compile(r"(?r)(?:\w|\w['’])\Z")
# Quotation marks and brackets, with which a text may end that begins with one
QUOTATION_MARKS = {"'": "'", '"': '"', "‘": "’", "“": "”", "„": "“”", "‚": "‘’", "«": "»"}
PAIRS = QUOTATION_MARKS | {"»": "«", "‹": "›", "›": "‹", "「": "」", "『": "』", "《": "》"}
PAIRS |= {"〈": "〉", "(": ")", "[": "]", "（": "）", "［": "］", "【": "】"}
_MARKS = regex.escape("".join([*PAIRS, *PAIRS.values()]), special_only=False)
_MARK_BEFORE = regex.compile(rf"(?r)[{_MARKS}]\s?+\Z")
_MARK_AFTER = regex.compile(rf"\s?+[{_MARKS}]")

_ONLY_NUMBERS = regex.compile(r"[\d\s.,:/'’()+-]+")
# Fields without names or numbers, which are filled in the order in which they come; and codes that
# open and close. Neither %%, %name% nor an escape of a URL, such as %20, is one.
_ORDERED = [
    regex.compile(
        rf"(?<!%)(?:%%)*+\K(?!%[0-9A-Fa-f]{{2}}(?<=(?:://|www\.)\S{{,500}}))"
        rf"(?!{PERCENT_NAME})%[-+0# ]*+{WIDTH}[A-Za-z@]"
    ),
    regex.compile(r"\{(?:[:!][^{}]*)?\}"),
    regex.compile(r"<[^<>]+>|\{%[^{}\n]*%\}"),
]


def has_others(translation: str, protected: Sequence[Range], kept: Sequence[Range]) -> bool:
    """Return whether a translation has masks and text to keep besides the `kept` ones, or longer
    than these.

    Numbers are none of them, because models may write words as numbers.

    Args:
        protected: Places where [`find_protected`] finds text to keep.
        kept: Places in order.
    """
    masks = [match.span() for match in MASK.finditer(translation)]
    for start, end in [*protected, *masks]:
        inside = overlapping((start, end), kept)
        if not inside and not _ONLY_NUMBERS.fullmatch(translation, start, end):
            return True
        edges = [start, *chain.from_iterable(inside), end]
        gaps = zip(edges[::2], edges[1::2], strict=True)
        if inside and any(low < high for low, high in gaps):
            return True
    return False


def add_quotation_marks(
    text: str, kept: Sequence[Range], copied: Collection[str] = ()
) -> list[Range]:
    """
    Return the places of text that is kept, in order, each with the quotation marks or brackets
    that are directly around it.

    Args:
        copied: Opening marks that are left to the model.
    """
    quoted = list[Range]()
    starts = [start for start, _ in kept]
    following_starts = [*starts, len(text)][1:]
    for (start, end), following in zip(kept, following_starts, strict=True):
        previous = quoted[-1][1] if quoted else 0
        if previous < start and end < following:
            mark = text[start - 1]
            # A mark after a letter is an apostrophe.
            is_opening = start - 1 == previous or not text[start - 2].isalnum()
            if is_opening and mark not in copied and text[end] in PAIRS.get(mark, ()):
                start, end = start - 1, end + 1
        quoted.append((start, end))
    return quoted


def is_in_marks(text: str, start: int, end: int) -> bool:
    """Return whether quotation marks or brackets, of any language, are around a part of a text."""
    return bool(_MARK_BEFORE.search(text, 0, start) and _MARK_AFTER.match(text, end))


def keeps_order(texts: Sequence[str], order: Sequence[int]) -> bool:
    """
    Return whether a translation may have the texts to keep in another order.

    Fields such as `%d` and `{}` stand for values in a fixed order, and tags open before they close.

    Args:
        order: The indices of the texts, as the translation has them.
    """
    for expression in _ORDERED:
        fields = [expression.findall(text) for text in texts]
        in_new_order = [fields[index] for index in order]
        if [*chain(*fields)] != [*chain(*in_new_order)]:
            return False
    return True


def space_gap(gap: str, after: str | None, before: str | None) -> str:
    """
    Return the text of a translation between two texts that are kept, with white space beside them
    as in the source.

    A word that touches one gets a space if the source has no letter there. The same word or sign
    touches one that it touches in the source.

    Args:
        after: The text after the first of the two in the source, or None if the gap begins the
            translation.
        before: The text before the second one in the source, or None if the gap ends the
            translation.
    """
    if after is not None and before is not None and not gap:
        return "" if after[:1].strip() and before[-1:].strip() else " "
    if after is not None and _BEGINS_WORD.match(gap):
        gap = ("" if _JOINED_AFTER.match(after) else _space(after[:1])) + gap
    elif after:
        unit = _UNIT.match(after)
        if unit and regex.match(rf"\s+{_whole(unit[0])}", gap):
            gap = gap.lstrip()
    if before is not None and _ENDS_WORD.search(gap):
        gap += "" if _JOINED_BEFORE.search(before) else _space(before[-1:])
    elif before:
        unit = _LAST_UNIT.search(before)
        if unit and regex.search(rf"{_whole(unit[0])}\s+$", gap):
            gap = gap.rstrip()
    return gap


_UNIT, _LAST_UNIT = regex.compile(r"\w+|\S"), regex.compile(r"(?r)(?:\w+|\S)\Z")


def _space(character: str) -> str:
    """Return white space of the source as it is, and a space for all else."""
    return character if character in ("\t", "\u00a0", "\u202f") else " "


def _whole(unit: str) -> str:
    """Return the expression of a word or sign."""
    return rf"\b{regex.escape(unit)}\b" if unit[0].isalnum() else regex.escape(unit)
