"""HTTP service: `POST /translate`, `GET /health`, `GET /metrics` (`pip install 'vanilla-transformer[serve]'`)."""

import asyncio
import copy
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vanilla_transformer.inference.translations import rename_text

from .batcher import Batcher, CountTokens, ModelFailure, Translate
from .limits import Limits, Refusal

Result = TypeVar("Result")
_STATUS_OF_A_CLIENT_THAT_LEFT = 499
# The body of `POST /translate`, for the pages of `docs=True`.
_BODY = {
    "type": "object",
    "required": ["text"],
    "additionalProperties": False,
    "properties": {
        "text": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
        "num_return_sequences": {"type": "integer", "minimum": 1, "default": 1},
        "return_scores": {"type": "boolean", "default": False},
        "return_tokens": {"type": "boolean", "default": False},
        "return_alignments": {"type": "boolean", "default": False},
        "return_confidence": {"type": "boolean", "default": False},
        "return_warnings": {"type": "boolean", "default": False},
    },
}
# Entries of the body that turn strings of the answer into objects.
RETURNED = ("return_scores", "return_tokens", "return_alignments", "return_confidence", "return_warnings")
_OPENAPI = {"requestBody": {"required": True, "content": {"application/json": {"schema": _BODY}}}}


class _Metrics:
    """Prometheus metrics for `GET /metrics`."""

    def __init__(self, batcher: Batcher):
        self.registry = CollectorRegistry()
        self.requests = Counter("requests", "Requests to translate, by status.", ["status"], registry=self.registry)
        self.seconds = Histogram("request_seconds", "From request to answer.", registry=self.registry)
        for name, about in (
            ("batches", "Batches so far."),
            ("texts", "Texts so far."),
            ("failures", "Texts so far that the model failed to translate."),
            ("waiting", "Texts waiting."),
        ):
            gauge = Gauge(name, about, registry=self.registry)
            gauge.set_function(partial(getattr, batcher, name))


def create_service(
    translate: Translate,
    limits: Limits | None = None,
    count_tokens: CountTokens | None = None,
    api_keys: Sequence[str] = (),
    metrics: bool = False,
    docs: bool = False,
    returned: Sequence[str] = (),
) -> FastAPI:
    """Create the application, for an ASGI server such as uvicorn.

    Args:
        translate, count_tokens: See [`Batcher`].
        limits: A request beyond a limit is refused: with 413 if the body is too large, with 408 if it arrives too
            slowly, with 503 if too many texts wait or the time is up, otherwise with 422.
        api_keys: If there are any, requests need one of them: `Authorization: Bearer KEY`.
        metrics: Export metrics at `/metrics`.
        docs: Describe the service at `/docs` and `/openapi.json`.
        returned: Names of `RETURNED` that `translate` accepts; requests with the others are refused with 422.

    Returns:
        The application. `state.batcher` is its batcher, for other code that uses the model.
    """
    limits = limits or Limits()
    batcher = Batcher(translate, limits, count_tokens)
    counters = _Metrics(batcher)

    @asynccontextmanager
    async def lifespan(service: FastAPI) -> AsyncIterator[None]:
        worker = asyncio.create_task(batcher.run())
        yield
        worker.cancel()
        batcher.close()

    docs_url, openapi_url = ("/docs", "/openapi.json") if docs else (None, None)
    service = FastAPI(
        title="vanilla-transformer", lifespan=lifespan, docs_url=docs_url, redoc_url=None, openapi_url=openapi_url
    )
    service.state.batcher = batcher
    service.state.api_keys = tuple(api_keys)
    service.add_middleware(_BodyLimit, max_body_bytes=limits.max_body_bytes)

    @service.post("/translate", openapi_extra=_OPENAPI)
    async def translate_texts(request: Request) -> Response:
        with counters.seconds.time():
            answer = await _answer(request, batcher, limits, api_keys, returned)
        counters.requests.labels(answer.status_code).inc()
        return answer

    @service.get("/health")
    async def health() -> Response:
        return _health(batcher, limits)

    if metrics:

        @service.get("/metrics")
        async def export_metrics(request: Request) -> Response:
            try:
                _find_client(request, api_keys)
            except Refusal as refusal:
                return _refuse(refusal)
            return Response(generate_latest(counters.registry), media_type=CONTENT_TYPE_LATEST)

    return service


async def _answer(
    request: Request, batcher: Batcher, limits: Limits, api_keys: Sequence[str], known: Sequence[str]
) -> Response:
    """Return the translations, or the reason for which there are none."""
    try:
        client = _find_client(request, api_keys)
        texts, num_hypotheses, returned = parse_body(await _read_body(request, limits), known)
        work = batcher.translate(texts, num_hypotheses, client, returned)
        return JSONResponse({"translations": await _unless_disconnected(request, work)})
    except Refusal as refusal:
        return _refuse(refusal)
    except ModelFailure:
        return _refuse(Refusal(500, "The model failed to translate the text."))
    except ClientDisconnect:
        return Response(status_code=_STATUS_OF_A_CLIENT_THAT_LEFT)


