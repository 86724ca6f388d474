"""Flags of terms."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class TermArguments:
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
    target_language: str | None = field(
        default=None, metadata={"help": "Code of the language of the translations in TBX, such as de."}
    )


def term_settings(options: TermArguments, source_language: str | None) -> dict[str, Any]:
    """Return the keyword arguments of the pipeline that the flags give, after reading the glossary.

    Raises:
        ValueError: the glossary is malformed, or a flag is invalid or given without it.
        OSError: there is no such file.
    """
    from vanilla_transformer.inference.terms import TermOptions
    from vanilla_transformer.text.glossary import read_glossary

    if options.glossary is None:
        for name in ("term_mode", "target_language", "glossary_casefold"):
            if getattr(options, name):
                raise ValueError(f"`{name}` must be given with `--glossary FILE`, got it without.")
        return {}
    found = read_glossary(options.glossary, source_language, options.target_language, options.glossary_casefold)
    return dict(vars(TermOptions(found, options.term_mode)))


__all__ = ["TermArguments", "term_settings"]
