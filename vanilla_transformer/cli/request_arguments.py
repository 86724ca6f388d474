"""Flags of the options of a request, which are declared in `decoding.options`, and of the files that give some."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vanilla_transformer.decoding.options import TranslationOptions, flags_of, given_flags

from .language_arguments import DEFAULT_LANGUAGE, LanguageArguments

_TERMS = ("glossary", "term_mode")
# Options of what `translate` alone has: its lines, and several translations of each.
_SENTENCES = (
    "num_return_sequences",
    "split_sentences",
    "protect",
    "target_prefix",
    "prefix_bias",
    "alternatives",
    "constraints",
)
# Flags that are not for documents.
_NOT_OF_DOCUMENTS = (
    "target_prefix",
    "target_prefixes",
    "prefix_bias",
    "alternatives",
    "constraint",
    "tab_constraints",
)

_SAMPLING = ("do_sample", "temperature", "top_k", "top_p", "epsilon_cutoff", "seed")
_CHOICE = ("mbr", "mbr_samples", "rerank_reverse_weight", "rerank_length_weight")

_TermFlags: Any = flags_of(*_TERMS, title="Flags of a glossary.")
_SentenceFlags: Any = flags_of(*_SENTENCES, title="Flags of single sentences.")
_SamplingFlags: Any = flags_of(*_SAMPLING, title="Flags of sampling.")
_ChoiceFlags: Any = flags_of(*_CHOICE, title="Flags of the choice among candidates.")
_SearchFlags: Any = flags_of(
    without=(*_TERMS, *_SENTENCES, *_SAMPLING, *_CHOICE), title="Flags of the search. The checkpoint has the defaults."
)


@dataclass
class SearchArguments(_ChoiceFlags, _SamplingFlags, _SearchFlags):
    """Flags of the search. By default the checkpoint's generation config decides, which is the paper's decoding."""

    @property
    def samples(self) -> bool:
        """Whether random numbers decide about the translations."""
        return self.do_sample or self.mbr is not None


@dataclass
class TermArguments(LanguageArguments, _TermFlags):
    """Flags of a glossary."""

    glossary_casefold: bool = field(
        default=False, metadata={"help": "Find terms with capitals in any case, too, as the ones without."}
    )


@dataclass
class SentenceArguments(_SentenceFlags):
    """Flags of single sentences."""

    target_prefixes: str | None = field(
        default=None, metadata={"help": "File with the prefix of each sentence, line by line; blank for none."}
    )
    tab_constraints: bool = field(
        default=False, metadata={"help": "Each line has its own constraints after the sentence, separated by tabs."}
    )


def request_settings(options: Any) -> dict[str, Any]:
    """Return the keyword arguments of the pipeline that flags give, after reading the glossary.

    Args:
        options: Flags of any class of this module, or of several.

    Raises:
        ValueError: A value is out of range, two flags do not fit each other, or the glossary is malformed.
        OSError: There is no glossary.
    """
    settings = given_flags(options)
    if options.do_sample:
        settings = {"num_beams": 1, **settings}
    if "glossary" in settings:
        settings["glossary"] = _read_glossary(options)
    elif getattr(options, "glossary_casefold", False):
        raise ValueError("`glossary_casefold` must be given with `--glossary FILE`, got it without.")
    TranslationOptions.resolve(settings)  # checks them before the model is loaded
    return settings


def without_terms(settings: dict[str, Any]) -> dict[str, Any]:
    """Return keyword arguments of the pipeline without the glossary."""
    return {name: value for name, value in settings.items() if name not in _TERMS}


def check_sentences(options: SentenceArguments, format: str) -> None:
    """Check that flags of sentences are given for text, and each prefix once.

    Raises:
        ValueError: They are for a document, or given twice.
    """
    given = [name for name in _NOT_OF_DOCUMENTS if getattr(options, name)]
    if format != "text" and given:
        raise ValueError(f"--{given[0]} is for sentences, but `--format` is {format}.")
    if options.target_prefix is not None and options.target_prefixes is not None:
        raise ValueError("Give --target_prefix (for all sentences) or --target_prefixes (a file), not both.")


def split_constraints(options: SentenceArguments, lines: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Return the sentences of lines, and the keyword argument of the pipeline if lines have their own constraints."""
    if not options.tab_constraints:
        return list(lines), {}
    rows = [line.split("\t") for line in lines]
    shared = options.constraint or []
    return [row[0] for row in rows], {"constraints": [[*row[1:], *(shared if row[0].strip() else [])] for row in rows]}


def read_prefixes(options: SentenceArguments, total: int | None) -> list[str] | None:
    """Return the prefix of each sentence, or None if there is no file of them.

    Args:
        total: The number of sentences, if it is known.

    Raises:
        ValueError: The file has another number of lines.
        OSError: It cannot be read.
    """
    if options.target_prefixes is None:
        return None
    from vanilla_transformer.data.readers import read_lines

    lines = read_lines(options.target_prefixes)
    if total is not None and len(lines) != total:
        found = f"{len(lines)} in {options.target_prefixes}"
        raise ValueError(f"There must be a target prefix for each of {total} sentences, got {found}.")
    return lines


def _read_glossary(options: TermArguments) -> Any:
    from vanilla_transformer.text.glossary import read_glossary

    source = options.source_language or DEFAULT_LANGUAGE
    return read_glossary(options.glossary, source, options.target_language, options.glossary_casefold)


__all__ = ["SearchArguments", "SentenceArguments", "TermArguments", "check_sentences", "read_prefixes"]
__all__ += ["request_settings", "split_constraints", "without_terms"]
