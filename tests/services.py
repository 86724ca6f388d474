"""Services of functions that stand in for models, a real server on a thread, and its answers."""

import asyncio
import json
import threading
import time
from collections.abc import Sequence
from contextlib import contextmanager
from typing import Any

from fastapi.testclient import TestClient
from httpx import Response

from vanilla_transformer import TranslationPipeline
from vanilla_transformer.extensions.documents import DocumentTranslator
from vanilla_transformer.extensions.serving import server
from vanilla_transformer.extensions.serving.features import RETURNED
from vanilla_transformer.extensions.serving.schema import ENTRIES
from vanilla_transformer.extensions.serving.service import create_service, translate_with


def shout(texts, options, format):
    """Return each text in upper case."""
    return [[text.upper()] * options.count for text in texts]


def echo(texts, options, format):
    """Return each text with its languages."""
    languages = f"{options.src_lang}-{options.tgt_lang}"
    return [[f"{languages} {text}"] * options.count for text in texts]


class SlowModel:
    """A model that shouts, and waits for `proceed` in each call.

    `started` is set as soon as it is at work.
    """

    def __init__(self):
        self.started, self.proceed, self.calls = threading.Event(), threading.Event(), []

    def __call__(self, texts, options, format):
        self.calls.append(list(texts))
        self.started.set()
        assert self.proceed.wait(20)
        return shout(texts, options, format)

    async def is_at_work(self):
        await asyncio.to_thread(self.started.wait, 10)


@contextmanager
def running_service(service, limits):
    """Yield the server, with its `thread` and its `address`."""
    listener = server.bind("127.0.0.1", 0)
    address = listener.getsockname()
    running = server.Server(service, limits)
    running.address = address
    running.thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
    running.thread.start()
    try:
        while not running.started:
            time.sleep(0.01)
        yield running
    finally:
        running.stop()
        running.thread.join()


TEXTS = ["A man is sleeping.", "Two dogs run.", "Grass."]


def post(
    translate: TranslationPipeline,
    known: Sequence[str] = ENTRIES,
    documents: DocumentTranslator | None = None,
    **body: Any,
) -> Response:
    """Return the answer to a request for `TEXTS`, after which the service is well.

    `limits` are the service's.
    """
    limits = body.pop("limits", None)
    options = {"known": known, "documents": documents}
    service = create_service(translate_with(translate, documents), limits, **options)
    with TestClient(service) as client:
        answer = client.post("/translate", json={"text": TEXTS} | body)
        health = client.get("/health").json()
    assert {"status": "ok", "failures": 0, "last_failure": None}.items() <= health.items()
    return answer


def assert_service_returns_scores_like(translate: TranslationPipeline) -> None:
    """Check the scores and tokens of some texts, requested together with texts alone."""
    texts = ["A man is sleeping.", "Two dogs.\n\nGrass."]
    options = {"return_scores": True, "return_tokens": True}
    with TestClient(create_service(translate_with(translate), known=RETURNED)) as client:
        scored = client.post("/translate", json={"text": texts} | options)
        plain = client.post("/translate", json={"text": texts, "return_scores": False})
    rows, translations = [], []
    for answer in translate(texts, **options):
        text = answer.pop("translation_text")
        rows.append([{"text": text, **answer}])
        translations.append([text])
    assert scored.json()["translations"] == json.loads(json.dumps(rows))
    assert plain.json()["translations"] == translations
