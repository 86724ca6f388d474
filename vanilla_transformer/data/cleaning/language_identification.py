"""Identify languages with py3langid, a naive Bayes classifier of byte n-grams for 140 languages."""

from functools import cache
from typing import Any

from vanilla_transformer.import_utils import requires_extra

# A text is in another language if that is this many times as probable as the expected one. Short texts are uncertain.
_CLEARLY = 5.0
_ALIASES = {"nb": "no"}  # py3langid distinguishes no and nn


@cache
def load_identifier() -> Any:
    """Load the classifier, once per process and its children.

    Raises:
        OSError: py3langid is not installed.
    """
    with requires_extra("cleaning", "Identifying languages"):
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def language_code(language: str | None) -> str | None:
    """Return the code of a language as the classifier spells it, such as `pt` for `pt_BR`, or None if it has none."""
    base = (language or "").replace("_", "-").split("-")[0].lower()
    code = _ALIASES.get(base, base)
    return code if code in load_identifier().labels else None


def rank_languages(text: str) -> list[tuple[str, float]]:
    """Return the codes of all languages and how probable they are for a text, the most probable first."""
    return list(load_identifier().rank(text))


def identify(text: str) -> str:
    """Return the code of the most probable language of a text."""
    return load_identifier().classify(text)[0]


def is_clearly_another(text: str, code: str) -> bool:
    """Return whether another language than `code` is at least five times as probable for a text."""
    if identify(text) == code:
        return False
    ranking = rank_languages(text)
    return ranking[0][1] > _CLEARLY * dict(ranking)[code]
