"""The schema of the service: bodies of requests, made of the options in `decoding.options`, and of
answers.
"""

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi.encoders import jsonable_encoder
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, create_model, model_validator

from vanilla_transformer.decoding.options import JSON as BODY
from vanilla_transformer.decoding.options import (
    MBR_SAMPLES,
    SOFT,
    TERMS,
    OptionError,
    TranslationOptions,
    options_of,
)
from vanilla_transformer.files.formats import TABLE_FORMATS
from vanilla_transformer.user_input.names import find_nearest

from .features import LANGUAGES, SAMPLING, check_known, find_term_mode
from .language_detection import Detected
from .libretranslate import Correction, Question
from .queue import TEXT, TextRequest

JSON, EVENTS = "application/json", "text/event-stream"
FORM, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
_LARGEST_SEED = 2**63 - 1
_LONGEST_NAME = 40  # of an entry, to compare with known ones
_STRING: dict[str, Any] = {"type": "string"}

# --- Requests -------------------------------------------------------------------------------------


_MODEL_HELP = "Name of the model, if the service has several: its languages, such as en-de."


class _Texts(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    # `Limits` checks texts, and `Models` the name of a model.
    text: Annotated[
        Any, WithJsonSchema({"anyOf": [_STRING, {"type": "array", "items": _STRING}]})
    ] = Field(description="A text or several.")
    model: Annotated[Any, WithJsonSchema(_STRING)] = Field(None, description=_MODEL_HELP)
    format: str = Field(TEXT, description="Format of documents, whose markup is kept.")
    columns: str = Field(
        "",
        description="Columns of CSV and TSV that are translated: their names in the first row, or "
        "numbers from 1, with commas between them.",
    )
    existing: str | None = Field(
        None,
        description="A translation of the only text, of messages with keys: it gets what it lacks.",
    )
    previous: list[str] = Field(
        [],
        title="a list of texts",
        description="An earlier version of the only text and its translation, of which all is kept "
        "that did not change. With `existing`, the version that this translates; of a format with "
        "both languages, the translation.",
    )
    stream: bool = Field(
        False, description="Answer each text by a server-sent event as soon as it is translated."
    )


_options: dict[str, Any] = {}
for _name, _declared in options_of(BODY).items():
    # Descriptions name other options as flags.
    _about = re.sub(r"--(\w+)", r"`\1`", str(_declared.description))
    _type = Annotated[_declared.annotation, *_declared.metadata]  # type: ignore[name-defined]
    _options[_name] = _type, Field(_declared.default, description=_about)
_Entries: Any = create_model("_Entries", __base__=_Texts, **_options)


class TranslationRequest(_Entries):
    """Texts, and options of their translation."""

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, content: Any) -> Any:
        """Refuse an unknown entry by itself, not each one of many."""
        if not isinstance(content, dict) or "text" not in content:
            raise OptionError("The body must be a JSON object with the entry `text`.")
        for number, name in enumerate(content, start=1):
            if name in cls.model_fields:
                continue
            # The answer does not repeat its name.
            requirement = "The body has an unknown entry"
            nearest = find_nearest(name[:_LONGEST_NAME], cls.model_fields)
            if nearest:
                raise OptionError(f"{requirement}. Did you mean `{nearest}`?")
            hint = "Correct its name, or leave it out."
            raise OptionError(f"{requirement}, number {number} of {len(content)}. {hint}")
        entries = {}
        for name, value in content.items():
            if value is not None or name == "text":
                entries[name] = value
        return entries

    @model_validator(mode="after")
    def _check_options(self) -> "TranslationRequest":
        given: Any = self
        if given.seed is not None and abs(given.seed) > _LARGEST_SEED:
            raise OptionError("`seed` must be an integer of at most 63 bits.")
        # A string would be the path of a file.
        if given.glossary is not None and not isinstance(given.glossary, dict):
            raise OptionError("`glossary` must be an object of terms with their translations.")
        names = (name for name in SAMPLING if getattr(given, name) is not None)
        alone = next(names, None)
        if alone is not None and not given.do_sample and given.mbr is None:
            raise OptionError(
                f"`{alone}` is an option of sampling. Add `do_sample` or leave it out."
            )
        if given.constraints and given.do_sample:
            raise OptionError("`constraints` need beam search. Leave `do_sample` out.")
        return self

    def resolve(self, client: str, known: Sequence[str], max_samples: int) -> TextRequest:
        """Return the request to a model.

        Args:
            known: Names of options that the model knows; `do_sample` stands for all options of
                sampling. `"format"` is among them if the service translates documents, and
                `SOFT_TERMS` if the model was trained with inline terms.
            max_samples: Maximum number of samples from which `mbr` chooses.
        """
        fields = options_of(BODY)
        options = {}
        for name, value in self:
            is_missing = name not in self.model_fields_set & fields.keys()
            if is_missing or (name == "constraints" and value == []):
                continue
            if value is not False or fields[name].default:
                options[name] = value
        texts = [self.text] if isinstance(self.text, str) else self.text
        check_known(options, known)
        if options.keys() & {"do_sample", "mbr"}:
            options.setdefault("seed", secrets.randbits(63))
        if "glossary" in options:
            mode = find_term_mode(options.get("term_mode"), known)
            if mode != SOFT and "do_sample" in options:
                raise OptionError(
                    f"A glossary in the mode {mode} needs beam search. Leave `do_sample` out."
                )
            options["glossary"] = tuple(options["glossary"].items())
            options["term_mode"] = mode
        num_samples = 0
        if "mbr" in options:
            num_samples = options.setdefault("mbr_samples", min(MBR_SAMPLES, max_samples))
        if num_samples > max_samples:
            actual = f"got {options['mbr_samples']}"
            raise OptionError(
                f"`mbr_samples` may be at most {max_samples} (--max_mbr_samples), {actual}."
            )
        if options.get("num_return_sequences") == 1:
            del options["num_return_sequences"]  # which needs no beam search
        resolved = TranslationOptions.resolve(options)
        constraints = _column(options, "constraints", texts)
        prefixes = _column(options, "target_prefix", texts)
        drafts = _column(options, "draft", texts)
        if drafts is not None:
            drafts = [draft or "" for draft in drafts]
        if self.format != TEXT:
            if "format" not in known:
                raise OptionError("This service translates no documents. Leave `format` out.")
            if options.keys() - {*TERMS, *LANGUAGES, "protect"}:
                raise OptionError(
                    "With `format` there is one translation. Leave the other options but terms out."
                )
        if self.columns and self.format not in TABLE_FORMATS:
            raise OptionError(f"`columns` is for CSV and TSV, but `format` is {self.format}.")
        num_texts = len(texts) if isinstance(texts, list) else 1
        has_versions = self.existing is not None or bool(self.previous)
        if has_versions and (self.format == TEXT or num_texts > 1):
            raise OptionError(
                f"`existing` and `previous` are for one document, got {num_texts} of the format "
                f"{self.format}."
            )
        update = {"constraints": None, "target_prefix": None, "draft": None}
        of_all_texts = resolved.model_copy(update=update)
        return TextRequest(
            texts,
            of_all_texts,
            client,
            self.format,
            constraints=constraints,
            prefixes=prefixes,
            drafts=drafts,
            columns=self.columns,
            existing=self.existing,
            previous=tuple(self.previous),
        )


