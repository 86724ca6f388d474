"""The body of `POST /translate`: its texts, and options of their translation, declared in `decoding.options`."""

import difflib
import json
import secrets
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, NamedTuple

from vanilla_transformer.decoding.options import (
    BOOLEAN,
    FILTERS,
    RETURNED,
    OptionError,
    TranslationOptions,
    declared_options,
    json_options,
    request_model,
)
from vanilla_transformer.decoding.reranking import WEIGHTS as RERANKING
from vanilla_transformer.decoding.terms import EXACT, SOFT

from .fair_queue import Options
from .limits import LONGEST_REASON, Refusal

ENTRIES = ("text", "model", *json_options(), "format", "stream")
SOFT_TERMS = "soft_terms"  # the feature of a model that was trained with inline terms
LANGUAGES = ("src_lang", "tgt_lang")
RISK = ("mbr", "mbr_samples")
_SAMPLING = ("seed", *FILTERS)  # known with `do_sample` and with `mbr`
_TERMS = ("glossary", "term_mode")
_FEATURES = (*RETURNED, "do_sample", "glossary", "constraints", "target_prefix")
_OTHERS = ("num_return_sequences", "term_mode", "split_sentences", *_SAMPLING, *LANGUAGES, *RISK, *RERANKING)
SEARCHES = tuple(name for name in json_options() if name not in (*_FEATURES, *_OTHERS))
ENGINE_OPTIONS = (*_FEATURES, *SEARCHES)
# Missing features of a model that does not know an option.
_LACKING = {name: f"no {name.removeprefix('return_')}" for name in RETURNED}
_LACKING |= dict.fromkeys(("glossary", "constraints"), "no beam search with constraints")
_LACKING |= dict.fromkeys(LANGUAGES, "only one direction")
_LACKING |= {"do_sample": "no sampling", "split_sentences": "no sentence splitter"}
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
    num_hypotheses: int
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


@cache
def body_model() -> Any:
    """Return the pydantic model of a body. [`Limits`] checks texts, and [`Models`] the name of a model."""
    from pydantic import AfterValidator, Field, WithJsonSchema

    string: dict[str, Any] = {"type": "string"}
    texts = {"anyOf": [string, {"type": "array", "items": string}]}
    name = Annotated[Any, WithJsonSchema(string)]
    return request_model(
        text=(Annotated[Any, WithJsonSchema(texts)], Field(description="A text or several.")),
        model=(name, Field(None, description="Name of the model, if the service has several.")),
        format=(
            Annotated[name, AfterValidator(_check_format)],
            Field("text", description="Format of documents, whose markup is kept."),
        ),
        stream=(
            Annotated[Any, AfterValidator(_check_stream), WithJsonSchema(dict(BOOLEAN.schema))],
            Field(False, description="Answer each text by a server-sent event as soon as it is translated."),
        ),
    )


def parse_body(content: Any, known: Sequence[str] = ()) -> Body:
    """Return the texts and the options of a request.

    Args:
        content: See [`parse_json`].
        known: Names of options that the model knows; `do_sample` stands for all options of sampling. `"format"` is
            among them if the service translates documents, and `SOFT_TERMS` if the model was trained with inline
            terms.

    Raises:
        Refusal: 422; the body is not a JSON object with these entries.
    """
    if not isinstance(content, dict) or "text" not in content:
        raise Refusal(422, "The body must be a JSON object with the entry `text`.")
    unknown = next((name for name in content if name not in ENTRIES), None)
    if unknown is not None:  # which the answer does not repeat
        nearest = difflib.get_close_matches(unknown[:_LONGEST_NAME], ENTRIES, n=1, cutoff=0.0)[0]
        raise Refusal(422, f"The body has an unknown entry. Did you mean `{nearest}`?")
    try:
        return _read(_validate(content), known)
    except ValueError as error:
        raise Refusal(422, str(error)[:LONGEST_REASON]) from error
    except RecursionError as error:  # a message would show a value
        raise Refusal(422, "The body must not be nested so deeply.") from error


def _refuse_constant(name: str) -> None:
    raise Refusal(422, f"The body must be valid JSON, which has no {name}.")


