"""Read requests within limits, and stop working for clients that hang up."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .libretranslate import parse_form
from .limits import Limits, Refusal
from .schema import JSON, parse_json

Result = TypeVar("Result")
STATUS_OF_A_CLIENT_THAT_LEFT = 499


async def unless_disconnected(request: Request, work: Awaitable[Result]) -> Result:
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


class BodyLimit:
    """Middleware that refuses a body that arrives too slowly or is too large.

    It counts bytes, whatever the header Content-Length says.
    """

    def __init__(self, app: ASGIApp, limits: Limits):
        self._app, self._limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        close, limits = {"Connection": "close"}, self._limits
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


class JsonRoute(APIRoute):
    """Route whose bodies are JSON, whatever their type is said to be, or forms of LibreTranslate."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_any_type(request: Request) -> Response:
            return await handle(_JsonRequest(request.scope, request.receive))

        return handle_any_type


class _JsonRequest(Request):
    """Request whose type is JSON for FastAPI; `curl -d` says that it sends a form."""

    @property
    def headers(self) -> Headers:
        return Headers(dict(super().headers) | {"content-type": JSON})

    async def body(self) -> bytes:
        try:
            body = await super().body()
        except ClientDisconnect as error:
            raise HTTPException(STATUS_OF_A_CLIENT_THAT_LEFT) from error
        if not body:  # which FastAPI would take for a missing entry
            raise HTTPException(422, "The body must be valid JSON in UTF-8.")
        return body

    async def json(self) -> Any:
        body = await self.body()
        try:
            content = parse_json(body)
        except Refusal as refusal:
            content = parse_form(body, super().headers.get("content-type", ""))
            if content is None:
                raise HTTPException(422, str(refusal)) from refusal
        return [] if content is None else content  # FastAPI takes null for no body; a list is refused likewise


__all__ = ["STATUS_OF_A_CLIENT_THAT_LEFT", "BodyLimit", "JsonRoute", "unless_disconnected"]