ENTRIES = tuple(TranslationRequest.model_fields)


_KINDS: dict[str, Any] = {"constraints": list, "draft": str | None}  # of the value of a text


def _column(options: Mapping[str, Any], name: str, texts: Any) -> list[Any] | None:
    """Return what each text has of an option that is given for all texts or for each one, or
    None.
    """
    value = options.get(name)
    if value is None:
        return None
    kind, of_text = _KINDS.get(name, str), ""
    if name == "constraints":
        of_text = " for a text"
    count = len(texts) if isinstance(texts, list) else 0
    is_one_row = kind is list and isinstance(value[0], str)
    is_shared = isinstance(value, str) or is_one_row
    rows = [value] * count if is_shared else value
    requirement = f"`{name}` must be {options_of()[name].title}"
    if len(rows) != count:
        raise OptionError(f"{requirement}, but there are {len(rows)} for {count} texts.")
    for row in rows:
        if not isinstance(row, kind):
            raise OptionError(f"{requirement}, got {row!r}{of_text}.")
    return rows


# --- Answers --------------------------------------------------------------------------------------


class Translations(BaseModel):
    """The translations of each text, best first, with what the request asks for, such as
    `score`.
    """

    translations: list[list[str | dict[str, Any]]]


class TranslatedText(BaseModel):
    """The answer of LibreTranslate: of a text, or of each one of a list."""

    translatedText: str | list[str]
    alternatives: list[str | list[str]] = []
    detectedLanguage: Detected | list[Detected] = []  # type: ignore[assignment]


class ModelFeatures(BaseModel):
    """A model and the options of requests that it knows."""

    name: str
    features: list[str]


class Language(BaseModel):
    """A language, its name in English, and the languages into which texts of it are translated."""

    code: str
    name: str
    targets: list[str]


class Health(BaseModel):
    """The state of the service, and of each one of several models."""

    status: Annotated[
        str, WithJsonSchema({"enum": ["ok", "slow", "broken", "loading", "not loaded"]})
    ]
    failures: int
    last_failure: str | None
    version: str = ""
    model: str = ""
    sha256: str | None = None
    models: dict[str, "Health"] = {}


# --- Descriptions of the paths, for FastAPI -------------------------------------------------------

