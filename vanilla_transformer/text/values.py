"""Values of a text, which its translation has too: numbers, placeholders, URLs and so on."""

from collections import Counter

import regex

from .protection import Range, find_kept, find_protected, locate, mask, merge, overlapping
from .translation_warnings import has_other_numbers

_NUMBER = regex.compile(r"\d++(?:[.,:]\d++)*+")


def is_faithful(source: str, target: str) -> bool:
    """Return whether a translation has the numbers of its source, maybe in words or with other
    separators, and its placeholders, URLs and so on.
    """
    return locate(find_kept(source), target) is not None and not has_other_numbers(source, target)


def replace_values(translation: str, source: str, text: str) -> str:
    """Return the translation of a source with the values of a text instead of the ones of the
    source, and without them where they do not correspond one to one.
    """
    wanted, known = _values(text), _values(source)
    replaced = dict[str, str]()
    if Counter(wanted) == Counter(known):
        if is_faithful(source, translation):
            return translation
    elif len(wanted) == len(known):
        pairs = {*zip(known, wanted, strict=True)}
        if len(pairs) == len({*known}) == len({*wanted}):
            replaced = dict(pairs)
    ranges, values, allowed = _find_values(translation), [], {*wanted}
    for start, end in ranges:
        value = translation[start:end]
        value = replaced.get(value, value)
        values.append(value if value in allowed else "")
    return mask(translation, ranges, values)[0]


def _values(text: str) -> list[str]:
    return [text[start:end] for start, end in _find_values(text)]


def _find_values(text: str) -> list[Range]:
    """Return where a text has numbers, placeholders and so on."""
    protected = find_protected(text)
    ranges = [*protected]
    for match in _NUMBER.finditer(text):
        if not overlapping(match.span(), protected):
            ranges.append(match.span())
    return merge(ranges)
