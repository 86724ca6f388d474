"""Text that must survive a translation: URLs, e-mail addresses, placeholders, emoji and long numbers."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import regex

from .units import UNSPACED_SCRIPTS

Range = tuple[int, int]

_PARTS = {
    "url": r"(?:https?|ftp)://[^\s<>\"]*[^\s<>\".,;:!?'”’»)\]}…]|\bwww\.[^\s<>\"]*[^\s<>\".,;:!?'”’»)\]}…]",
    "email": r"(?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)+",
    # {name}, {{name}}, ${name}, %(name)s, %1$s, %.2f, $1, $name
    "placeholder": r"\{\{[^{}\s]*\}\}|\$?\{[^{}\s]*\}|%\(\w+\)[a-z]|"
    r"%(?:\d+\$)?[-+0#]*+\d*(?:\.\d+)?[sdifgeEuxXc@](?!\w)|\$\d++(?![\d.,]*\d)|\$[A-Za-z_]\w*",
    "emoji": r"\p{Regional_Indicator}{2}|[0-9#*]\uFE0F?\u20E3"
    r"|(?:\p{Extended_Pictographic}[\uFE0F\p{Emoji_Modifier}]*(?:\u200D\p{Extended_Pictographic}[\uFE0F\p{Emoji_Modifier}]*)*)",
    # Models copy short numbers or write them as words, as they should. They break long
    # ones, dates, times and versions.
    "number": r"(?<![\w.,])[+-]?\d+(?:[.,:/\u00A0\u202F'’-]\d+)+(?!\w)|(?<!\w)[+-]?\d{3,}(?!\w)",
}
_PROTECTED = regex.compile("|".join(f"(?:{part})" for part in _PARTS.values()))
# A character that continues a word, in scripts that separate words.
WORD_CHARACTER = rf"[\w--{UNSPACED_SCRIPTS}]"
_BEGINS_WORD = regex.compile(WORD_CHARACTER, regex.V1)
_BEFORE_WORD = regex.compile(rf"(?:{WORD_CHARACTER}|[.,:;!?…\p{{Pe}}\p{{Pf}}])\Z", regex.V1)
_MASK = regex.compile(r"[<｟\[]ph_?\d+[>｠\]]")


def find_protected(text: str) -> list[Range]:
    """Return where text begins and ends that must appear in the translation as it is."""
    return [match.span() for match in _PROTECTED.finditer(text)]


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
    """Return where each of the texts is in a translation, equal ones in order, or None if one is not there as often.

    A text is not found within a longer word or number, nor without the marks of its last character.
    """
    found = dict[str, list[Range]]()
    taken = list[Range]()
    for text in sorted(set(texts), key=len, reverse=True):
        expression = regex.compile(_edge(text[0], "<!") + _loosely(text) + _edge(text[-1], r"!\p{M}|"), regex.V1)
        spans = [match.span() for match in expression.finditer(translation)]
        spans = [(start, end) for start, end in spans if all(end <= low or high <= start for low, high in taken)]
        if len(spans) < Counter(texts)[text]:
            return None
        found[text] = spans
        taken += spans
    return [found[text].pop(0) for text in texts]


def _loosely(text: str) -> str:
    """Return the expression of a text whose white space may be any other, because tokenizers normalize it."""
    return r"\s".join(regex.escape(part) for part in regex.split(r"\s", text))


def _edge(character: str, look: str) -> str:
    return f"(?{look}{WORD_CHARACTER})" if regex.match(r"\w", character) else ""


def merge(ranges: Iterable[Range]) -> list[Range]:
    """Return the ranges in order, with those that overlap as one."""
    merged = list[Range]()
    for start, end in sorted(ranges):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


__all__ = ["Range", "are_two_words", "find_masks", "find_protected", "locate", "mask", "merge"]