_SENTENCE, _TRANSLATION = "The child sleeps.", "Das Kind schläft."
_QUESTION = {"q": _SENTENCE, "source": "en", "target": "de"}
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
_STREAM = {"text": [_SENTENCE], "stream": True}
_EVENT = 'data: {"position": 0, "translations": ["Das Kind schläft."]}\n\n'
_REFUSALS = {
    400: "Refused, in the form of LibreTranslate.",
    401: "There is no valid API key.",
    403: "The same, in the form of LibreTranslate.",
    404: "There is no such model or file.",
    408: "The body arrives too slowly.",
    413: "The body is too large.",
    422: "The request is beyond a limit or does not fit the model.",
    500: "The model failed, or cannot be loaded.",
    429: "Too many texts wait, or the models in memory are at work.",
    503: "The model is still loading, the time is up, or the service is shutting down.",
}
# FastAPI knows models of fields only.
_MODELS: dict[str, type[BaseModel]] = {
    "TranslationRequest": TranslationRequest,
    "Question": Question,
    "Correction": Correction,
}
BODIES = {
    name: jsonable_encoder(model.model_json_schema(), exclude_none=True)
    for name, model in _MODELS.items()
}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe answers whose `detail` is a reason, or whose `error` is in the form of
    LibreTranslate.
    """
    answers: dict[int | str, dict[str, Any]] = {}
    for status in statuses:
        answers[status] = {"description": _REFUSALS[status], "model": dict[str, str]}
    return answers


def _content(examples: Mapping[str, Any], **schema: Any) -> dict[str, Any]:
    named = {name: {"value": value} for name, value in examples.items()}
    return {"examples": named, **schema}


def _bodies(
    examples: Mapping[str, Any], *names: str, form_type: str = "Question"
) -> dict[str, Any]:
    """Describe the bodies of a path: JSON of some kinds, and forms of LibreTranslate."""
    names = (*names, form_type)
    references = [{"$ref": f"#/components/schemas/{name}"} for name in names]
    example = {"LibreTranslate": examples["LibreTranslate"]}
    form = _content(example, schema=references[-1])
    body = _content(examples, schema={"anyOf": references})
    content = {JSON: body, FORM: form, MULTIPART: form}
    return {"requestBody": {"required": True, "content": content}}


TRANSLATE: dict[str, Any] = {
    "summary": "Translate texts",
    "openapi_extra": _bodies(
        {name: request for name, (request, _) in _TEXTS.items()} | {"stream": _STREAM},
        "TranslationRequest",
    ),
    "responses": {
        200: {
            "description": "The answer.",
            "model": Translations | TranslatedText,
            "content": {
                JSON: _content({name: answer for name, (_, answer) in _TEXTS.items()}),
                EVENTS: _content({"stream": _EVENT}, schema=_STRING),
            },
        },
        **refusals(400, 401, 403, 408, 413, 422, 429, 500, 503),
    },
}
DETECT: dict[str, Any] = {
    "summary": "Detect the language of a text",
    "openapi_extra": _bodies({"LibreTranslate": {"q": _SENTENCE}}),
    "response_model": list[Detected],
    "responses": refusals(400, 403, 408, 413, 422),
}
_FILE = {"type": "string", "format": "binary"}
_QUESTION_ENTRIES = BODIES["Question"]["properties"]
_FILE_FORM = {
    "type": "object",
    "properties": {
        "file": {**_FILE, "description": "A document, or text in UTF-8."},
        "existing": {**_FILE, "description": _QUESTION_ENTRIES["existing"]["description"]},
        "previous": {
            "type": "array",
            "items": _FILE,
            "maxItems": 2,
            "description": _QUESTION_ENTRIES["previous"]["description"],
        },
        **{name: _QUESTION_ENTRIES[name] for name in ("source", "target", "columns", "api_key")},
    },
    "required": ["file", "source", "target"],
}
_CORRECTION = _QUESTION | {"s": _TRANSLATION}
SUGGEST: dict[str, Any] = {
    "summary": "Suggest the translation that later requests get",
    "openapi_extra": _bodies({"LibreTranslate": _CORRECTION}, form_type="Correction"),
    "response_model": dict[str, Any],
    "responses": refusals(400, 403, 408, 413, 422, 429, 500, 503),
}
SUGGESTIONS: dict[str, Any] = {
    "summary": "List the suggestions of the API key",
    "response_model": list[dict[str, Any]],
    "responses": refusals(401),
}
DELETED: dict[str, Any] = {
    "summary": "Delete a suggestion",
    "response_model": dict[str, Any],
    "responses": refusals(401, 404, 422),
}
TRANSLATE_FILE: dict[str, Any] = {
    "summary": "Translate a file in the format that the ending of its name says",
    "openapi_extra": {
        "requestBody": {"required": True, "content": {MULTIPART: {"schema": _FILE_FORM}}}
    },
    "response_model": dict[str, str],
    "responses": refusals(400, 403, 408, 413, 422, 429, 500, 503),
}
