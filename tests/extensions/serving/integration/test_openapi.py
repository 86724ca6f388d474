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
from vanilla_transformer.extensions.serving.schema import ENTRIES, FORM, MULTIPART
from vanilla_transformer.extensions.serving.service import create_service, translate_with
from vanilla_transformer.text.languages import Direction

JSON = "application/json"


@pytest.fixture(scope="module")
def client(tiny_tokenizer):
    pipeline = TranslationPipeline(tiny_model(), tiny_tokenizer)
    service = create_service(
        translate_with(pipeline),
        metrics=True,
        docs=True,
        known=known_options(pipeline),
        directions=[Direction("en", "de")],
        name="en-de",
        detect=detect_languages,
    )
    with TestClient(service) as client:
        yield client


@pytest.fixture(scope="module")
def document(client):
    return client.get("/openapi.json").json()


def examples(content):
    return {name: example["value"] for name, example in content["examples"].items()}


def answers(document, method, path):
    return document["paths"][path][method]["responses"]["200"]["content"]


def validate(value, content, document):
    """Check a value by the schema of some content, which may refer to parts of the document."""
    jsonschema.validate(value, {**content["schema"], "components": document["components"]})


def encode(kind, entries):
    if kind == MULTIPART:
        return {"files": {name: (None, value) for name, value in entries.items()}}
    return {"json": entries} if kind == JSON else {"content": urlencode(entries), "headers": {"content-type": kind}}


def test_openapi_document_is_valid(document):
    pytest.importorskip("openapi_spec_validator").validate(document)
    paths = {"/translate", "/detect", "/models/{name}", "/languages", "/health", "/metrics"}
    assert set(document["paths"]) == paths | {"/translate_file", "/download_file/{name}", "/frontend/settings"}


def test_openapi_describes_the_form_of_a_file(client, document):
    (body,) = document["paths"]["/translate_file"]["post"]["requestBody"]["content"].items()
    kind, content = body
    schema = document["components"]["schemas"][content["schema"]["$ref"].rpartition("/")[2]]
    assert kind == "multipart/form-data" and {*schema["properties"]} == {"file", "source", "target", "api_key"}
    assert {*schema["required"]} == {"file", "source", "target"}
    data, files = {"source": "en", "target": "de"}, {"file": ("a.txt", b"A man.")}
    found = client.post("/translate_file", data=data, files=files).json()
    content = answers(document, "post", "/translate_file")[JSON]
    for each in (found, *examples(content).values()):
        validate(each, content, document)
        assert [*each] == ["translatedFileUrl"]


def test_openapi_schemas_have_the_entries_of_requests(document):
    schemas = document["components"]["schemas"]
    schema = schemas["TranslationRequest"]
    assert set(schema["properties"]) == set(ENTRIES) >= set(options_of(BODY)) and schema["required"] == ["text"]
    assert all(entry["description"] for entry in schema["properties"].values())
    declared = TranslationOptions.model_json_schema()["properties"]
    for name in options_of(BODY):
        for part in ("type", "anyOf", "items", "additionalProperties"):
            assert schema["properties"][name].get(part) == declared[name].get(part), name
    assert {*schemas["Question"]["properties"]} == {"q", "source", "target", "format", "alternatives", "api_key"}


def test_openapi_examples_of_requests_have_answers_of_the_documented_shape(client, document):
    documented = answers(document, "post", "/translate")
    bodies = document["paths"]["/translate"]["post"]["requestBody"]["content"]
    assert set(bodies) == {JSON, FORM, MULTIPART}
    sent = 0
    for kind, body in bodies.items():
        for name, request in examples(body).items():
            validate(request, body, document)
            answer = client.post("/translate", **encode(kind, request))
            assert answer.status_code == 200, answer.text
            content = documented[answer.headers["content-type"].partition(";")[0]]
            example, found = examples(content)[name], answer.text if name == "stream" else answer.json()
            for each in (example, found):
                validate(each, content, document)
            assert shape(found) == shape(example)
            sent += 1
    assert sent >= 8


def shape(value):
    """Return the structure of an answer, without its texts and numbers."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in value.items()}
    return [shape(each) for each in value] if isinstance(value, list) else type(value)


def test_openapi_examples_of_detection_fit(client, document):
    (example,) = answers(document, "post", "/detect")[JSON]["examples"].values()
    for kind, body in document["paths"]["/detect"]["post"]["requestBody"]["content"].items():
        (request,) = examples(body).values()
        validate(request, body, document)
        found = client.post("/detect", **encode(kind, request)).json()
        for each in (found, example["value"]):
            validate(each, answers(document, "post", "/detect")[JSON], document)
        assert found[0]["language"] == example["value"][0]["language"]


def test_openapi_example_of_a_model_fits(client, document):
    content = answers(document, "get", "/models/{name}")[JSON]
    found, example = client.get("/models/en-de").json(), examples(content)["model"]
    for each in (found, example):
        validate(each, content, document)
    assert found["name"] == example["name"] and {*example["features"]} <= {*found["features"]}


@pytest.mark.parametrize("path", ["/languages", "/health", "/metrics", "/frontend/settings"])
def test_openapi_examples_of_answers_fit(path, client, document):
    answer = client.get(path)
    content = answers(document, "get", path)[answer.headers["content-type"].partition(";")[0]]
    found = answer.text if path == "/metrics" else answer.json()
    for each in (found, *examples(content).values()):
        validate(each, content, document)
    first = next(iter(examples(content).values()))
    if path == "/metrics":
        assert first.partition(" ")[0] in found
    elif path in ("/health", "/frontend/settings"):
        assert found.keys() == first.keys()
    else:
        assert found == first
