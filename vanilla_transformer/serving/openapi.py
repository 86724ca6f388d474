"""The OpenAPI description of the paths of the service, with examples of requests and of their answers."""

from typing import Any

from . import libretranslate
from .request_body import body_model

Schema = dict[str, Any]
_JSON, _EVENTS = "application/json", "text/event-stream"
_STRING: Schema = {"type": "string"}
_SENTENCE, _TRANSLATION = "The child sleeps.", "Das Kind schläft."


def _list_of(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def _any_of(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def _object(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    return {"type": "object", "required": list(required), "properties": required | (optional or {})}


def _content(schema: Schema, examples: dict[str, Any]) -> dict[str, Any]:
    return {"schema": schema, "examples": {name: {"value": value} for name, value in examples.items()}}


def _answers(ok: dict[str, Any], others: dict[int, tuple[str, dict[str, Any]]] | None = None) -> dict[str, Any]:
    """Return the arguments of a path of FastAPI for the contents of its answers, by type."""
    rows = {200: ("The answer.", ok)} | (others or {})
    return {"responses": {status: {"description": about, "content": kinds} for status, (about, kinds) in rows.items()}}


_HYPOTHESIS = _any_of(_STRING, _object({"text": _STRING}))
_TRANSLATIONS = _object({"translations": _list_of(_list_of(_HYPOTHESIS))})
_DETECTED = _object({"language": _STRING, "confidence": {"type": "number"}})
_TRANSLATED = _object(
    {"translatedText": _any_of(_STRING, _list_of(_STRING))},
    {
        "alternatives": _list_of(_any_of(_STRING, _list_of(_STRING))),
        "detectedLanguage": _any_of(_DETECTED, _list_of(_DETECTED)),
    },
)
_QUESTION = {"q": _SENTENCE, "source": "en", "target": "de"}
_SCORED = {"text": _TRANSLATION, "score": -0.31, "log_probability": -0.52}
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
    400: "Refused, in the form of LibreTranslate",
    401: "There is no valid API key",
    403: "The same, in the form of LibreTranslate",
    408: "The body arrives too slowly",
    413: "The body is too large",
    422: "The request is beyond a limit or does not fit the model",
    500: "The model failed, or cannot be loaded",
    503: "Too many texts wait, or the time is up",
}
_REFUSAL = _any_of(_object({"detail": _STRING}), _object({"error": _STRING}))
_STATE = _object(
    {
        "status": {"type": "string", "enum": ["ok", "slow", "broken", "loading", "not loaded"]},
        "failures": {"type": "integer"},
        "last_failure": {"type": ["string", "null"]},
    }
)
# FastAPI drops entries that are None, so an example has a failure.
_WELL = {"status": "ok", "failures": 1, "last_failure": "RuntimeError"}
_LANGUAGE = _object({"code": _STRING, "name": _STRING, "targets": _list_of(_STRING)})

# Arguments of the paths of FastAPI.
TRANSLATE: dict[str, Any] = {
    "summary": "Translate texts",
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {
                _JSON: _content(
                    _any_of(body_model().model_json_schema(), libretranslate.SCHEMA),
                    {name: request for name, (request, _) in _TEXTS.items()} | {"stream": _STREAM},
                ),
                libretranslate.FORM: _content(libretranslate.SCHEMA, {"LibreTranslate": _QUESTION}),
            },
        }
    },
    **_answers(
        {
            _JSON: _content(
                _any_of(_TRANSLATIONS, _TRANSLATED), {name: answer for name, (_, answer) in _TEXTS.items()}
            ),
            _EVENTS: _content(_STRING, {"stream": _EVENT}),
        },
        {status: (about + ".", {_JSON: {"schema": _REFUSAL}}) for status, about in _REFUSALS.items()},
    ),
}
MODEL: dict[str, Any] = {
    "summary": "Load a model, and list the options of requests that it knows",
    **_answers(
        {
            _JSON: _content(
                _object({"name": _STRING, "features": _list_of(_STRING)}),
                {"model": {"name": "en-de", "features": ["return_scores", "format"]}},
            )
        },
        {
            401: ("There is no valid API key.", {_JSON: {"schema": _REFUSAL}}),
            404: ("There is no such model.", {_JSON: {"schema": _REFUSAL}}),
            500: ("The model cannot be loaded.", {_JSON: {"schema": _REFUSAL}}),
            503: ("The model is still loading, or there is no room for it.", {_JSON: {"schema": _REFUSAL}}),
        },
    ),
}
DETECT: dict[str, Any] = {
    "summary": "Detect the language of a text",
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {
                kind: _content(libretranslate.DETECTION_SCHEMA, {"LibreTranslate": {"q": _SENTENCE}})
                for kind in (_JSON, libretranslate.FORM)
            },
        }
    },
    **_answers(
        {_JSON: _content(_list_of(_DETECTED), {"LibreTranslate": [{"language": "en", "confidence": 42.0}]})},
        {status: (_REFUSALS[status] + ".", {_JSON: {"schema": _REFUSAL}}) for status in (400, 403, 408, 413)},
    ),
}
LANGUAGES: dict[str, Any] = {
    "summary": "List the languages",
    **_answers(
        {_JSON: _content(_list_of(_LANGUAGE), {"languages": [{"code": "en", "name": "English", "targets": ["de"]}]})}
    ),
}
_HEALTH = _object(_STATE["properties"], {"models": {"type": "object", "additionalProperties": _STATE}})
HEALTH: dict[str, Any] = {
    "summary": "Describe the state of the models",
    **_answers(
        {
            _JSON: _content(
                _HEALTH,
                {
                    "one model": _WELL,
                    "several models": _WELL
                    | {"models": {"en-de": _WELL, "de-en": _WELL | {"status": "not loaded", "failures": 0}}},
                },
            )
        },
        {503: ("A model is slow or broken.", {_JSON: _content(_HEALTH, {"slow": _WELL | {"status": "slow"}})})},
    ),
}
METRICS: dict[str, Any] = {
    "summary": "Export metrics for Prometheus",
    **_answers(
        {"text/plain": _content(_STRING, {"metrics": 'texts{model="en-de"} 2.0\n'})},
        {401: ("There is no valid API key.", {_JSON: {"schema": _REFUSAL}})},
    ),
}

__all__ = ["DETECT", "HEALTH", "LANGUAGES", "METRICS", "MODEL", "TRANSLATE"]
