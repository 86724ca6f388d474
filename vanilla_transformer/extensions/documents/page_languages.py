"""The languages that the elements of a document name, such as `<html lang="en">`."""

import re

from vanilla_transformer.text.languages import Direction, find_locale, is_same_language

_THREE_LETTERS = re.compile(r"[a-z]{3}_[A-Z][a-z]{3}")  # as NLLB names languages, such as deu_Latn


class PageLanguages:
    """
    The languages of a document, and what becomes of the attributes that name them.

    Args:
        direction: The source and the target language, as far as they are known.
        page: The language that the document names for itself, which is its source language if no other is given.
    """

    def __init__(self, direction: Direction, page: str | None):
        self._source, target = direction.source or page, direction.target or ""
        locale = find_locale(target) if _THREE_LETTERS.fullmatch(target) else None
        # Documents spell `deu_Latn` as `de`, and `pt_BR` as `pt-BR`.
        self._target = "-".join(filter(None, (locale.language, locale.script))) if locale else target.replace("_", "-")

    def is_other(self, code: str | None) -> bool:
        """Return whether a code names another language than the source language."""
        return bool(code and self._source) and not is_same_language(str(code), str(self._source))

    def translated(self, code: str, is_page: bool) -> str | None:
        """Return the code after translation, or None if it stays.

        Args:
            is_page: Whether it is the language of the whole document, which is translated whatever it is called.
        """
        is_changed = code.strip() and self._target and (is_page or (self._source and not self.is_other(code)))
        return self._target if is_changed else None
