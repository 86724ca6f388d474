"""The HTTP service: `POST /translate`, `GET /health`, `GET /metrics` (`pip install 'vanilla-transformer[serve]'`)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from pydantic import BaseModel, ConfigDict, Field
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .batcher import Batcher, Overloaded, Translate
from .limits import Limits


class Request(BaseModel):
    """What is to be translated."""

    model_config = ConfigDict(extra="forbid")

    text: str | list[str]
    num_return_sequences: Annotated[int, Field(ge=1)] = 1


class Answer(BaseModel):
    """Translations of each text, best first; one list a text, in their order."""

    translations: list[list[str]]


class _Metrics:
    """What `GET /metrics` tells, in the form of Prometheus."""

    def __init__(self, batcher: Batcher):
        self.registry = CollectorRegistry()
        self.requests = Counter("requests", "Requests to translate, by status.", ["status"], registry=self.registry)
        self.seconds = Histogram("request_seconds", "From request to answer.", registry=self.registry)
        for name, about in (("batches", "Batches so far."), ("texts", "Texts so far."), ("waiting", "Texts waiting.")):
            gauge = Gauge(name, about, registry=self.registry)
            gauge.set_function(partial(getattr, batcher, name))


def create_service(translate: Translate, limits: Limits | None = None) -> FastAPI:
    """
    The application, which an ASGI server such as uvicorn runs. It stops gracefully: what was taken in is answered.

    The batcher stands in its `state`, for what else would use the model.

    Args:
        translate: See [`Batcher`].
        limits: A request beyond them is refused: 413 for too large a body, 422 for too much of something else, 503
            while too many texts wait.
    """
    limits = limits or Limits()
    batcher = Batcher(translate, limits.max_batch_size, limits.max_waiting)
    metrics = _Metrics(batcher)

    @asynccontextmanager
    async def working(service: FastAPI) -> AsyncIterator[None]:
        worker = asyncio.create_task(batcher.run())
        yield
        await batcher.drain()
        worker.cancel()
        await asyncio.to_thread(batcher.close)

    service = FastAPI(title="vanilla-transformer", lifespan=working)
    service.state.batcher = batcher
    service.add_middleware(_BodyLimit, max_body_bytes=limits.max_body_bytes)

    @service.post("/translate")
    async def translate_texts(request: Request) -> Answer:
        texts = [request.text] if isinstance(request.text, str) else request.text
        with metrics.seconds.time():
            try:
                _check(texts, request.num_return_sequences, limits)
                translations = await batcher.translate(texts, request.num_return_sequences)
            except HTTPException as refusal:
                metrics.requests.labels(refusal.status_code).inc()
                raise
            except Overloaded as overload:
                metrics.requests.labels(503).inc()
                raise HTTPException(503, "Too many texts wait. Try again later.", {"Retry-After": "1"}) from overload
            except Exception:
                metrics.requests.labels(500).inc()
                raise
        metrics.requests.labels(200).inc()
        return Answer(translations=translations)

    @service.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @service.get("/metrics")
    async def tell_metrics() -> Response:
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return service


def _check(texts: list[str], hypotheses: int, limits: Limits) -> None:
    longest = max(map(len, texts), default=0)
    for name, found, most in (
        ("`text` may be a list of", len(texts), limits.max_texts),
        ("the characters of a text may be", longest, limits.max_characters),
        ("`num_return_sequences` may be", hypotheses, limits.max_hypotheses),
    ):
        if found > most:
            raise HTTPException(422, f"{name} at most {most}, got {found}.")


class _BodyLimit:
    """Refuses a body that is too large without reading all of it, whatever its header says."""

    def __init__(self, app: ASGIApp, max_body_bytes: int):
        self._app = app
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._max_body_bytes:
                raise HTTPException(413, f"The body may have at most {self._max_body_bytes} bytes.")
            return message

        await self._app(scope, counted, send)


def translate_with(pipeline: Any) -> Translate:
    """What a [`TranslationPipeline`] does, as the service asks for it."""

    def translate(texts: Any, hypotheses: int) -> list[list[str]]:
        beams = {} if hypotheses == 1 else {"num_return_sequences": hypotheses, "num_beams": max(4, hypotheses)}
        answers = pipeline(list(texts), progress_bar=False, **beams)
        return [[one["translation_text"] for one in (row if isinstance(row, list) else [row])] for row in answers]

    return translate
