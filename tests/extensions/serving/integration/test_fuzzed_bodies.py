"""Random bodies of requests: each gets translations, or one short reason, and the service keeps running."""

import json

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vanilla_transformer.extensions.serving.limits import Limits
from vanilla_transformer.extensions.serving.service import create_service

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner))
REQUESTS = st.fixed_dictionaries(
    {"text": VALUES | st.text(st.characters(), max_size=30) | st.lists(st.text(st.characters()), max_size=4)},
    optional={"num_return_sequences": st.integers(-1, 9) | VALUES, "other": VALUES},
)


@pytest.fixture(scope="module")
def client():
    limits = Limits(max_texts=3, max_characters=40)
    with TestClient(create_service(lambda texts, count: [[text.upper()] * count for text in texts], limits)) as client:
        yield client


@given(body=st.binary(max_size=60) | (VALUES | REQUESTS).map(json.dumps))
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_service_answers_any_body(client, body):
    answer = client.post("/translate", content=body)
    assert answer.status_code in (200, 422)
    if answer.status_code == 422:
        assert list(answer.json()) == ["detail"] and 0 < len(answer.json()["detail"]) < 300
    else:
        content = json.loads(body)
        texts = [content["text"]] if isinstance(content["text"], str) else content["text"]
        assert [translations[0] for translations in answer.json()["translations"]] == [text.upper() for text in texts]
    assert client.get("/health").json()["status"] == "ok"
