"""Flags of terms."""

from dataclasses import dataclass, field
from typing import Any

from .language_arguments import DEFAULT_LANGUAGE, LanguageArguments


@dataclass
class TermArguments(LanguageArguments):
    """Flags of a glossary."""

    glossary: str | None = field(
        default=None,
        metadata={
            "help": "Terms and their translations: a line with a term, a tab and its translation each, or TBX (.tbx)."
        },
    )
    glossary_casefold: bool = field(
        default=False, metadata={"help": "Find terms with capitals in any case, too, as the ones without."}
    )
    term_mode: str | None = field(
        default=None,
        metadata={
            "help": "soft: translations are written beside their terms, for models trained with `augment: "
            "{inline_terms: …}`. exact: beam search must use them. hard: likewise, but a model trained for it may "
            "inflect them. Default: soft if the model was trained for it, and otherwise exact."
        },
    )


def term_settings(options: TermArguments) -> dict[str, Any]:
    """Return the keyword arguments of the pipeline that the flags give, after reading the glossary.

    Raises:
        ValueError: the glossary is malformed, or a flag is invalid or given without it.
        OSError: there is no such file.
    """
    from vanilla_transformer.inference.options import check_option
    from vanilla_transformer.text.glossary import read_glossary

    if options.glossary is None:
        for name in ("term_mode", "glossary_casefold"):
            if getattr(options, name):
                raise ValueError(f"`{name}` must be given with `--glossary FILE`, got it without.")
        return {}
    source = options.source_language or DEFAULT_LANGUAGE
    found = read_glossary(options.glossary, source, options.target_language, options.glossary_casefold)
    return {"glossary": found, "term_mode": check_option("term_mode", options.term_mode)}


__all__ = ["TermArguments", "term_settings"]
