"""The languages of a request, for models that translate between many."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vanilla_transformer.text.languages import Direction, find_languages

from .search.option_error import OptionError


@dataclass(frozen=True)
class LanguageOptions:
    """
    Options of a request: from which language to which one it translates.

    Args:
        src_lang, tgt_lang: Codes of the tokenizer, such as `en` in M2M-100 and `eng_Latn` in NLLB.
    """

    src_lang: str | None = None
    tgt_lang: str | None = None

    @property
    def reversed(self) -> Direction:
        """Return the direction of a model that translates back."""
        return Direction(self.tgt_lang, self.src_lang)

    @property
    def given(self) -> dict[str, str]:
        """Return the languages that are given, as keyword arguments of the pipeline."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def check(self, tokenizer: Any) -> None:
        """Refuse languages that a tokenizer does not know.

        Raises:
            OptionError: It does not know one, or has no languages.
        """
        if self == LanguageOptions():
            return
        languages = find_languages(tokenizer)
        if languages is None:
            raise OptionError("The model translates from one language to one other. Leave the languages out.")
        try:
            languages.resolve(self.src_lang, self.tgt_lang)
        except ValueError as error:
            raise OptionError(str(error)) from error

    def begin(self, tokenizer: Any, sources: Sequence[Sequence[int]]) -> list[list[int]]:
        """Return the token ids of sources with the tokens of the languages, unless they begin with a tag.

        Raises:
            OptionError: A language is missing or unknown.
        """
        languages = find_languages(tokenizer)
        if languages is None or (languages.is_forced and self == LanguageOptions()):  # by the state of its tokenizer
            return [list(source) for source in sources]
        if all(map(languages.begins_with_tag, sources)):
            return [list(source) for source in sources]
        try:
            tokens = languages.tokens(Direction(self.src_lang, self.tgt_lang)).source
        except ValueError as error:
            raise OptionError(str(error)) from error
        begun = languages.begin(sources, tokens)
        return [
            list(source) if languages.begins_with_tag(source) else longer
            for source, longer in zip(sources, begun, strict=True)
        ]

    def forced(self, tokenizer: Any) -> dict[str, Any]:
        """Return the options of decoding that make a translation begin with its language, as M2M-100 and NLLB need."""
        languages = find_languages(tokenizer)
        if languages is None or not languages.is_forced or self == LanguageOptions():
            return {}
        (token,) = languages.tokens(Direction(self.src_lang, self.tgt_lang)).target
        return {"forced_bos_token_id": token}


__all__ = ["LanguageOptions"]
