"""The body of `POST /translate`: its texts, and the options of their translation."""

import difflib
import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from vanilla_transformer.inference.options import (
    FILTERS,
    TERM_MODES,
    UTILITIES,
    TranslationOptions,
    check_filters,
)
from vanilla_transformer.inference.reranking import WEIGHTS as RERANKING
from vanilla_transformer.inference.terms import EXACT, SOFT

from .fair_queue import Options
from .limits import Refusal

# Entries of the body that turn strings of the answer into objects.
RETURNED = ("return_scores", "return_tokens", "return_alignments", "return_confidence", "return_warnings")
TERM_ENTRIES = ("glossary", "term_mode")
LANGUAGES = ("src_lang", "tgt_lang")
RISK = ("mbr", "mbr_samples")
SEARCHES = ("num_beam_groups", "diversity_penalty", "coverage_penalty", "prefix_bias", "alternatives")
ENTRIES = (
    "text",
    "model",
    "num_return_sequences",
    *RETURNED,
    "do_sample",
    "seed",
    *FILTERS,
    *TERM_ENTRIES,
    "constraints",
    "target_prefix",
    *SEARCHES,
    *LANGUAGES,
    *RISK,
    *RERANKING,
    "split_sentences",
    "format",
    "stream",
)
SOFT_TERMS = "soft_terms"  # the feature of a model that was trained with inline terms
_NUMBER, _STRING = {"type": "number"}, {"type": "string"}
# The body, for `/openapi.json`.
SCHEMA = {
    "type": "object",
    "required": ["text"],
    "additionalProperties": False,
    "properties": {
        "text": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
        "model": _STRING,
        "num_return_sequences": {"type": "integer", "minimum": 1, "default": 1},
        **{
            name: {"type": "boolean", "default": False}
            for name in (*RETURNED, "do_sample", "split_sentences", "stream")
        },
        "seed": {"type": "integer"},
        **dict.fromkeys(FILTERS, _NUMBER),
        "glossary": {"type": "object", "additionalProperties": {"type": "string"}},
        "term_mode": {"type": "string", "enum": list(TERM_MODES)},
        "constraints": {"type": "array", "items": {"anyOf": [_STRING, {"type": "array", "items": _STRING}]}},
        "target_prefix": {"anyOf": [_STRING, {"type": "array", "items": _STRING}]},
        **dict.fromkeys((*SEARCHES, "mbr_samples", *RERANKING), _NUMBER),
        **dict.fromkeys(LANGUAGES, _STRING),
        "mbr": {"type": "string", "enum": list(UTILITIES)},
        "format": {"type": "string"},
    },
}
_LARGEST_SEED = 2**63 - 1
_LONGEST_NAME = 40  # of an entry, to compare with known ones


class Body(NamedTuple):
    """
    A request, whose texts and number of hypotheses are still unchecked.

    Attributes:
        options: Keyword arguments of the service's `translate`, by name.
        constraints: The phrases of each text, or None.
        prefixes: The target prefix of each text, or None.
        is_stream: Whether each text is answered as soon as it is translated.
    """

    texts: Any
    num_hypotheses: Any
    options: Options
    constraints: Sequence[tuple[str, ...]] | None = None
    prefixes: Sequence[str] | None = None
    is_stream: bool = False


def parse_json(body: bytes) -> Any:
    """Return the content of a request.

    Raises:
        Refusal: 422; it is not JSON.
    """
    try:
        return json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise Refusal(422, "The body must be valid JSON in UTF-8.") from error


