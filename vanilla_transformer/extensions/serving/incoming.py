"""Read requests within limits, and stop working for clients that hang up."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import HTTPException, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.datastructures import FormData, Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .libretranslate import Question
from .limits import Limits, Refusal
from .schema import FORM, JSON, MULTIPART, parse_json

Result = TypeVar("Result")
STATUS_OF_A_CLIENT_THAT_LEFT = 499


async def unless_disconnected(request: Request, work: Awaitable[Result]) -> Result:
    """Return the result of `work`; if the client hangs up first, cancel it."""
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


class BodyLimit:
    """Middleware that refuses a body of unclear length, or that arrives too slowly or is too large.

    It counts bytes, whatever the header Content-Length says.
    """

    def __init__(self, app: ASGIApp, limits: Limits):
        self._app, self._limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        close, limits = {"Connection": "close"}, self._limits
        names = {name for name, _ in scope["headers"]}
        if {b"content-length", b"transfer-encoding"} <= names:  # RFC 9112, section 6.1
            reason = "A request may have one of `Content-Length` and `Transfer-Encoding`, but it has both."
            return await JSONResponse({"detail": reason}, 400, close)(scope, receive, send)
        read, more, deadline = 0, True, asyncio.get_running_loop().time() + limits.client_seconds

        async def receive_within_limits() -> Message:
            nonlocal read, more
            if not more:  # waits for the client to hang up
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError as error:
                reason = f"The body must arrive within {limits.client_seconds} seconds."
                raise HTTPException(408, reason, close) from error
            more = message.get("more_body", False)
            read += len(message.get("body", b""))
            if read > limits.max_body_bytes:
                raise HTTPException(413, f"The body may have at most {limits.max_body_bytes} bytes.", close)
            return message

        await self._app(scope, receive_within_limits, send)


class FormRoute(APIRoute):
    """Route whose bodies are forms of LibreTranslate."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_request(request: Request) -> Response:
            return await handle(self.request_class(request.scope, request.receive))

        return handle_request

    @property
    def request_class(self) -> type[Request]:
        return _FormRequest


class JsonRoute(FormRoute):
    """Route whose bodies are JSON, whatever their type is said to be, or forms of LibreTranslate."""

    @property
    def request_class(self) -> type[Request]:
        return _JsonRequest


class _FormRequest(Request):
    """Request with a form in UTF-8, whose entries may be in the query instead, as for LibreTranslate."""

    async def body(self) -> bytes:
        try:
            return await super().body()
        except ClientDisconnect as error:
            raise HTTPException(STATUS_OF_A_CLIENT_THAT_LEFT) from error

    async def form(self, **limits: Any) -> FormData:  # type: ignore[override]  # FastAPI awaits it
        """Return the entries, in which lone surrogates stand for bytes that are not UTF-8."""
        body, kind = await self.body(), _content_type(self)
        query, sent = _parse_pairs(self.scope["query_string"]), []
        if kind == FORM:
            sent = _parse_pairs(body)
        elif kind == MULTIPART:
            self.state.is_libretranslate = True
            # Starlette takes text for Latin-1 if it is not of the charset, so each byte is a letter at first.
            headers = Headers({"content-type": Headers(scope=self.scope)["content-type"] + "; charset=latin-1"})
            try:
                found = await MultiPartParser(headers, self.stream(), **limits).parse()
            except MultiPartException as error:
                raise HTTPException(422, error.message) from error
            sent = [(_decode_part(name), _decode_part(value)) for name, value in found.multi_items()]
        self.state.is_form = True
        names = {name for name, _ in query}
        self._form = FormData([*query, *((name, value) for name, value in sent if name not in names)])
        return self._form


class _JsonRequest(_FormRequest):
    """Request whose type is JSON for FastAPI; `curl -d` says that it sends a form."""

    @property
    def headers(self) -> Headers:
        return Headers(dict(super().headers) | {"content-type": JSON})

    async def body(self) -> bytes:
        return await super().body() or b" "  # FastAPI does not read an empty body

    async def json(self) -> Any:
        try:
            content = parse_json(await self.body())
        except Refusal as refusal:
            content = await self._read_question(str(refusal))
        return [] if content is None else content  # FastAPI takes null for no body; a list is refused likewise

    async def _read_question(self, no_json: str) -> dict[str, Any]:
        """Return the entries of a form, whose reader may not have found JSON because there is none."""
        form = await self.form()
        if _content_type(self) != MULTIPART and not form.keys() & Question.model_fields.keys():
            raise HTTPException(422, no_json)
        self.state.is_libretranslate = True
        entries: dict[str, list[str]] = {}
        for name, value in form.multi_items():
            if name in Question.model_fields:
                if isinstance(value, UploadFile):
                    raise HTTPException(422, f"`{name}` must be a text, not a file.")
                entries.setdefault(name, []).append(value.replace("\r\n", "\n"))  # which browsers send
        if "q" not in entries:
            raise HTTPException(422, "The form must have the entry `q`.")
        texts = entries["q"]
        return {name: values[-1] for name, values in entries.items()} | {"q": texts if len(texts) > 1 else texts[0]}


def _content_type(request: Request) -> str:
    return Headers(scope=request.scope).get("content-type", "").partition(";")[0].strip().lower()


def _parse_pairs(encoded: bytes) -> list[tuple[str, Any]]:
    text = encoded.decode(errors="surrogateescape")
    return parse_qsl(text, keep_blank_values=True, errors="surrogateescape")


def _decode_part(part: Any) -> Any:
    """Return a name or a text of a form from its letters of Latin-1, or a file with its name."""
    if isinstance(part, UploadFile):
        part.filename = _decode_part(part.filename)
        return part
    return part.encode("latin-1").decode(errors="surrogateescape")
