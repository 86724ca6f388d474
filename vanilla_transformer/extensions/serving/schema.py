"""The schema of the service: bodies of requests, made of the options in `decoding.options`, and of answers."""

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from fastapi import Response
from fastapi.responses import PlainTextResponse
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    create_model,
    field_validator,
    model_validator,
)

from vanilla_transformer.decoding.options import JSON as BODY
from vanilla_transformer.decoding.options import (
    SOFT,
    TERMS,
    OptionError,
    TranslationOptions,
    options_of,
)
from vanilla_transformer.utils.schemas import explain
from vanilla_transformer.utils.user_input import find_nearest

from .features import LANGUAGES, SAMPLING, check_known, find_term_mode
from .limits import LONGEST_REASON, Refusal
from .queue import Options

JSON, EVENTS = "application/json", "text/event-stream"
FORM, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
_OF_FORMS = ("source", "target", "api_key")  # entries that are texts
_LARGEST_SEED = 2**63 - 1
_LONGEST_NAME = 40  # of an entry, to compare with known ones
_STRING: dict[str, Any] = {"type": "string"}

# --- Requests -------------------------------------------------------------------------------------------------------


class ResolvedRequest(NamedTuple):
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
    """Return the content of a request."""
    try:
        return json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise Refusal(422, "The body must be valid JSON in UTF-8.") from error


def _refuse_constant(name: str) -> None:
    raise Refusal(422, f"The body must be valid JSON, which has no {name}.")


_MODEL_HELP = (
    "Name of the model, if the service has several: its languages, such as en-de. With a pivot, also languages that "
    "two models translate one after the other."
)


class _Texts(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    # `Limits` checks texts, and `Models` the name of a model.
    text: Annotated[Any, WithJsonSchema({"anyOf": [_STRING, {"type": "array", "items": _STRING}]})] = Field(
        description="A text or several."
    )
    model: Annotated[Any, WithJsonSchema(_STRING)] = Field(None, description=_MODEL_HELP)
    format: str = Field("text", description="Format of documents, whose markup is kept.")
    stream: bool = Field(False, description="Answer each text by a server-sent event as soon as it is translated.")


def _entry(name: str) -> tuple[Any, Any]:
    """Return the type and the declaration of the entry of an option."""
    declared = options_of()[name]
    about = re.sub(r"--(\w+)", r"`\1`", str(declared.description))  # which names other options as flags
    return Annotated[declared.annotation, *declared.metadata], Field(declared.default, description=about)


_options: dict[str, Any] = {name: _entry(name) for name in options_of(BODY)}
_Entries: Any = create_model("_Entries", __base__=_Texts, **_options)


class TranslationRequest(_Entries):
    """Texts, and options of their translation."""

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, content: Any) -> Any:
        """Refuse an unknown entry by itself, not each one of many."""
        if not isinstance(content, dict) or "text" not in content:
            raise OptionError("The body must be a JSON object with the entry `text`.")
        unknown = next((name for name in content if name not in cls.model_fields), None)
        if unknown is not None:  # which the answer does not repeat
            nearest = find_nearest(unknown[:_LONGEST_NAME], cls.model_fields)
            hint = f"Did you mean `{nearest}`?" if nearest else "Correct its name, or leave it out."
            raise OptionError(f"The body has an unknown entry. {hint}")
        return {name: value for name, value in content.items() if value is not None or name == "text"}

    @field_validator("seed")
    @classmethod
    def _check_seed(cls, seed: Any) -> Any:
        if abs(seed) > _LARGEST_SEED:
            raise OptionError("`seed` must be an integer of at most 63 bits.")
        return seed

    @field_validator("glossary")
    @classmethod
    def _check_glossary(cls, glossary: Any) -> Any:
        if not isinstance(glossary, dict):  # a string would be the path of a file
            raise OptionError("`glossary` must be an object of terms with their translations.")
        return glossary

    @model_validator(mode="after")
    def _check_search(self) -> "TranslationRequest":
        given: Any = self
        alone = next((name for name in SAMPLING if getattr(given, name) is not None), None)
        if alone is not None and not given.do_sample and given.mbr is None:
            raise OptionError(f"`{alone}` is an option of sampling. Add `do_sample` or leave it out.")
        if given.constraints and given.do_sample:
            raise OptionError("`constraints` need beam search. Leave `do_sample` out.")
        return self

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "TranslationRequest":
        """Return the request of some content."""
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            raise Refusal(422, explain_refusal(error.errors())) from error

    def resolve(self, known: Sequence[str] = ()) -> ResolvedRequest:
        """Return the texts and the options for a model.

        Args:
            known: Names of options that the model knows; `do_sample` stands for all options of sampling. `"format"`
                is among them if the service translates documents, and `SOFT_TERMS` if the model was trained with
                inline terms.
        """
        try:
            return _resolve(self._given(), known)
        except ValueError as error:
            raise Refusal(422, str(error)[:LONGEST_REASON]) from error

    def _given(self) -> dict[str, Any]:
        """Return the entries that are given, besides the model; null, no constraints and a usual false are not."""
        fields = type(self).model_fields
        return {
            name: value
            for name, value in self
            if name in self.model_fields_set - {"model"}
            and (value is not False or fields[name].default)
            and (value is not None or name == "text")
            and (name != "constraints" or value != [])
        }


