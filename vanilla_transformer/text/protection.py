"""Text that must survive a translation: URLs, placeholders, emoji, long numbers and so on, each kind with a name."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

import regex

from .units import UNSPACED_SCRIPTS

Range = tuple[int, int]


class Kind(NamedTuple):
    """
    A kind of text to keep.

    Attributes:
        examples: Examples of such text.
        expressions: Regular expressions that find it.
        beginnings: The characters with which it can begin, see `_BEGINNINGS`.
    """

    examples: Sequence[str]
    expressions: Sequence[str]
    beginnings: str = "."


# A character that continues a word, in scripts that separate words.
WORD_CHARACTER = rf"[\w--{UNSPACED_SCRIPTS}]"
_BEGINS_WORD = regex.compile(WORD_CHARACTER, regex.V1)
_BEFORE_WORD = regex.compile(rf"(?:{WORD_CHARACTER}|[.,:;!?…\p{{Pe}}\p{{Pf}}])\Z", regex.V1)
# Korean attaches particles and units to the word before.
_LETTER = rf"[{WORD_CHARACTER}--\p{{Hangul}}]"
_NAME = r"[A-Za-z_][A-Za-z_0-9]*+"
_BRACES = r"\{[^{}\s]*\}"
_DOUBLE_BRACES = r"\{{2,3}[^{}\n]*+\}{2,3}"
_WIDTH = r"(?:\d+|\*)?(?:\.(?:\d+|\*)?)?(?:hh?|ll?|[jztLq])?"
# A conversion may touch a unit, as in %dMB, and one of a date is a letter. A percentage such as 50 %ige is none.
_CONVERSION = (
    rf"(?<!\d\s?)%(?:(?:\d+\$)?[0#]*+{_WIDTH}[diouxXeEfgGcs@]|-?[A-Za-z](?!{_LETTER}))"
    rf"|%(?:\d+\$)?[-+0#]*+{_WIDTH}[diouxXeEfFgGcCaAps@](?!{_LETTER})"
)
_PERCENT_NAME = rf"(?<![{_LETTER}%])%[A-Za-z_][A-Za-z_0-9]++%(?![{_LETTER}%])"
# A pair of quotation marks of ICU hides braces.
_TEXT_IN_BRACES = r"(?:[^{}']++|'[{}][^']*+'?|')*+"
for _ in range(12):
    _TEXT_IN_BRACES = rf"(?:[^{{}}']++|'[{{}}][^']*+'?|'|\{{{_TEXT_IN_BRACES}\}})*+"
_PATH = rf"[{_LETTER}.@+%\-]"
_PATH_END = rf"[{_LETTER}@+%\-]"
_NO_SPACES = rf"{UNSPACED_SCRIPTS}\p{{Hangul}}"
_MYRIADS = "十百千万萬億亿兆만억조천"  # after a number, they are part of it
_END_MARKS = r".,;:!?'”’»)\]…"
_URL = rf"(?:[{_END_MARKS}]*+(?:\{{++[^{{}}\s]*+\}}++|[^\s<>\"{{}}{_END_MARKS}、。「」{_NO_SPACES}]))++"
# Words beside which there is a space. In other scripts, and as short ones, they may be parts of the next word.
_APART = r"[\p{Latin}\p{Greek}\p{Cyrillic}\p{Armenian}\p{Georgian}\d_]|[\p{Arabic}\p{Hebrew}]{4}"

# The first kind that fits at a place is taken, and of a kind the first expression.
KINDS = {
    "url": Kind(
        ["https://a.example/x?y=1", "www.a.example"],
        [
            rf"(?:https?|ftp|(?<![{_LETTER}.+\-])[A-Za-z][A-Za-z0-9+.\-]*+)://{_URL}",
            rf"(?<!{_LETTER})www\.{_URL}",
        ],
        "a",
    ),
    "email": Kind(
        ["me@mail.example"], [rf"(?<![{_LETTER}.+\-])[{_LETTER}.+\-]++@[{_LETTER}\-]+(?:\.[{_LETTER}\-]+)+"], "a0."
    ),
    "code": Kind(["`a + b`"], [rf"(?<![{_LETTER}`])`++(?!\s)[^`\n]++(?<!\s)`++"]),
    "path": Kind(
        [r"C:\Users\me", "/usr/bin/env", "~/x"],
        [
            rf"(?<!{_LETTER})(?:[A-Za-z]:/(?:{_PATH}++/)*+|(?:[A-Za-z]:|\\\\[\w.-]++|%[A-Z_]++%)\\"
            rf"(?:{_PATH}++(?: {_PATH}++)*+\\)*+)(?:{_PATH}*{_PATH_END})?",
            rf"(?<![{_LETTER}\p{{Hangul}}/.~:<*\-])(?:(?:~|\.\.?)/|/{_PATH}++/)"
            rf"(?:{_PATH}++/)*+(?:{_PATH}*{_PATH_END}|\.\.)?",
        ],
        "a.",
    ),
    "placeholder": Kind(
        [
            *("{count, plural, one {# file} other {# files}}", "$t(key)", "{{ name|upper }}", "{ $name }", "%{count}"),
            *("%name%", "{name:>5}", "%(name)s", "%1$s", "%d", "%1", "${name}", "__COUNT__", ":name"),
        ],
        [
            rf"\{{\s*[\w.-]+\s*,\s*[A-Za-z]+\s*(?:,{_TEXT_IN_BRACES})?\}}|\{{[\w.-]+\}}",  # ICU
            rf"{_DOUBLE_BRACES}|\$t\([^()\n]*+\)",  # i18next
            r"\{%[^{}\n]*\}",  # Jinja
            r"\{\s*+[$-]\w[^{}\n]*+\}",  # Fluent
            rf"[%#]{_BRACES}|%[-+0#]*+\d*+<\w++>[-+0#]*+{_WIDTH}[A-Za-z]",  # Ruby
            _PERCENT_NAME,
            rf"{_BRACES}|\{{\d+(?:,-?\d+)?:[^{{}}\n]*+\}}|%\([^()\s]++\)[-+0# ]*+{_WIDTH}[A-Za-z]",  # Python
            rf"{_CONVERSION}|%%",  # printf
            rf"(?<!\d\s?|%)%L?(?:[1-9]\d?|n)(?![{_LETTER}$%]|[.,]\d)",  # Qt
            rf"[$@]{_BRACES}|\$\d++(?![\d.,]*\d)|\${_NAME}",  # shells
            rf"(?<!{_LETTER})__[A-Za-z0-9]++(?:_[A-Za-z0-9]++)*+__(?!{_LETTER})",
            r"(?<![\w:.)\]}])@?:[A-Za-z_](?:[A-Za-z_0-9-]++:(?!//)|[A-Za-z_0-9]++(?!://))",
        ],
    ),
    "tag": Kind(
        ["<name>", "&nbsp;"],
        [
            r"</?[A-Za-z][\w:.-]*+(?:\s+[\w:.-]++=(?:\"[^\"]*+\"|'[^']*+'))*+\s*/?>",
            r"&(?:[A-Za-z]{2,}\d*|#\d+|#x[0-9A-Fa-f]+);",
        ],
    ),
    "handle": Kind(
        ["#tag", "@name"],
        [rf"(?<![{_LETTER}&#/])#[\p{{L}}_]\w*+", rf"(?<![{_LETTER}@])@{_NAME}(?:[.\-/][A-Za-z_0-9]++)*+"],
    ),
    "emoji": Kind(
        ["🙂"],
        [
            r"\p{Regional_Indicator}{2}|[0-9#*]\uFE0F?\u20E3",
            r"\p{Extended_Pictographic}[\uFE0F\p{Emoji_Modifier}]*"
            r"(?:\u200D\p{Extended_Pictographic}[\uFE0F\p{Emoji_Modifier}]*)*",
        ],
        "a0.",  # ℹ is a letter, too
    ),
    # Models copy short numbers or write them as words, as they should. They break long ones, dates and times.
    "number": Kind(
        ["v1.2.3", "ISBN 978-3-16-148410-0", "DE89 3704 0044 0532 0130 00", "+49 30 901820", "12,345.60"],
        [
            # Versions
            rf"(?<![{_LETTER}.,])"
            rf"(?:(?:v\d++(?:\.\d++)*+|\d++(?:\.\d++){{2,}}+)(?:[-+][A-Za-z0-9]++(?:\.[A-Za-z0-9]++)*+)*+"
            rf"|v?\d++(?:\.\d++)++\.?(?:a|b|rc|dev|post)\d++)(?!{_LETTER}|[.,:/]\d)",
            rf"(?<!{_LETTER})ISBN(?:-1[03])?:?\s?(?:\d[ -]?){{9}}(?:(?:\d[ -]?){{3}})?[\dX](?!{_LETTER})",
            # IBAN
            rf"(?<!{_LETTER})[A-Z]{{2}}\d{{2}}(?: ?[A-Z0-9]{{4}}){{2,7}}(?: ?[A-Z0-9]{{1,3}})?(?!{_LETTER})",
            # Numbers of telephones
            rf"(?<![{_LETTER}+])(?=(?:[^\w\n]{{0,3}}+\d){{7}})"
            r"(?:\+\d{1,3}[ ./-]?(?:\(\d++\)[ ./-]?)?|\(0?\d{2,5}\)[ ./-]?|0\d{2,4}[ /-](?=\d{3}))"
            rf"\d++(?:[ ./-]\d++)*+(?!{_LETTER})",
            rf"(?<![{_LETTER}.,])(?:\d{{4}}-\d\d-\d\dT\d\d[\d:.]*+(?:Z|[+-]\d\d:?\d\d)?"
            rf"|[+-]?\d+(?:[.,:/\u00A0\u202F'’-]\d+)+)(?![{_LETTER}{_MYRIADS}])",
            rf"(?<!{_LETTER})[+-]?\d{{3,}}(?![{_LETTER}{_MYRIADS}])",
        ],
        "a0.",
    ),
}
_BEGINNINGS = {"a": r"\p{L}", "0": r"\d", ".": r"[^\p{L}\d\s]"}
# What all text to keep has, whatever its kind. Most sentences have none of it.
_NEEDED = regex.compile(r"[[^\w\s,.;'\"!?()\-]\d_\p{Extended_Pictographic}]|www\.", regex.V1)
_MASK = regex.compile(r"[<｟\[]ph_?\d+[>｠\]]")
_MASK_IN_TEXT = regex.compile(rf"\A{_MASK.pattern}\s?|\s?{_MASK.pattern}")
_ONLY_NUMBERS = regex.compile(r"[\d\s.,:/'’()+-]+")
# Fields without names or numbers, which are filled in the order in which they come; and codes that open and close.
# Neither %%, %name% nor an escape of a URL, such as %20, is one.
_ORDERED = [
    regex.compile(
        rf"(?<!%)(?:%%)*+\K(?!(?<=(?:://|www\.)\S*)%[0-9A-Fa-f]{{2}})(?!{_PERCENT_NAME})%[-+0# ]*+{_WIDTH}[A-Za-z@]"
    ),
    regex.compile(r"\{(?:[:!][^{}]*)?\}"),
    regex.compile(r"<[^<>]+>|\{%.*?%\}"),
]
_ENDS_IN_CONVERSION = regex.compile(r"%[^%\s]*[A-Za-z]$")


def find_protected(text: str, protect: bool = True) -> list[Range]:
    """Return where text begins and ends that must appear in the translation as it is; nowhere unless `protect`."""
    if not protect or not _NEEDED.search(text):
        return []
    return [match.span() for match in _protected().finditer(text)]


@cache
def _protected() -> regex.Pattern[str]:
    """Return the expression of runs of text to keep. The first character tells which kinds it tries."""
    groups = [
        f"(?={characters})(?:{'|'.join(_join(kind) for kind in KINDS.values() if beginning in kind.beginnings)})"
        for beginning, characters in _BEGINNINGS.items()
    ]
    return regex.compile(f"(?:{'|'.join(groups)})++", regex.V1)


def _join(kind: Kind) -> str:
    return "|".join(f"(?:{expression})" for expression in kind.expressions)


def are_two_words(before: str, after: str) -> bool:
    """Return whether two texts that touch need a space between them, because their words are separate."""
    return bool(_BEFORE_WORD.search(before) and _BEGINS_WORD.match(after))


def find_masks(tokenizer: Any) -> list[str]:
    """Return the placeholder tokens of a vocabulary, such as `<ph0>`, which its model has learned to copy.

    A special token is none of them: it would not appear in the text of a translation.
    """
    special = set(getattr(tokenizer, "all_special_tokens", ()))
    added = sorted(getattr(tokenizer, "get_added_vocab", dict)().items(), key=lambda item: item[1])
    return [token for token, _ in added if token not in special and _MASK.fullmatch(token)]


def find_invented_masks(translation: str, source: str) -> list[Range]:
    """Return where a translation has masks that its source does not have, each with a space beside it."""
    return [match.span() for match in _MASK_IN_TEXT.finditer(translation) if match[0].strip() not in source]


def find_own_tokens(tokenizer: Any) -> set[str]:
    """Return the tokens that a model reads as marks, such as `<term>` and the tags of sources, and not as text."""
    return {*getattr(tokenizer, "get_added_vocab", dict)()} - {*find_masks(tokenizer)}


def mask(text: str, ranges: Sequence[Range], masks: Sequence[str]) -> tuple[str, list[Range]]:
    """Replace each range of a text by a mask. Return the text and where the masks are."""
    pieces, places, end, length = list[str](), list[Range](), 0, 0
    for (start, stop), token in zip(ranges, masks, strict=True):
        pieces += [text[end:start], token]
        length += start - end + len(token)
        places.append((length - len(token), length))
        end = stop
    return "".join([*pieces, text[end:]]), places


def locate(texts: Sequence[str], translation: str) -> list[Range] | None:
    """Return where each of the texts is in a translation, equal ones in order, or None if the number differs.

    A text is not found within a longer word or number, nor without the marks of its last character.
    """
    found = dict[str, list[Range]]()
    taken = list[Range]()
    for text in sorted(set(texts), key=len, reverse=True):
        expression = regex.compile(_left_edge(text) + _loosely(text) + _right_edge(text), regex.V1)
        spans = [match.span() for match in expression.finditer(translation)]
        spans = [(start, end) for start, end in spans if all(end <= low or high <= start for low, high in taken)]
        if len(spans) != Counter(texts)[text]:
            return None
        found[text] = spans
        taken += spans
    return [found[text].pop(0) for text in texts]


def _loosely(text: str) -> str:
    """Return the expression of a text whose white space may be any other, because tokenizers normalize it."""
    return r"\s".join(regex.escape(part) for part in regex.split(r"\s", text))


def _left_edge(text: str) -> str:
    return rf"(?<!{_LETTER})" if regex.match(r"\w", text) else ""


def _right_edge(text: str) -> str:
    if not regex.match(r"\w", text[-1]) or _ENDS_IN_CONVERSION.search(text):
        return ""
    return rf"(?!\p{{M}}|{_LETTER})" + (r"(?![.,:/]\d)" if text[-1].isdecimal() else "")


def has_others(translation: str, found: Sequence[Range], kept: Sequence[Range]) -> bool:
    """Return whether a translation has masks and text to keep besides the `kept` ones, or longer than these.

    Numbers are none of them, because models may write words as numbers.

    Args:
        found: Places where [`find_protected`] finds text to keep.
    """
    ranges = [*found, *(match.span() for match in _MASK.finditer(translation))]
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


def merge(ranges: Iterable[Range]) -> list[Range]:
    """Return the ranges in order, with those that overlap as one."""
    merged = list[Range]()
    for start, end in sorted(ranges):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged
