"""Compare the answers of the HTTP service with the pipeline that it serves."""

import json
from collections.abc import Sequence
from typing import Any

from fastapi.testclient import TestClient

from vanilla_transformer.extensions.serving.features import RETURNED
from vanilla_transformer.extensions.serving.schema import ENTRIES
from vanilla_transformer.extensions.serving.service import create_service, translate_with

TEXTS = ["A man is sleeping.", "Two dogs run.", "Grass."]


def post(translate: Any, known: Sequence[str] = ENTRIES, documents: Any = None, **body: Any) -> Any:
    """Return the answer to a request for `TEXTS`, after which the service is well.

    `limits` are the service's.
    """
    service = create_service(
        translate_with(translate, documents),
        body.pop("limits", None),
        known=known,
        documents=documents,
    )
    with TestClient(service) as client:
        answer = client.post("/translate", json={"text": TEXTS} | body)
        assert {"status": "ok", "failures": 0, "last_failure": None}.items() <= client.get(
            "/health"
        ).json().items()
    return answer


def assert_service_returns_scores_like(translate: Any) -> None:
    """Check the scores and tokens of some texts, requested together with texts alone."""
    texts, options = (
        ["A man is sleeping.", "Two dogs.\n\nGrass."],
        {"return_scores": True, "return_tokens": True},
    )
    with TestClient(create_service(translate_with(translate), known=RETURNED)) as client:
        found = client.post("/translate", json={"text": texts} | options).json()["translations"]
        plain = client.post("/translate", json={"text": texts, "return_scores": False}).json()[
            "translations"
        ]
    expected = [
        {"text": answer.pop("translation_text"), **answer} for answer in translate(texts, **options)
    ]
    assert found == json.loads(json.dumps([[answer] for answer in expected]))
    assert plain == [[answer["text"]] for answer in expected]