ENTRIES = tuple(TranslationRequest.model_fields)


def explain_refusal(errors: Sequence[Any]) -> str:
    """Return why a body is refused, given the errors of its validation."""
    first, fields = errors[0], TranslationRequest.model_fields | options_of()
    name, kind = first["loc"][-1], first["type"]
    if name == "file":
        return "`file` must be given: a file of a form, whose name says its format."
    if kind == "missing":
        return f"`{name}` must be given."
    if name in _OF_FORMS and kind == "string_unicode":
        return f"`{name}` must be UTF-8, got other bytes."
    if name in _OF_FORMS:
        return f"`{name}` must be a text, not a file."
    return explain(first, fields)[:LONGEST_REASON]


def _resolve(given: dict[str, Any], known: Sequence[str]) -> ResolvedRequest:
    """Return a request, given its entries."""
    texts, is_stream, format = given.pop("text"), given.pop("stream", False), given.pop("format", "text")
    texts = [texts] if isinstance(texts, str) else texts
    check_known(given, known)
    given |= _seed(given) | _terms(given, known)
    TranslationOptions.resolve(given)  # which checks the options together
    count = given.pop("num_return_sequences", given.get("alternatives", 1))
    constraints, prefixes = _rows("constraints", list, texts, given), _rows("target_prefix", str, texts, given)
    if format != "text":
        _check_document(given, known, is_alone=constraints is None and prefixes is None and count == 1)
        given["format"] = format
    return ResolvedRequest(texts, count, tuple(sorted(given.items())), constraints, prefixes, is_stream)


