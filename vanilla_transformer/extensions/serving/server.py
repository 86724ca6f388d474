"""Run the service with uvicorn: limits of connections, and an end within the grace period."""

import asyncio
import logging
import os
import socket
import sys
from functools import partial
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from vanilla_transformer.errors import UserError, UserFileError

from .limits import Limits
from .models import Models

_TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
_BYTES_AT_ONCE = 2048  # of a client, until others have their turn: h11 takes 15 µs for each chunk, however small
# Time to send the last answers and to close connections, at the end of the grace period.
_SECONDS_TO_CLOSE = 0.5


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to the address, but does not listen yet."""
    if not 0 <= port <= 65535:
        raise UserError(f"`port` must be from 0 to 65535, got {port}.")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserFileError(f"Cannot listen on {host}:{port}: {reason}. Choose another --host or --port.") from error
    return listener


def create_server(service: FastAPI, limits: Limits) -> "_Server":
    """Return a server of uvicorn for an application of [`create_service`]."""
    logging.getLogger("uvicorn.access").addFilter(_without_query)
    config = uvicorn.Config(
        service,
        http=partial(_Connection, limits),  # type: ignore[arg-type]  # uvicorn only calls it
        ws="none",
        log_level="info",
        timeout_graceful_shutdown=limits.grace_seconds - _SECONDS_TO_CLOSE,  # type: ignore[arg-type]  # also a float
    )
    return _Server(config, service.state.models, limits.grace_seconds)


def _without_query(record: logging.LogRecord) -> bool:
    """Keep the texts and the key in the query of a request out of the log."""
    client, method, path, *others = record.args  # type: ignore[misc]  # of uvicorn
    record.args = (client, method, str(path).partition("?")[0], *others)
    return True


def run_server(service: FastAPI, listener: socket.socket, limits: Limits) -> None:
    """Serve until SIGTERM or SIGINT, which end the process within `limits.grace_seconds`."""
    models: Models = service.state.models
    server = create_server(service, limits)
    for model in models:
        model.batcher.on_broken = server.stop
    try:
        server.run(sockets=[listener])
    except KeyboardInterrupt:
        _end_at_once_if_busy(models, 130)
        raise
    broken = models.broken
    if broken is not None:
        sys.stderr.write(f"error: The model is broken ({broken.last_failure}); the service has ended.\n")
        _end_at_once_if_busy(models, 1)
        raise SystemExit(1)
    _end_at_once_if_busy(models, 0)  # SIGTERM does not end the first process of a container by itself


def _end_at_once_if_busy(models: Models, status: int) -> None:
    """End the process if a model is at work: Python would wait for its thread."""
    if models.is_busy:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


class _Server(uvicorn.Server):
    """Server that answers accepted requests on shutdown as long as there is time, and refuses them after that."""

    def __init__(self, config: uvicorn.Config, models: Models, grace_seconds: int):
        super().__init__(config)
        self._models = models
        self._grace_seconds = grace_seconds

    def stop(self) -> None:
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().call_later(self._grace_seconds - 2 * _SECONDS_TO_CLOSE, self._models.stop)
        await super().shutdown(sockets)


class _Connection(H11Protocol, asyncio.BufferedProtocol):
    """Connection that is cut if its client takes too long to send a request or to read the answer.

    If there are too many connections, a new one replaces the oldest one that waits for its client.

    Uvicorn's own limits do not suffice. `limit_concurrency` also counts silent connections, so that a few of them keep
    all requests out. `timeout_keep_alive` begins after an answer, so that a client may be silent from the start, and
    it waits for a client that does not read its answer. Only the grace period is used as it is.
    """

    _timer: asyncio.TimerHandle

    def __init__(self, limits: Limits, **settings: Any):
        super().__init__(**settings)
        self._limits, self._received = limits, bytearray(_BYTES_AT_ONCE)

    @property
    def waits_for_client(self) -> bool:
        """Whether no complete request is in progress, or its answer waits to be read."""
        is_reading = self.cycle is None or self.cycle.response_complete or self.cycle.more_body
        return is_reading or self.flow.write_paused

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._start_timer()
        connections: Any = self.connections  # uvicorn creates no others than of this class
        open_connections = [connection for connection in connections if not connection.transport.is_closing()]
        if len(open_connections) <= self._limits.max_connections:
            return
        waiting = [connection for connection in open_connections if connection.waits_for_client]
        oldest = min(waiting, key=lambda connection: connection._timer.when())
        if oldest is self:
            self.transport.write(_TOO_MANY)
            self.transport.close()
        else:
            oldest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._received

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self._received[:nbytes]))

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._restart_timer()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._restart_timer()

    def _restart_timer(self) -> None:
        self._timer.cancel()
        self._start_timer()

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(self._limits.client_seconds, self._cut_if_idle)

    def _cut_if_idle(self) -> None:
        if self.cycle is None or self.cycle.response_complete or self.flow.write_paused:
            self.transport.abort()
