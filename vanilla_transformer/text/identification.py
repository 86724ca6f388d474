"""The language of a text, by a classifier that is installed with the extra `cleaning`."""

from functools import cache
from importlib.util import find_spec
from typing import Any

from vanilla_transformer.machine.imports import requires_extra

from .languages import base_language
from .protection import remove_protected

# A text is in another language if that is this many times as probable as the expected one.
_CLEARLY = 5.0
SHORTEST_IDENTIFIED = 30  # characters; the language of shorter text is a guess
_ALIASES = {"nb": "no"}  # py3langid distinguishes no and nn


@cache
def load_identifier() -> Any:
    """Load the classifier, once per process and its children."""
    with requires_extra("cleaning", "Identifying languages"):
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def language_code(language: str | None) -> str | None:
    """Return the code of a language as the classifier spells it, such as `pt` for `pt_BR`, or None
    if it has none.
    """
    base = base_language(language or "")
    code = _ALIASES.get(base, base)
    return code if code in load_identifier().labels else None


def identify(text: str) -> str:
    """Return the code of the most probable language of a text."""
    return load_identifier().classify(text)[0]


def is_clearly_another(text: str, code: str) -> bool:
    """Return whether another language than `code` is at least five times as probable for a text.

    Protected text does not count, and of a text with fewer than 30 other characters nothing is
    said.
    """
    text = remove_protected(text)
    if len(text) < SHORTEST_IDENTIFIED or identify(text) == code:
        return False
    ranking = load_identifier().rank(text)  # the most probable first
    return ranking[0][1] > _CLEARLY * dict(ranking)[code]


def is_in_another_language(text: str, language: str | None) -> bool:
    """Return whether a text is clearly in another language, as far as the classifier is installed
    and knows this one.
    """
    if language is None or len(text) < SHORTEST_IDENTIFIED or not find_spec("py3langid"):
        return False
    code = language_code(language)
    return code is not None and is_clearly_another(text, code)
