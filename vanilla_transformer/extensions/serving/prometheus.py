"""Metrics of a service in the format of Prometheus."""

import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .models import Models, ServedModel
from .queue import QueuedText

# The model, texts and time of an answer, for the log
ANSWERED = ContextVar("answered", default="")
_BATCH_SIZES = [2**power for power in range(11)]
_GAUGES: dict[str, tuple[str, Callable[[ServedModel], Any]]] = {
    "batches": ("Batches so far.", lambda model: model.batcher.batches),
    "texts": ("Texts so far.", lambda model: model.batcher.texts),
    "failures": (
        "Texts so far that the model failed to translate.",
        lambda model: model.batcher.failures,
    ),
    "waiting": ("Texts waiting.", lambda model: model.batcher.waiting),
    "compiled": (
        "1 if the model decodes by compiled steps.",
        lambda model: model.is_loaded and model.loaded.is_compiled(),
    ),
    "loaded": ("1 if the model is in memory.", lambda model: model.is_loaded),
}


class CountRequests:
    """Middleware that counts the requests to some paths, and the batches of models.

    Args:
        registry: What `GET /metrics` exports.
    """

    def __init__(
        self, app: ASGIApp, models: Models, registry: CollectorRegistry, paths: Sequence[str]
    ):
        self._app, self._paths = app, paths
        self._requests = Counter(
            "requests", "Requests to translate, by status.", ["model", "status"], registry=registry
        )
        self._request_seconds = Histogram(
            "request_seconds", "From request to answer.", ["model"], registry=registry
        )
        tokens = Counter("tokens", "Tokens of the texts so far.", ["model"], registry=registry)
        about = "From the arrival of a text to its batch."
        queue_seconds = Histogram("queue_seconds", about, ["model"], registry=registry)
        batch_size = Histogram(
            "batch_size", "Texts per batch.", ["model"], registry=registry, buckets=_BATCH_SIZES
        )

        def count_batch(model: str, batch: Sequence[QueuedText]) -> None:
            now = time.monotonic()
            batch_size.labels(model).observe(len(batch))
            tokens.labels(model).inc(sum(text.tokens for text in batch))
            for text in batch:
                queue_seconds.labels(model).observe(now - text.arrived)

        for model in models:
            model.batcher.on_batch = partial(count_batch, model.name)
        for name, (about, value) in _GAUGES.items():
            gauge = Gauge(name, about, ["model"], registry=registry)
            for model in models:
                gauge.labels(model.name).set_function(partial(value, model))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in self._paths or scope["method"] != "POST":
            return await self._app(scope, receive, send)
        start = time.monotonic()

        async def send_and_count(message: Message) -> None:
            if message["type"] == "http.response.start":
                # Empty if the request fits none.
                state, seconds = scope.get("state", {}), time.monotonic() - start
                model = state.get("model", "")
                self._requests.labels(model, message["status"]).inc()
                self._request_seconds.labels(model).observe(seconds)
                num_texts = state.get("texts", 0)
                ANSWERED.set(f" {model or '-'}, texts: {num_texts}, {1000 * seconds:.0f} ms")
            await send(message)

        await self._app(scope, receive, send_and_count)