def _validate(content: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of a body that are given; null, false and no constraints are not.

    Raises:
        OptionError: A value is out of range.
    """
    from pydantic import ValidationError

    try:
        body_model().model_validate(content)
    except ValidationError as error:
        raise error.errors(include_url=False, include_input=False)[0]["ctx"]["error"] from None
    given = {name: value for name, value in content.items() if value is not None and value is not False}
    if given.get("constraints") == []:
        del given["constraints"]
    return {**given, "text": content["text"]}


def _read(given: dict[str, Any], known: Sequence[str]) -> Body:
    """Return a request, given its entries.

    Raises:
        ValueError: The model does not know an option, or options do not fit each other or the texts.
    """
    texts, is_stream, format = given.pop("text"), given.pop("stream", False), given.pop("format", "text")
    texts = [texts] if isinstance(texts, str) else texts
    given.pop("model", None)
    _check_known(given, known)
    given |= _seed(given) | _terms(given, known)
    TranslationOptions.resolve(given)  # which checks the options together
    count = given.pop("num_return_sequences", given.get("alternatives", 1))
    constraints = _constraints(given.pop("constraints", None), texts, given)
    prefixes = _prefixes(given.pop("target_prefix", None), texts)
    if format != "text":
        _check_document(given, known, is_alone=constraints is None and prefixes is None and count == 1)
        given["format"] = format
    return Body(texts, count, tuple(sorted(given.items())), constraints, prefixes, is_stream)


def _check_format(value: Any) -> Any:
    if value is not None and not isinstance(value, str):
        raise OptionError(f"`format` must be a string, got {value!r}.")
    return value


def _check_stream(value: Any) -> Any:
    if value is not None and not BOOLEAN.allows(value):
        raise OptionError(f"`stream` must be {BOOLEAN.text}, got {value!r}.")
    return value


def _check_known(given: Mapping[str, Any], known: Sequence[str]) -> None:
    """Check that the model knows the options; [`_seed`] checks the ones of sampling, and [`_terms`] a glossary."""
    for name in given:
        if name in known or name in ("num_return_sequences", *_SAMPLING, *_TERMS):
            continue
        if name in (*RISK, *RERANKING):
            raise OptionError(f"This service has no model or search for `{name}`. Leave it out.")
        lacking = _LACKING.get(name, "no such search")
        raise OptionError(f"The model of this service has {lacking}. Leave `{name}` out.")


def _seed(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the seed of samples if the options ask for them."""
    if "do_sample" not in given and "mbr" not in given:
        alone = next((name for name in _SAMPLING if name in given), None)
        if alone is not None:
            raise OptionError(f"`{alone}` is an option of sampling. Add `do_sample` or leave it out.")
        return {}
    seed = given.get("seed", secrets.randbits(63))
    if abs(seed) > _LARGEST_SEED:
        raise OptionError("`seed` must be an integer of at most 63 bits.")
    return {"seed": seed}


def _terms(given: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
    """Return the glossary, as pairs, and its mode."""
    glossary = given.get("glossary")
    if glossary is None:
        return {}
    if not isinstance(glossary, dict):  # a string would be the path of a file
        raise OptionError("`glossary` must be an object of terms with their translations.")
    mode = given.get("term_mode") or (SOFT if SOFT_TERMS in known else EXACT)
    if mode == SOFT and SOFT_TERMS not in known:
        hint = "Give `term_mode` 'hard', or leave it out."
        raise OptionError(f"The model of this service was not trained with inline terms. {hint}")
    if mode != SOFT and "glossary" not in known:
        raise OptionError(f"The model of this service has {_LACKING['glossary']}. Leave `glossary` out.")
    if mode != SOFT and "do_sample" in given:
        raise OptionError(f"A glossary in the mode {mode} needs beam search. Leave `do_sample` out.")
    return {"glossary": tuple(glossary.items()), "term_mode": mode}


def _constraints(given: Any, texts: Any, options: Mapping[str, Any]) -> list[tuple[str, ...]] | None:
    """Return the phrases of each text, given for all or for each one, or None. The pipeline checks phrases."""
    if given is None:
        return None
    if "do_sample" in options:
        raise OptionError("`constraints` need beam search. Leave `do_sample` out.")
    rule = declared_options()["constraints"].requirement
    rows = _column(given, texts, isinstance(given[0], str), f"{rule}, but there are {len(given)} lists")
    for row in rows:
        if not isinstance(row, list):
            raise OptionError(f"{rule}, got {row!r} for a text.")
    return [tuple(row) for row in rows]


def _prefixes(given: Any, texts: Any) -> list[str] | None:
    """Return the target prefix of each text, given for all or for each one, or None."""
    if given is None:
        return None
    rule = declared_options()["target_prefix"].requirement
    rows = _column(given, texts, isinstance(given, str), f"{rule}, but there are {len(given)}")
    for row in rows:
        if not isinstance(row, str):
            raise OptionError(f"{rule}, got {row!r}.")
    return rows


def _column(given: Any, texts: Any, is_shared: bool, mistake: str) -> list[Any]:
    """Return what each text has for itself."""
    count = len(texts) if isinstance(texts, list) else 0
    if not is_shared and len(given) != count:
        raise OptionError(f"{mistake} for {count} texts.")
    return [given] * count if is_shared else given


def _check_document(given: Mapping[str, Any], known: Sequence[str], is_alone: bool) -> None:
    """Check that the service translates documents, and that there is one translation of each."""
    if "format" not in known:
        raise OptionError("This service translates no documents. Leave `format` out.")
    if not is_alone or given.keys() - {*_TERMS, *LANGUAGES}:
        raise OptionError("With `format` there is one translation. Leave the other options but terms out.")


__all__ = ["ENGINE_OPTIONS", "ENTRIES", "LANGUAGES", "RERANKING", "RETURNED", "RISK", "SEARCHES", "SOFT_TERMS"]
__all__ += ["Body", "body_model", "parse_body", "parse_json"]
