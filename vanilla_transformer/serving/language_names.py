"""The names of languages, for people, and their codes without a script or a region."""

from babel import Locale, UnknownLocaleError


def language_name(code: str) -> str:
    """Return the name of a language in English, or its code if that is unknown."""
    locale = _parse(code)
    return (locale and locale.english_name) or code


def base_language(code: str) -> str:
    """Return the shortest code of a language, such as `de` for `deu_Latn`, or `code` if that is unknown."""
    locale = _parse(code)
    return locale.language if locale else code


def _parse(code: str) -> Locale | None:
    try:
        return Locale.parse(code.replace("-", "_"))
    except (UnknownLocaleError, ValueError):
        return None
