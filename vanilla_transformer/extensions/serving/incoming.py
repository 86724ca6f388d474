"""Read requests within limits, and stop working for clients that hang up."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar
from urllib.parse import parse_qs

from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vanilla_transformer.errors import UserError

from .document_processes import DocumentProcesses
from .json_bodies import parse_json
from .libretranslate import Question
from .limits import Limits, Refusal
from .schema import FORM, MULTIPART

Result = TypeVar("Result")
_MOST_FILES = 4  # of a form: a document, its translation, an earlier version of both


async def unless_disconnected(request: Request, work: Awaitable[Result]) -> Result:
    """Return the result of `work`; if the client hangs up first, cancel it."""

    async def wait_for_disconnect() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    working = asyncio.ensure_future(work)
    tasks = (working, asyncio.ensure_future(wait_for_disconnect()))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class BodyLimit:
    """Middleware that refuses a body of unclear length, or that arrives too slowly or is too large.

    It counts bytes, whatever the header Content-Length says.
    A body may be a document at some `paths`.
    """

    def __init__(self, app: ASGIApp, limits: Limits, paths: Sequence[str] = ()):
        self._app, self._limits, self._paths = app, limits, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        limits = self._limits
        names = {name for name, _ in scope["headers"]}
        if {b"content-length", b"transfer-encoding"} <= names:  # RFC 9112, section 6.1
            reason = (
                "A request may have one of `Content-Length` and `Transfer-Encoding`, but it "
                "has both."
            )
            response = JSONResponse({"detail": reason}, 400, {"Connection": "close"})
            return await response(scope, receive, send)
        is_document = scope["path"] in self._paths
        name = "max_document_bytes" if is_document else "max_body_bytes"
        most = max(limits.max_body_bytes, getattr(limits, name))
        read, more = 0, True
        deadline = asyncio.get_running_loop().time() + limits.client_seconds

        async def receive_within_limits() -> Message:
            nonlocal read, more
            if not more:  # waits for the client to hang up
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError as error:
                reason = (
                    f"The body must arrive within {limits.client_seconds} seconds "
                    "(--client_seconds)."
                )
                raise Refusal(408, reason) from error
            more = message.get("more_body", False)
            read += len(message.get("body", b""))
            scope.setdefault("state", {})["body_bytes"] = read
            if read > most:
                raise Refusal(413, f"The body may have at most {most} bytes (--{name}).")
            return message

        await self._app(scope, receive_within_limits, send)


async def read_content(
    request: Request,
    processes: DocumentProcesses,
    most: int,
    form_type: type[Question] = Question,
) -> Any:
    """Return the content of a JSON body, or the entries of a form or a query of LibreTranslate.

    JSON is recognized whatever its type is said to be: `curl -d` says that it sends a form. A body
    of more than `most` bytes is parsed in a process.

    Args:
        form_type: The entries of a form.
    """
    body = await request.body()
    try:
        if len(body) <= most:
            return parse_json(None, body, most)
        client = request.client.host if request.client else ""
        reading = processes.call(client, parse_json, body, most)
        return await unless_disconnected(request, reading)
    except (UserError, Refusal) as error:
        if getattr(error, "status", 422) != 422:
            raise
        reason = str(error)
    form = await read_form(request)
    has_entries = form.keys() & form_type.model_fields.keys()
    if _content_type(request) != MULTIPART and not has_entries:
        raise Refusal(422, reason)
    request.state.is_libretranslate = True
    entries = {}
    for name in form_type.model_fields:
        if name in form:
            entries[name] = read_texts(form, name)
    if "q" not in entries:
        raise Refusal(422, "The form must have the entry `q`.")
    texts = entries.pop("q")
    question: dict[str, Any] = {name: values[-1] for name, values in entries.items()}
    question["q"] = texts if len(texts) > 1 else texts[0]
    if "previous" in entries:
        question["previous"] = entries["previous"]
    return question


async def read_form(request: Request) -> dict[str, list[Any]]:
    """Return the values of each entry of a form, or of the query, which goes before it as for
    LibreTranslate.

    Both are read as UTF-8; lone surrogates stand for other bytes.
    """
    request.state.is_form = True
    kind, form = _content_type(request), dict[str, list[Any]]()
    if kind == FORM:
        form = await asyncio.to_thread(_parse_pairs, await request.body())
    elif kind == MULTIPART:
        request.state.is_libretranslate = True
        # Starlette takes text for Latin-1 if it is not of the charset, so each byte is a letter at
        # first.
        content_type = request.headers["content-type"] + "; charset=latin-1"
        headers = Headers({"content-type": content_type})
        try:
            parser = MultiPartParser(headers, request.stream(), max_files=_MOST_FILES)
            parts = await parser.parse()
        except MultiPartException as error:
            raise Refusal(422, error.message) from error
        for name, value in parts.multi_items():
            form.setdefault(_decode_part(name), []).append(_decode_part(value))
    return form | _parse_pairs(request.scope["query_string"])


def read_texts(form: dict[str, list[Any]], name: str) -> list[str]:
    """Return the values of an entry of a form, which must be texts, without the line ends that
    browsers send.
    """
    if any(isinstance(value, UploadFile) for value in form[name]):
        raise Refusal(422, f"`{name}` must be a text, not a file.")
    return [value.replace("\r\n", "\n") for value in form[name]]


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _parse_pairs(encoded: bytes) -> dict[str, list[Any]]:
    text = encoded.decode(errors="surrogateescape")
    return parse_qs(text, keep_blank_values=True, errors="surrogateescape")


def _decode_part(part: Any) -> Any:
    """Return a name or a text of a form from its letters of Latin-1, or a file with its name."""
    if isinstance(part, UploadFile):
        part.filename = _decode_part(part.filename)
        return part
    return part.encode("latin-1").decode(errors="surrogateescape")
