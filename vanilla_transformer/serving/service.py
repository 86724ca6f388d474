"""HTTP service: `POST /translate`, `GET /health`, `GET /metrics` (`pip install 'vanilla-transformer[serve]'`)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from pydantic import BaseModel, ConfigDict, Field
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .batcher import Batcher, Limits, QueueFull, Translate


class Request(BaseModel):
    """Body of `POST /translate`."""

    model_config = ConfigDict(extra="forbid")

    text: str | list[str]
    num_return_sequences: Annotated[int, Field(ge=1)] = 1


class Answer(BaseModel):
    """One list of translations per text, in the order of the texts, best first."""

    translations: list[list[str]]


class _Metrics:
    """Prometheus metrics for `GET /metrics`."""

    def __init__(self, batcher: Batcher):
        self.registry = CollectorRegistry()
        self.requests = Counter("requests", "Requests to translate, by status.", ["status"], registry=self.registry)
        self.seconds = Histogram("request_seconds", "From request to answer.", registry=self.registry)
        for name, about in (("batches", "Batches so far."), ("texts", "Texts so far."), ("waiting", "Texts waiting.")):
            gauge = Gauge(name, about, registry=self.registry)
            gauge.set_function(partial(getattr, batcher, name))


def create_service(translate: Translate, limits: Limits | None = None) -> FastAPI:
    """Create the application, for an ASGI server such as uvicorn. On shutdown it answers the accepted requests first.

    Args:
        translate: See [`Batcher`].
        limits: A request beyond a limit is refused: with 413 if the body is too large, with 503 if too many texts
            wait, otherwise with 422.

    Returns:
        The application. `state.batcher` is its batcher, for other code that uses the model.
    """
    limits = limits or Limits()
    batcher = Batcher(translate, limits)
    metrics = _Metrics(batcher)

    @asynccontextmanager
    async def lifespan(service: FastAPI) -> AsyncIterator[None]:
        worker = asyncio.create_task(batcher.run())
        yield
        await batcher.drain()
        worker.cancel()
        await asyncio.to_thread(batcher.close)

    service = FastAPI(title="vanilla-transformer", lifespan=lifespan)
    service.state.batcher = batcher
    service.add_middleware(_BodyLimit, max_body_bytes=limits.max_body_bytes)

    @service.post("/translate")
    async def translate_texts(request: Request) -> Answer:
        texts = [request.text] if isinstance(request.text, str) else request.text
        with metrics.seconds.time():
            try:
                _check_limits(texts, request.num_return_sequences, limits)
                translations = await batcher.translate(texts, request.num_return_sequences)
            except HTTPException as error:
                metrics.requests.labels(error.status_code).inc()
                raise
            except QueueFull as error:
                metrics.requests.labels(503).inc()
                raise HTTPException(503, "Too many texts wait. Try again later.", {"Retry-After": "1"}) from error
            except Exception:
                metrics.requests.labels(500).inc()
                raise
        metrics.requests.labels(200).inc()
        return Answer(translations=translations)

    @service.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @service.get("/metrics")
    async def export_metrics() -> Response:
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return service


def _check_limits(texts: list[str], num_hypotheses: int, limits: Limits) -> None:
    longest = max(map(len, texts), default=0)
    for name, found, most in (
        ("`text` may be a list of", len(texts), limits.max_texts),
        ("the characters of a text may be", longest, limits.max_characters),
        ("`num_return_sequences` may be", num_hypotheses, limits.max_hypotheses),
    ):
        if found > most:
            raise HTTPException(422, f"{name} at most {most}, got {found}.")


class _BodyLimit:
    """Middleware that refuses a too large body by counting its bytes, whatever the Content-Length header says."""

    def __init__(self, app: ASGIApp, max_body_bytes: int):
        self._app = app
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        read = 0

        async def receive_and_count() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._max_body_bytes:
                raise HTTPException(413, f"The body may have at most {self._max_body_bytes} bytes.")
            return message

        await self._app(scope, receive_and_count, send)


def translate_with(pipeline: Any) -> Translate:
    """Wrap a [`TranslationPipeline`] for [`Batcher`]."""

    def translate(texts: Any, num_hypotheses: int) -> list[list[str]]:
        beams = (
            {}
            if num_hypotheses == 1
            else {"num_return_sequences": num_hypotheses, "num_beams": max(4, num_hypotheses)}
        )
        answers = pipeline(list(texts), progress_bar=False, **beams)
        rows = [answer if isinstance(answer, list) else [answer] for answer in answers]
        return [[hypothesis["translation_text"] for hypothesis in row] for row in rows]

    return translate
