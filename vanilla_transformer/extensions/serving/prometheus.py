"""Metrics of a service in the format of Prometheus."""

import time
from collections.abc import Sequence
from functools import partial
from operator import attrgetter

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .models import Models
from .queue import QueuedText

_BATCH_SIZES = [2**power for power in range(11)]


class Metrics:
    """Metrics of each model of a service.

    Attributes:
        registry: What `GET /metrics` exports.
    """

    def __init__(self, models: Models):
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "requests", "Requests to translate, by status.", ["model", "status"], registry=self.registry
        )
        self._request_seconds = Histogram(
            "request_seconds", "From request to answer.", ["model"], registry=self.registry
        )
        self._tokens = Counter("tokens", "Tokens of the texts so far.", ["model"], registry=self.registry)
        self._queue_seconds = Histogram(
            "queue_seconds", "From the arrival of a text to its batch.", ["model"], registry=self.registry
        )
        self._batch_size = Histogram(
            "batch_size", "Texts per batch.", ["model"], buckets=_BATCH_SIZES, registry=self.registry
        )
        for name, about, value in (
            ("batches", "Batches so far.", attrgetter("batcher.batches")),
            ("texts", "Texts so far.", attrgetter("batcher.texts")),
            ("failures", "Texts so far that the model failed to translate.", attrgetter("batcher.failures")),
            ("waiting", "Texts waiting.", attrgetter("batcher.waiting")),
            ("compiled", "1 if the model decodes by compiled steps.", attrgetter("is_compiled")),
            ("loaded", "1 if the model is in memory.", attrgetter("is_loaded")),
        ):
            gauge = Gauge(name, about, ["model"], registry=self.registry)
            for model in models:
                gauge.labels(model.name).set_function(partial(value, model))
        for model in models:
            model.batcher.on_batch = partial(self._count_batch, model.name)

    def count_request(self, model: str, status: int, seconds: float) -> None:
        """Count a request that was answered; `model` is empty if the request fits none."""
        self._requests.labels(model, status).inc()
        self._request_seconds.labels(model).observe(seconds)

    def _count_batch(self, model: str, batch: Sequence[QueuedText]) -> None:
        now = time.monotonic()
        self._batch_size.labels(model).observe(len(batch))
        self._tokens.labels(model).inc(sum(text.tokens for text in batch))
        for text in batch:
            self._queue_seconds.labels(model).observe(now - text.arrived)


class CountRequests:
    """Middleware that counts the requests to some paths."""

    def __init__(self, app: ASGIApp, metrics: Metrics, paths: Sequence[str]):
        self._app, self._metrics, self._paths = app, metrics, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in self._paths or scope["method"] != "POST":
            return await self._app(scope, receive, send)
        start = time.monotonic()

        async def send_and_count(message: Message) -> None:
            if message["type"] == "http.response.start":
                model = scope.get("state", {}).get("model", "")
                self._metrics.count_request(model, message["status"], time.monotonic() - start)
            await send(message)

        await self._app(scope, receive, send_and_count)