def _refuse(refusal: Refusal) -> JSONResponse:
    headers = {
        401: {"WWW-Authenticate": "Bearer", "Connection": "close"},
        408: {"Connection": "close"},
        413: {"Connection": "close"},
        503: {"Retry-After": "1"},
    }
    return JSONResponse({"detail": str(refusal)}, refusal.status, headers.get(refusal.status))


def _find_client(request: Request, api_keys: Sequence[str]) -> str:
    """Return the name by which requests take turns: the API key, or the address if no keys are required.

    Raises:
        Refusal: 401; the request has no valid key.
    """
    if not api_keys:
        return request.client.host if request.client else ""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not is_api_key(given, api_keys):
        raise Refusal(401, "A valid API key is required: `Authorization: Bearer KEY`.")
    return given


def is_api_key(given: str, api_keys: Sequence[str]) -> bool:
    """Return whether `given` is one of the keys, after a time that tells nothing about them."""
    matches = [hmac.compare_digest(given.encode(), key.encode()) for key in api_keys]
    return any(matches)


async def _read_body(request: Request, limits: Limits) -> bytes:
    try:
        async with asyncio.timeout(limits.client_seconds):
            return await request.body()
    except TimeoutError as error:
        raise Refusal(408, f"The body must arrive within {limits.client_seconds} seconds.") from error
    except HTTPException as error:  # of `_BodyLimit`
        raise Refusal(error.status_code, error.detail) from error


def parse_body(body: bytes, known: Sequence[str] = ()) -> tuple[Any, Any, tuple[str, ...]]:
    """Return the list of texts and the number of hypotheses, both still unchecked, and the `RETURNED` entries.

    Args:
        known: Names of `RETURNED` that the model accepts.

    Raises:
        Refusal: 422; the body is not a JSON object with these entries.
    """
    try:
        content = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise Refusal(422, "The body must be valid JSON in UTF-8.") from error
    if not isinstance(content, dict) or "text" not in content:
        raise Refusal(422, "The body must be a JSON object with the entry `text`.")
    if content.keys() - {"text", "num_return_sequences", *RETURNED}:
        names = ", ".join(f"`{name}`" for name in ("text", "num_return_sequences", *RETURNED))
        raise Refusal(422, f"The body may have the entries {names} only.")
    for name in RETURNED:
        if type(content.get(name, False)) is not bool:
            raise Refusal(422, f"`{name}` must be true or false.")
    returned = tuple(name for name in RETURNED if content.get(name))
    for name in returned:
        if name not in known:
            lacking = name.removeprefix("return_")
            raise Refusal(422, f"The model of this service has no {lacking}. Leave `{name}` out.")
    texts = content["text"]
    return [texts] if isinstance(texts, str) else texts, content.get("num_return_sequences", 1), returned


def _refuse_constant(name: str) -> None:
    raise Refusal(422, f"The body must be valid JSON, which has no {name}.")


async def _unless_disconnected(request: Request, work: Awaitable[Result]) -> Result:
    """Return the result of `work`; if the client hangs up first, cancel it.

    Raises:
        ClientDisconnect: the client has hung up.
    """
    working = asyncio.ensure_future(work)
    listening = asyncio.ensure_future(_wait_for_disconnect(request))
    try:
        await asyncio.wait([working, listening], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        for task in (working, listening):
            task.cancel()
        await asyncio.gather(working, listening, return_exceptions=True)


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _health(batcher: Batcher, limits: Limits) -> JSONResponse:
    """Describe the state of the model: "ok", "slow" if a batch takes longer than a request may, or "broken"."""
    status = "ok" if batcher.busy_seconds <= limits.request_seconds else "slow"
    if batcher.broken:
        status = "broken"
    content = {"status": status, "failures": batcher.failures, "last_failure": batcher.last_failure}
    return JSONResponse(content, 200 if status == "ok" else 503)


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

    def translate(texts: Any, num_hypotheses: int, *returned: str) -> list[list[Any]]:
        beams = (
            {}
            if num_hypotheses == 1
            else {"num_return_sequences": num_hypotheses, "num_beams": max(4, num_hypotheses)}
        )
        answers = pipeline(list(texts), progress_bar=False, **beams, **dict.fromkeys(returned, True))
        rows = [answer if isinstance(answer, list) else [answer] for answer in answers]
        if returned:
            return [[rename_text(answer) for answer in row] for row in rows]
        return [[hypothesis["translation_text"] for hypothesis in row] for row in rows]

    return translate


def count_tokens_with(tokenizer: Any) -> CountTokens:
    """Wrap a tokenizer for [`Batcher`]. It is copied, because a tokenizer must not work for two threads at once."""
    tokenizer = copy.deepcopy(tokenizer)

    def count_tokens(texts: Sequence[str]) -> list[int]:
        return [len(tokens) for tokens in tokenizer(list(texts))["input_ids"]]

    return count_tokens