def _seed(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the seed of samples if the options ask for them."""
    is_random = "do_sample" in given or "mbr" in given
    return {"seed": given.get("seed", secrets.randbits(63))} if is_random else {}


def _terms(given: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
    """Return the glossary, as pairs, and its mode."""
    if "glossary" not in given:
        return {}
    mode = find_term_mode(given.get("term_mode"), known)
    if mode != SOFT and "do_sample" in given:
        raise OptionError(f"A glossary in the mode {mode} needs beam search. Leave `do_sample` out.")
    return {"glossary": tuple(given["glossary"].items()), "term_mode": mode}


def _rows(name: str, kind: type, texts: Any, options: dict[str, Any]) -> list[Any] | None:
    """Take an option that is given for all texts or for each one, and return what each text has of it, or None."""
    given = options.pop(name, None)
    if given is None:
        return None
    count = len(texts) if isinstance(texts, list) else 0
    rows = [given] * count if isinstance(given, str) or (kind is list and isinstance(given[0], str)) else given
    lists, place = (" lists", " for a text") if kind is list else ("", "")
    rule = f"`{name}` must be {options_of()[name].title}"
    if len(rows) != count:
        raise OptionError(f"{rule}, but there are {len(rows)}{lists} for {count} texts.")
    for row in rows:
        if not isinstance(row, kind):
            raise OptionError(f"{rule}, got {row!r}{place}.")
    return rows


def _check_document(given: Mapping[str, Any], known: Sequence[str], is_alone: bool) -> None:
    """Check that the service translates documents, and that there is one translation of each."""
    if "format" not in known:
        raise OptionError("This service translates no documents. Leave `format` out.")
    if not is_alone or given.keys() - {*TERMS, *LANGUAGES, "protect"}:
        raise OptionError("With `format` there is one translation. Leave the other options but terms out.")


# --- Answers --------------------------------------------------------------------------------------------------------


class DetailedTranslation(BaseModel):
    """A translation with what the request asks for, such as `score`."""

    model_config = ConfigDict(extra="allow")
    text: str


class Translations(BaseModel):
    """The translations of each text, best first."""

    translations: list[list[str | DetailedTranslation]]


class DetectedLanguage(BaseModel):
    """A language, and how probable it is in percent."""

    language: str
    confidence: float


class TranslatedText(BaseModel):
    """The answer of LibreTranslate: of a text, or of each one of a list."""

    translatedText: str | list[str]
    alternatives: list[str | list[str]] = []
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] = []


class TranslatedFileUrl(BaseModel):
    """Where a translated file is downloaded."""

    translatedFileUrl: str


class Refused(BaseModel):
    """Why a request is refused."""

    detail: str


class RefusedQuestion(BaseModel):
    """The same in the form of LibreTranslate."""

    error: str


class ModelFeatures(BaseModel):
    """A model and the options of requests that it knows."""

    name: str
    features: list[str]


class NamedLanguage(BaseModel):
    """A language and its name in English."""

    code: str
    name: str


class Language(NamedLanguage):
    """A language and those into which texts of it are translated."""

    targets: list[str]


class FrontendSettings(BaseModel):
    """Settings for the pages that visitors see, in the form of LibreTranslate."""

    charLimit: int
    frontendTimeout: int
    apiKeys: bool
    keyRequired: bool
    suggestions: bool
    filesTranslation: bool
    supportedFilesFormat: list[str]
    language: dict[str, NamedLanguage]


class State(BaseModel):
    """The state of a model: "ok", "slow", "broken", "loading" or "not loaded"."""

    status: Annotated[str, WithJsonSchema({"enum": ["ok", "slow", "broken", "loading", "not loaded"]})]
    failures: int
    last_failure: str | None


class Health(State):
    """The state of the service, and of each one of several models."""

    models: dict[str, State] = {}


# --- Descriptions of the paths, for FastAPI -------------------------------------------------------------------------

_SENTENCE, _TRANSLATION = "The child sleeps.", "Das Kind schläft."
_QUESTION = {"q": _SENTENCE, "source": "en", "target": "de"}
_SETTINGS = {
    "charLimit": 5000,
    "frontendTimeout": 500,
    "apiKeys": False,
    "keyRequired": False,
    "suggestions": False,
    "filesTranslation": True,
    "supportedFilesFormat": [".txt", ".html"],
    "language": {"source": {"code": "en", "name": "English"}, "target": {"code": "de", "name": "German"}},
}
_SCORED = {"text": _TRANSLATION, "score": -0.38, "log_probability": -0.52}
# Requests and their answers.
_TEXTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "text": ({"text": _SENTENCE}, {"translations": [[_TRANSLATION]]}),
    "texts of a model": (
        {"text": [_SENTENCE, "Where is the dog?"], "model": "en-de"},
        {"translations": [[_TRANSLATION], ["Wo ist der Hund?"]]},
    ),
    "scores": ({"text": _SENTENCE, "return_scores": True}, {"translations": [[_SCORED]]}),
    "LibreTranslate": (_QUESTION, {"translatedText": _TRANSLATION}),
    "LibreTranslate with alternatives": (
        _QUESTION | {"alternatives": 1},
        {"translatedText": _TRANSLATION, "alternatives": ["Ein Kind schläft."]},
    ),
}
_REFUSALS = {
    400: "Refused, in the form of LibreTranslate.",
    401: "There is no valid API key.",
    403: "The same, in the form of LibreTranslate.",
    404: "There is no such model or file.",
    408: "The body arrives too slowly.",
    413: "The body is too large.",
    422: "The request is beyond a limit or does not fit the model.",
    500: "The model failed, or cannot be loaded.",
    503: "Too many texts wait, the model is still loading, or the time is up.",
}
# FastAPI drops entries that are None, so an example has a failure.
_WELL = {"status": "ok", "failures": 1, "last_failure": "RuntimeError"}


def _examples(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: {"value": value} for name, value in values.items()}


def _answer(model: Any, examples: Mapping[str, Any], about: str = "The answer.") -> dict[str, Any]:
    return {"description": about, "model": model, "content": {JSON: {"examples": _examples(examples)}}}


def _refusals(*statuses: int) -> dict[int, Any]:
    return {status: {"description": _REFUSALS[status], "model": Refused | RefusedQuestion} for status in statuses}


def _form(**examples: Any) -> dict[str, Any]:
    """Return the description of a form of LibreTranslate, besides JSON."""
    content = {"schema": {"$ref": "#/components/schemas/Question"}, "examples": _examples(examples)}
    return {"requestBody": {"content": {FORM: content, MULTIPART: content}}}


REQUESTS = _examples(
    {name: request for name, (request, _) in _TEXTS.items()} | {"stream": {"text": [_SENTENCE], "stream": True}}
)
QUESTIONS = _examples({"LibreTranslate": {"q": _SENTENCE}})
_ANSWERS = _answer(Translations | TranslatedText, {name: found for name, (_, found) in _TEXTS.items()})
_EVENT = 'data: {"position": 0, "translations": ["Das Kind schläft."]}\n\n'
_ANSWERS["content"][EVENTS] = {"schema": _STRING, "examples": _examples({"stream": _EVENT})}
# Arguments of the paths of FastAPI.
TRANSLATE: dict[str, Any] = {
    "summary": "Translate texts",
    "openapi_extra": _form(LibreTranslate=_QUESTION),
    "responses": {200: _ANSWERS, **_refusals(400, 401, 403, 408, 413, 422, 500, 503)},
}
MODEL: dict[str, Any] = {
    "summary": "Load a model, and list the options of requests that it knows",
    "responses": {
        200: _answer(ModelFeatures, {"model": {"name": "en-de", "features": ["return_scores", "format"]}}),
        **_refusals(401, 404, 422, 500, 503),
    },
}
DETECT: dict[str, Any] = {
    "summary": "Detect the language of a text",
    "openapi_extra": _form(LibreTranslate={"q": _SENTENCE}),
    "responses": {
        200: _answer(list[DetectedLanguage], {"LibreTranslate": [{"language": "en", "confidence": 42.0}]}),
        **_refusals(400, 403, 408, 413, 422),
    },
}
_URL = "http://localhost:8000/download_file/dG9rZW4.page.de.html"
TRANSLATE_FILE: dict[str, Any] = {
    "summary": "Translate a file in the format that the ending of its name says",
    "responses": {
        200: _answer(TranslatedFileUrl, {"LibreTranslate": {"translatedFileUrl": _URL}}),
        **_refusals(400, 403, 408, 413, 422, 500, 503),
    },
}
DOWNLOAD_FILE: dict[str, Any] = {
    "summary": "Download a translated file",
    "response_class": Response,
    "responses": {200: {"content": {"application/octet-stream": {"schema": _STRING}}}, **_refusals(404, 422)},
}
LANGUAGE_LIST: dict[str, Any] = {
    "summary": "List the languages",
    "responses": {200: _answer(list[Language], {"languages": [{"code": "en", "name": "English", "targets": ["de"]}]})},
}
SETTINGS: dict[str, Any] = {
    "summary": "Describe the service for pages",
    "responses": {200: _answer(FrontendSettings, {"settings": _SETTINGS})},
}
_SEVERAL = _WELL | {"models": {"en-de": _WELL, "de-en": _WELL | {"status": "not loaded", "failures": 0}}}
HEALTH: dict[str, Any] = {
    "summary": "Describe the state of the models",
    "responses": {
        200: _answer(Health, {"one model": _WELL, "several models": _SEVERAL}),
        503: _answer(Health, {"slow": _WELL | {"status": "slow"}}, "A model is slow or broken."),
    },
}
_SAMPLE = 'texts{model="en-de"} 2.0\n'
METRICS: dict[str, Any] = {
    "summary": "Export metrics for Prometheus",
    "response_class": PlainTextResponse,
    "responses": {
        200: {"content": {"text/plain": {"examples": _examples({"metrics": _SAMPLE})}}},
        **_refusals(401),
    },
}
