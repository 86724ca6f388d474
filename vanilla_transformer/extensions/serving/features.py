"""The options of requests that a model knows, by their names."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vanilla_transformer.decoding.options import (
    EXACT,
    FILTERS,
    JSON,
    RERANKING,
    RETURNED,
    SOFT,
    TERMS,
    OptionError,
    options_of,
)
from vanilla_transformer.text.inline_terms import knows_inline_terms
from vanilla_transformer.text.languages import find_languages

if TYPE_CHECKING:
    from vanilla_transformer.decoding.translation_pipeline import TranslationPipeline

SOFT_TERMS = "soft_terms"  # the feature of a model that was trained with inline terms
LANGUAGES = ("src_lang", "tgt_lang")
RISK = ("mbr", "mbr_samples")
SAMPLING = ("seed", *FILTERS)  # known with `do_sample` and with `mbr`
_FEATURES = (*RETURNED, "do_sample", "glossary", "constraints", "target_prefix")
_OTHERS = (
    "num_return_sequences",
    "term_mode",
    "split_sentences",
    "protect",
    *SAMPLING,
    *LANGUAGES,
    *RISK,
    *RERANKING,
)
_NAMED = (*_FEATURES, *_OTHERS)
ENGINE_OPTIONS = (*_FEATURES, *(name for name in options_of(JSON) if name not in _NAMED))
# Missing features of a model that does not know an option.
_LACKING = {name: f"no {name.removeprefix('return_')}" for name in RETURNED}
_LACKING |= dict.fromkeys(("glossary", "constraints"), "no beam search with constraints")
_LACKING |= dict.fromkeys(LANGUAGES, "only one direction")
_LACKING |= {"do_sample": "no sampling", "split_sentences": "no sentence splitter"}


def known_options(translate: "TranslationPipeline") -> list[str]:
    """Return the options of requests that a service accepts for a [`TranslationPipeline`]."""
    needed = {"return_alignments": "alignment_heads", "return_confidence": "confidence"}
    config = getattr(translate.model, "config", None)
    has = {name: bool(getattr(config, entry, None)) for name, entry in needed.items()}
    names = list[str]()
    if translate.uses_engine:
        names = [name for name in ENGINE_OPTIONS if has.get(name, True)]
    if names and translate.reranks:
        refused = ("do_sample", "alternatives", "draft", "draft_bias")
        names = [name for name in names if name not in refused]
        names += translate.reranker.options
    elif names:
        names += RISK
    soft_terms = [SOFT_TERMS] if knows_inline_terms(translate.tokenizer) else []
    languages = [] if find_languages(translate.tokenizer) is None else LANGUAGES
    return [*names, "split_sentences", "protect", "format", *soft_terms, *languages]


def check_known(entries: Mapping[str, Any], known: Sequence[str]) -> None:
    """Check that a model knows the options of a request, besides the ones of sampling and of
    terms.
    """
    for name in entries:
        if name in known or name in ("num_return_sequences", *SAMPLING, *TERMS):
            continue
        if name in (*RISK, *RERANKING):
            raise OptionError(f"This service has no model or search for `{name}`. Leave it out.")
        lacking = _LACKING.get(name, "no such search")
        raise OptionError(f"The model of this service has {lacking}. Leave `{name}` out.")


def find_term_mode(mode: str | None, known: Sequence[str]) -> str:
    """Return the mode of the terms of a request, by default the one that fits the model."""
    mode = mode or (SOFT if SOFT_TERMS in known else EXACT)
    if mode == SOFT and SOFT_TERMS not in known:
        hint = "Give `term_mode` 'hard', or leave it out."
        raise OptionError(f"The model of this service was not trained with inline terms. {hint}")
    if mode != SOFT and "glossary" not in known:
        raise OptionError(
            f"The model of this service has {_LACKING['glossary']}. Leave `glossary` out."
        )
    return mode