def parse_body(content: Any, known: Sequence[str] = ()) -> Body:
    """Return the texts and the options of a request.

    Args:
        content: See [`parse_json`].
        known: Names of the `ENTRIES`, besides the first three, that the model accepts; `do_sample` stands for all
            options of sampling. `SOFT_TERMS` is among them if the model was trained with inline terms.

    Raises:
        Refusal: 422; the body is not a JSON object with these entries.
    """
    if not isinstance(content, dict) or "text" not in content:
        raise Refusal(422, "The body must be a JSON object with the entry `text`.")
    unknown = next((name for name in content if name not in ENTRIES), None)
    if unknown is not None:  # which the answer does not repeat
        nearest = difflib.get_close_matches(unknown[:_LONGEST_NAME], ENTRIES, n=1, cutoff=0.0)[0]
        raise Refusal(422, f"The body has an unknown entry. Did you mean `{nearest}`?")
    texts, count = content["text"], content.get("num_return_sequences", 1)
    options: dict[str, Any] = dict.fromkeys([name for name in RETURNED if _flag(content, name, known)], True)
    options |= _sampling(content, known)
    options |= _terms(content, known)
    texts = [texts] if isinstance(texts, str) else texts
    constraints, prefixes = _constraints(content, known, texts), _prefixes(content, known, texts)
    options |= _searches(content, known) | _choices(content, known)
    if _flag(content, "split_sentences", known):
        options["split_sentences"] = True
    if "alternatives" in options:
        if "num_return_sequences" in content:
            raise Refusal(422, "`alternatives` are translations of one text each. Leave `num_return_sequences` out.")
        count = options["alternatives"]
    is_alone = not options.keys() - {*TERM_ENTRIES} and constraints is None and prefixes is None and count == 1
    options |= _format(content, known, is_alone)
    options |= _languages(content, known)
    is_stream = _flag(content, "stream", ["stream"])
    return Body(texts, count, tuple(sorted(options.items())), constraints, prefixes, is_stream)


def _refuse_constant(name: str) -> None:
    raise Refusal(422, f"The body must be valid JSON, which has no {name}.")


def _flag(content: Mapping[str, Any], name: str, known: Sequence[str]) -> bool:
    """Return the value of a boolean entry, which the model must know if it is true."""
    value = content.get(name, False)
    if type(value) is not bool:
        raise Refusal(422, f"`{name}` must be true or false.")
    if value and name not in known:
        lacking = {"do_sample": "sampling", "split_sentences": "sentence splitter"}.get(
            name, name.removeprefix("return_")
        )
        raise Refusal(422, f"The model of this service has no {lacking}. Leave `{name}` out.")
    return value


