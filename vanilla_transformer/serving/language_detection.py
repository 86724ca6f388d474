"""Names of languages, and the language of a text."""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import NamedTuple

from vanilla_transformer.data.cleaning_rules import language_code, rank_languages
from vanilla_transformer.text.languages import find_locale


def language_name(code: str) -> str:
    """Return the name of a language in English, or its code if that is unknown."""
    locale = find_locale(code)
    return (locale and locale.english_name) or code


_ENOUGH = 1000  # characters of a text


class Detected(NamedTuple):
    """A language, and how probable it is in percent. The names are LibreTranslate's."""

    language: str
    confidence: float


# Returns the languages that a text may be in, the most probable first.
DetectLanguages = Callable[[str], Sequence[Detected]]


def find_detector() -> DetectLanguages | None:
    """Return a function that loads the classifier and detects languages, or None if it is not installed."""
    return detect_languages if find_spec("py3langid") else None


def detect_languages(text: str) -> list[Detected]:
    """Return all languages that the classifier knows, with their ISO 639-1 codes where they have one."""
    return [Detected(code, round(100 * probability, 1)) for code, probability in rank_languages(text[:_ENOUGH])]


def choose_language(detected: Sequence[Detected], codes: Sequence[str]) -> Detected:
    """Return the most probable one of `codes`, which may name a script or a region too, such as `deu_Latn`."""
    confidences = dict(detected)
    known = [Detected(code, confidences.get(language_code(code) or "", 0.0)) for code in codes]
    return max(known, key=lambda each: each.confidence)
