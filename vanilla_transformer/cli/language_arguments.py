"""Flags of the languages of a text."""

from dataclasses import dataclass, field
from typing import Any

DEFAULT_LANGUAGE = "en"  # of abbreviations and of terms in TBX


@dataclass
class LanguageArguments:
    """Flags of the languages."""

    source_language: str | None = field(
        default=None,
        metadata={
            "help": "Code of the language of the text, such as en: for models that translate from several, for its "
            "abbreviations, and for terms in TBX (default: en)."
        },
    )
    target_language: str | None = field(
        default=None,
        metadata={
            "help": "Code of the language of the translations, such as de: for models that translate into several, "
            "and for terms in TBX."
        },
    )


def language_settings(tokenizer: Any, options: Any) -> dict[str, str]:
    """Return the keyword arguments of the pipeline that the languages of a text give.

    Args:
        options: Flags, of which `source_language` and `target_language` are read, and `glossary` if it is there.

    Raises:
        ValueError: A language is missing or unknown; or a target language is given for a model that has only one, and
            for no glossary.
    """
    from vanilla_transformer.decoding.segments import check_languages
    from vanilla_transformer.text.languages import Direction, find_languages

    if find_languages(tokenizer) is None:
        if options.target_language is not None and getattr(options, "glossary", None) is None:
            rule = "is for models that translate into several languages and for `--glossary FILE`, got neither"
            raise ValueError(f"`target_language` {rule}. Leave it out.")
        return {}
    check_languages(tokenizer, Direction(options.source_language, options.target_language))
    given = {"src_lang": options.source_language, "tgt_lang": options.target_language}
    return {name: value for name, value in given.items() if value is not None}


__all__ = ["DEFAULT_LANGUAGE", "LanguageArguments", "language_settings"]
