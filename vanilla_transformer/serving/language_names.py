"""The names of languages, for people."""

from babel import Locale, UnknownLocaleError


def language_name(code: str) -> str:
    """Return the name of a language in English, or its code if that is unknown."""
    try:
        return Locale.parse(code.replace("-", "_")).english_name or code
    except (UnknownLocaleError, ValueError):
        return code
