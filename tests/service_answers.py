"""Compare the answers of the HTTP service with the pipeline that it serves."""

from typing import Any

from fastapi.testclient import TestClient

from vanilla_transformer.serving.service import create_service, translate_with


def assert_service_answers_like(translate: Any) -> None:
    """Check the best translation and the two best translations of some texts."""
    texts = ["A man is sleeping.", "Two dogs.\n\nGrass."]
    with TestClient(create_service(translate_with(translate))) as client:
        one = client.post("/translate", json={"text": texts}).json()["translations"]
        two = client.post("/translate", json={"text": texts, "num_return_sequences": 2}).json()["translations"]
    assert [row[0] for row in one] == [answer["translation_text"] for answer in translate(texts)]
    assert two == [[one["translation_text"] for one in row] for row in translate(texts, num_return_sequences=2)]