def _sampling(content: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
    """Return the options of sampling: with a seed, and as [`check_filters`] accepts them."""
    given = {name: content[name] for name in ("seed", *FILTERS) if content.get(name) is not None}
    samples, chooses = _flag(content, "do_sample", known), content.get("mbr") is not None
    if not samples and not chooses:
        if given:
            raise Refusal(422, f"`{next(iter(given))}` is an option of sampling. Add `do_sample` or leave it out.")
        return {}
    seed = given.pop("seed", secrets.randbits(63))
    if type(seed) is not int or abs(seed) > _LARGEST_SEED:
        raise Refusal(422, "`seed` must be an integer of at most 63 bits.")
    try:
        check_filters(given)
    except ValueError as error:
        raise Refusal(422, str(error)[:150]) from error
    return ({"do_sample": True} if samples else {}) | {"seed": seed, **given}


def _terms(content: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
    """Return the glossary, as pairs, and its mode."""
    glossary, given = (content.get(name) for name in TERM_ENTRIES)
    if glossary is not None and not isinstance(glossary, dict):
        raise Refusal(422, "`glossary` must be an object of terms with their translations.")
    try:
        TranslationOptions(glossary=glossary, term_mode=given)
    except ValueError as error:
        raise Refusal(422, str(error)[:150]) from error
    if glossary is None:
        return {}
    mode = given or (SOFT if SOFT_TERMS in known else EXACT)
    if mode == SOFT and SOFT_TERMS not in known:
        hint = "Give `term_mode` 'hard', or leave it out."
        raise Refusal(422, f"The model of this service was not trained with inline terms. {hint}")
    if mode != SOFT and "glossary" not in known:
        raise Refusal(422, "The model of this service has no beam search with constraints. Leave `glossary` out.")
    if mode != SOFT and content.get("do_sample"):
        raise Refusal(422, f"A glossary in the mode {mode} needs beam search. Leave `do_sample` out.")
    return {"glossary": tuple(glossary.items()), "term_mode": mode}


def _constraints(content: Mapping[str, Any], known: Sequence[str], texts: Any) -> list[tuple[str, ...]] | None:
    """Return the phrases of each text, given for all or for each one, or None."""
    given = content.get("constraints")
    if not given and given in (None, []):
        return None
    if "constraints" not in known:
        raise Refusal(422, "The model of this service has no beam search with constraints. Leave `constraints` out.")
    if content.get("do_sample"):
        raise Refusal(422, "`constraints` need beam search. Leave `do_sample` out.")
    count = len(texts) if isinstance(texts, list) else 0
    rows = [given] * count if isinstance(given, list) and isinstance(given[0], str) else given
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows) or len(rows) != count:
        raise Refusal(422, "`constraints` must be a list of phrases, or a list of phrases for each text.")
    if not all(isinstance(phrase, str) for row in rows for phrase in row):
        raise Refusal(422, "Each constraint must be a string.")
    return [tuple(row) for row in rows]


def _searches(content: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
    """Return the options of other searches, which the engine checks."""
    given = {name: content[name] for name in SEARCHES if content.get(name) is not None}
    for name, value in given.items():
        if name not in known:
            raise Refusal(422, f"The model of this service has no such search. Leave `{name}` out.")
        kinds = (int,) if name in ("num_beam_groups", "alternatives") else (int, float)
        if type(value) not in kinds:
            raise Refusal(422, f"`{name}` must be {'an integer' if len(kinds) == 1 else 'a number'}.")
    return given


def _choices(content: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
    """Return the options by which one candidate is chosen: minimum Bayes risk, or the weights of reranking."""
    given = {name: content[name] for name in (*RISK, *RERANKING) if content.get(name) is not None}
    unknown = next((name for name in given if name not in known), None)
    if unknown is not None:
        raise Refusal(422, f"This service has no model or search for `{unknown}`. Leave it out.")
    try:
        TranslationOptions(**given)
    except ValueError as error:
        raise Refusal(422, str(error)[:150]) from error
    if "mbr" in given and content.get("num_return_sequences", 1) != 1:
        raise Refusal(422, "With `mbr` there is one translation. Leave out `num_return_sequences`.")
    return given


def _prefixes(content: Mapping[str, Any], known: Sequence[str], texts: Any) -> list[str] | None:
    """Return the target prefix of each text, given for all or for each one, or None."""
    given = content.get("target_prefix")
    if given is None:
        return None
    if "target_prefix" not in known:
        raise Refusal(422, "The model of this service has no such search. Leave `target_prefix` out.")
    count = len(texts) if isinstance(texts, list) else 0
    rows = [given] * count if isinstance(given, str) else given
    if not isinstance(rows, list) or len(rows) != count or not all(isinstance(each, str) for each in rows):
        raise Refusal(422, "`target_prefix` must be a string, or a list with a string for each text.")
    return rows


def _languages(content: Mapping[str, Any], known: Sequence[str]) -> dict[str, str]:
    """Return the languages, whose codes the model checks."""
    given = {name: content[name] for name in LANGUAGES if content.get(name) is not None}
    for name, value in given.items():
        if name not in known:
            raise Refusal(422, f"The model of this service has only one direction. Leave `{name}` out.")
        if not isinstance(value, str) or len(value) > _LONGEST_NAME:
            raise Refusal(422, f"`{name}` must be the code of a language.")
    return given


def _format(content: Mapping[str, Any], known: Sequence[str], is_alone: bool) -> dict[str, str]:
    """Return the format of documents, if there is one besides `"text"`."""
    name = content.get("format")
    if name in (None, "text"):
        return {}
    if "format" not in known:
        raise Refusal(422, "This service translates no documents. Leave `format` out.")
    if not isinstance(name, str):
        raise Refusal(422, "`format` must be a string.")
    if not is_alone:
        raise Refusal(422, "With `format` there is one translation. Leave the other options but terms out.")
    return {"format": name}


__all__ = ["ENTRIES", "FILTERS", "LANGUAGES", "RERANKING", "RETURNED", "RISK", "SCHEMA", "SEARCHES", "SOFT_TERMS"]
__all__ += ["Body", "parse_body", "parse_json"]
