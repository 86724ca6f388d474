"""With `stream`, the service answers each text by a server-sent event."""

import json

import pytest
from fastapi.testclient import TestClient

from tests.service_answers import TEXTS
from vanilla_transformer import TranslationPipeline
from vanilla_transformer.extensions.serving.limits import Limits
from vanilla_transformer.extensions.serving.service import create_service, translate_with


@pytest.fixture
def translate(tiny_model, tiny_tokenizer):
    return TranslationPipeline(tiny_model, tiny_tokenizer)


def events(service, **entries):
    with TestClient(service) as client:
        answer = client.post("/translate", json={"text": TEXTS, "stream": True} | entries)
        assert client.get("/health").json()["status"] == "ok"
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.endswith("\n\n")
    found = [json.loads(event.removeprefix("data: ")) for event in answer.text.split("\n\n")[:-1]]
    return sorted(found, key=lambda event: event["position"])


def test_stream_has_an_event_for_each_text(translate):
    expected = [[row["translation_text"] for row in rows] for rows in translate(TEXTS, num_return_sequences=2)]
    found = events(create_service(translate_with(translate)), num_return_sequences=2)
    assert found == [{"position": index, "translations": row} for index, row in enumerate(expected)]


def test_stream_reports_the_refusal_of_one_text(translate):
    service = create_service(
        translate_with(translate), Limits(max_tokens=6), lambda texts: [len(text.split()) for text in texts]
    )
    first, second = events(service, text=["one two", "one two three four five six seven"])
    assert "translations" in first and second["status"] == 422 and "at most 6" in second["detail"]


def test_stream_refuses_a_wrong_request_as_a_whole(translate):
    with TestClient(create_service(translate_with(translate))) as client:
        assert client.post("/translate", json={"text": [1], "stream": True}).status_code == 422
        assert client.post("/translate", json={"text": "a", "stream": 1}).status_code == 422


def test_stream_reports_a_failure_of_the_model():
    def fail(texts, num_hypotheses, **options):
        if texts[0] == "bad":
            raise RuntimeError("broken")
        return [[text.upper()] for text in texts]

    with TestClient(create_service(fail)) as client:
        answer = client.post("/translate", json={"text": ["bad"], "stream": True})
    assert json.loads(answer.text.removeprefix("data: ")) == {
        "position": 0, "status": 500, "detail": "The model failed to translate the text.",
    }  # fmt: skip
