"""Read requests within limits, and stop working for clients that hang up."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from fastapi import HTTPException, Request
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .limits import Limits, Refusal

Result = TypeVar("Result")


async def read_body(request: Request, limits: Limits) -> bytes:
    """Return the body of a request.

    Raises:
        Refusal: 408 or 413; it arrives too slowly or is too large.
    """
    try:
        async with asyncio.timeout(limits.client_seconds):
            return await request.body()
    except TimeoutError as error:
        raise Refusal(408, f"The body must arrive within {limits.client_seconds} seconds.") from error
    except HTTPException as error:  # of `BodyLimit`
        raise Refusal(error.status_code, error.detail) from error


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


__all__ = ["BodyLimit", "read_body", "unless_disconnected"]
