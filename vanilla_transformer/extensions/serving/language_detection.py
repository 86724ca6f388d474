"""Names and codes of languages, and the language of a text."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, NamedTuple

from babel import parse_locale
from babel.core import get_global
from typing_extensions import TypedDict  # of which pydantic makes schemas before Python 3.12, too

from vanilla_transformer.text.languages import (
    CLEARLY,
    find_locale,
    language_code,
    load_identifier,
)

_LONGEST_CODE = 35  # characters, as in RFC 5646


def language_name(code: str) -> str:
    """Return the name of a language in English, or its code if that is unknown."""
    locale = find_locale(code)
    return (locale and locale.english_name) or code


def closest_languages(code: str, known: Iterable[str]) -> list[str]:
    """Return the known codes of the language that a code names, the closest first.

    `EN` and `en-US` are `en`, and `de` is `deu_Latn`. A code of another script or region does not
    fit: `zh-TW` is neither `zho_Hans` nor `zh-CN`, and `pt-PT` is not `pt_BR`. A code without one
    fits each.
    """
    if len(code) > _LONGEST_CODE:
        return []
    asked = _subtags(code)
    # With the subtags that CLDR finds the most likely where there are none.
    likely = get_global("likely_subtags").get("_".join(filter(None, asked)), "")
    language, territory, script, *_ = parse_locale(likely) if likely else asked
    usual = _Subtags(language, asked.script or script, asked.territory or territory)

    def distance(fitting: str) -> tuple[Any, ...]:
        subtags = _subtags(fitting)
        pairs = zip(subtags, usual, strict=True)
        unusual = [mine not in (None, other) for mine, other in pairs]
        return fitting != code, subtags != asked, *unusual, subtags.count(None)

    def agrees(other: str) -> bool:
        pairs = zip(_subtags(other), asked, strict=True)
        return all(part == wanted or None in (part, wanted) for part, wanted in pairs)

    return sorted(filter(agrees, known), key=distance)


class _Subtags(NamedTuple):
    """The parts of a code, as far as it names or implies them."""

    language: str
    script: str | None = None
    territory: str | None = None


def _subtags(code: str) -> _Subtags:
    locale = _parse(code)
    if locale is None:
        return _Subtags(code.lower().replace("-", "_"))
    # Babel adds territories to some codes, such as Taiwan to `zho_Hant`, and drops scripts, such as
    # of `srp_Latn`.
    parts = re.split("[-_]", code.title())[1:]
    scripts = (part for part in parts if len(part) == 4 and part.isalpha())
    script = next(scripts, locale.script)
    territory = locale.territory if str(locale.territory).title() in parts else None
    return _Subtags(locale.language, script, territory)


_parse = lru_cache(maxsize=4096)(find_locale)
_ENOUGH = 1000  # characters of a text


class Detected(TypedDict):
    """A language, and how probable it is in percent, as LibreTranslate names them."""

    language: str
    confidence: float


# Returns the languages that a text may be in, the most probable first.
DetectLanguages = Callable[[str], Sequence[Detected]]


def find_detector() -> DetectLanguages | None:
    """Return a function that loads the classifier and detects languages, or None if it is not
    installed.
    """
    return detect_languages if find_spec("py3langid") else None


def detect_languages(text: str) -> list[Detected]:
    """Return all languages that the classifier knows, with their ISO 639-1 codes where they have
    one.
    """
    ranked = load_identifier().rank(text[:_ENOUGH])
    detected = []
    for code, probability in ranked:
        confidence = round(100 * probability, 1)
        detected.append(Detected(language=code, confidence=confidence))
    return detected


def choose_language(
    detected: Sequence[Detected], codes: Sequence[str], others: Sequence[str] = ()
) -> Detected:
    """Return the most probable one of `codes`, which may name a script or a region too, such as
    `deu_Latn`, or of `others` if it is clearly more probable.
    """
    confidences = {language["language"]: language["confidence"] for language in detected}
    known = []
    for code in (*codes, *others):
        confidence = confidences.get(language_code(code) or "", 0.0)
        known.append(Detected(language=code, confidence=confidence))
    least = [1.0] * len(codes) + [CLEARLY] * len(others)
    return max(zip(known, least, strict=True), key=lambda row: row[0]["confidence"] / row[1])[0]
