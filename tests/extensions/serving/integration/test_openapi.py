"""`/openapi.json`: it is valid, and its examples are true of a service."""

from urllib.parse import urlencode

import jsonschema
import pytest
from fastapi.testclient import TestClient

from tests.tiny import tiny_model
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.decoding.options import JSON as BODY
from vanilla_transformer.decoding.options import TranslationOptions, options_of
from vanilla_transformer.extensions.serving.features import known_options
from vanilla_transformer.extensions.serving.language_detection import detect_languages
from vanilla_transformer.extensions.serving.schema import ENTRIES, FORM, JSON, MULTIPART
from vanilla_transformer.extensions.serving.service import create_service, translate_with
from vanilla_transformer.text.languages import Direction


@pytest.fixture(scope="module")
def client(tiny_tokenizer):
    pipeline = TranslationPipeline(tiny_model(), tiny_tokenizer)
    options = {"known": known_options(pipeline), "directions": [Direction("en", "de")]}
    options |= {"metrics": True, "docs": True, "detect": detect_languages}
    service = create_service(translate_with(pipeline), name="en-de", **options)
    with TestClient(service) as client:
        yield client


@pytest.fixture(scope="module")
def document(client):
    return client.get("/openapi.json").json()


def examples(content):
    return {name: example["value"] for name, example in content["examples"].items()}


def bodies(document, path):
    return document["paths"][path]["post"]["requestBody"]["content"]


def answers(document, method, path):
    return document["paths"][path][method]["responses"]["200"]["content"]


def validate(value, content, document):
    """Check a value by the schema of some content, which may refer to parts of the document."""
    schema = content["schema"] | {"components": document["components"]}
    jsonschema.validate(value, schema)


def encode(kind, entries):
    if kind == MULTIPART:
        return {"files": {name: (None, value) for name, value in entries.items()}}
    if kind == JSON:
        return {"json": entries}
    return {"content": urlencode(entries), "headers": {"content-type": kind}}


def test_openapi_document_is_valid(document):
    pytest.importorskip("openapi_spec_validator").validate(document)
    paths = {"/translate", "/detect", "/models/{name}", "/languages", "/health"}
    paths |= {"/translate_file", "/download_file/{name}"}
    assert set(document["paths"]) == paths | {"/frontend/settings", "/metrics"}


def test_openapi_schemas_have_the_entries_of_requests(document):
    schemas = document["components"]["schemas"]
    schema = schemas["TranslationRequest"]
    assert set(schema["properties"]) == set(ENTRIES)
    assert set(ENTRIES) >= set(options_of(BODY))
    assert schema["required"] == ["text"]
    for entry in schema["properties"].values():
        assert entry["description"]
    declared = TranslationOptions.model_json_schema()["properties"]
    for name in options_of(BODY):
        entry, expected = schema["properties"][name], declared[name]
        for part in ("type", "anyOf", "items", "additionalProperties"):
            assert entry.get(part) == expected.get(part), name
    entries = {"q", "source", "target", "format", "columns", "existing", "previous"}
    entries |= {"alternatives", "api_key"}
    assert {*schemas["Question"]["properties"]} == entries
    form = bodies(document, "/translate_file")[MULTIPART]["schema"]
    assert {*form["properties"]} == {
        "file",
        "existing",
        "previous",
        "source",
        "target",
        "columns",
        "api_key",
    }
    assert {*form["required"]} == {"file", "source", "target"}


def test_openapi_examples_have_answers_of_the_documented_shape(client, document):
    documented = answers(document, "post", "/translate")
    assert {*bodies(document, "/translate")} == {JSON, FORM, MULTIPART}
    sent = 0
    for kind, body in bodies(document, "/translate").items():
        for name, request in examples(body).items():
            validate(request, body, document)
            answer = client.post("/translate", **encode(kind, request))
            assert answer.status_code == 200, answer.text
            content = documented[answer.headers["content-type"].partition(";")[0]]
            example = examples(content)[name]
            received = answer.text if name == "stream" else answer.json()
            for value in (example, received):
                validate(value, content, document)
            assert shape(received) == shape(example)
            sent += 1
    assert sent >= 8


def shape(value):
    """Return the structure of an answer, without its texts and numbers."""
    if isinstance(value, dict):
        return {name: shape(entry) for name, entry in value.items()}
    return [shape(entry) for entry in value] if isinstance(value, list) else type(value)


def test_openapi_schemas_of_answers_fit(client, document):
    for kind, body in bodies(document, "/detect").items():
        (request,) = examples(body).values()
        answer = client.post("/detect", **encode(kind, request)).json()
        validate(answer, answers(document, "post", "/detect")[JSON], document)
    data, files = {"source": "en", "target": "de"}, {"file": ("a.txt", b"A man.")}
    answer = client.post("/translate_file", data=data, files=files).json()
    validate(answer, answers(document, "post", "/translate_file")[JSON], document)
    for path in ("/models/{name}", "/languages", "/health", "/frontend/settings"):
        answer = client.get(path.format(name="en-de")).json()
        validate(answer, answers(document, "get", path)[JSON], document)
