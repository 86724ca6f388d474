"""Run the service with uvicorn: limits of connections, and an end within the grace period."""

import asyncio
import logging
import os
import signal
import socket
import sys
from contextlib import suppress
from functools import partial
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from vanilla_transformer.errors import UserError, UserFileError

from .limits import Limits
from .models import Models
from .prometheus import ANSWERED

_TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n"
_TOO_MANY += b"Content-Length: 50\r\n\r\nToo many connections are open (--max_connections)."
# Bytes of a client until others have their turn: h11 takes 15 µs for each chunk, however small.
_BYTES_AT_ONCE = 2048
_LOG_CONFIG = uvicorn.config.LOGGING_CONFIG | {
    "formatters": {
        "default": {
            "()": "uvicorn.logging.DefaultFormatter",
            "fmt": "%(asctime)s %(levelprefix)s %(message)s",
        },
        "access": {
            "()": "uvicorn.logging.AccessFormatter",
            "fmt": "%(asctime)s %(levelprefix)s %(client_addr)s "
            '"%(request_line)s" %(status_code)s%(answered)s',
        },
    }
}
# Time to send the last answers and to close connections, at the end of the grace period.
_SECONDS_TO_CLOSE = 0.5


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to the address, but does not listen yet."""
    if not 0 <= port <= 65535:
        raise UserError(f"`port` must be from 0 to 65535, got {port}.")
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = addresses[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserFileError(
            f"Cannot listen on {host}:{port}: {reason}. Choose another --host or --port."
        ) from error
    return listener


class Server(uvicorn.Server):
    """Server of an application of [`create_service`], with its limits of connections.

    On shutdown it answers accepted requests as long as there is time, and refuses them after that.
    """

    def __init__(self, service: FastAPI, limits: Limits):
        logging.getLogger("uvicorn.access").addFilter(_complete)
        self._models, self._grace_seconds = service.state.models, limits.grace_seconds
        seconds: Any = limits.grace_seconds - _SECONDS_TO_CLOSE  # may be a float
        connection: Any = partial(_Connection, limits)  # which uvicorn only calls
        config = uvicorn.Config(
            service,
            http=connection,
            ws="none",
            log_config=_LOG_CONFIG,
            log_level="info",
            timeout_graceful_shutdown=seconds,
        )
        super().__init__(config)

    def stop(self) -> None:
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # A server on a thread has no signals, and Windows has not this one.
        with suppress(AttributeError, NotImplementedError, RuntimeError, ValueError):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.reload)
        await super().startup(sockets)

    def reload(self) -> None:
        """Begin to load the models again, and take new ones that are not worse."""
        self._reloads = [asyncio.ensure_future(model.reload()) for model in self._models]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        seconds = self._grace_seconds - 2 * _SECONDS_TO_CLOSE
        loop.call_later(seconds, self._models.stop)
        await super().shutdown(sockets)


def _complete(record: logging.LogRecord) -> bool:
    """Keep health checks out of the log, and the texts and the key in the query of a request, and
    add the model, the texts and the time.
    """
    client, method, path, *others = record.args  # type: ignore[misc]  # of uvicorn
    path = str(path).partition("?")[0]
    record.args = (client, method, path, *others)
    record.answered = ANSWERED.get()
    return path != "/health"


def run_server(service: FastAPI, listener: socket.socket, limits: Limits) -> None:
    """Serve until SIGTERM or SIGINT, which end the process within `limits.grace_seconds`."""
    models: Models = service.state.models
    server, status = Server(service, limits), 0
    for model in models:
        model.batcher.on_broken = server.stop
    try:
        server.run(sockets=[listener])
    except KeyboardInterrupt:
        status = 130
    else:
        failures = [model.batcher.last_failure for model in models if model.batcher.broken]
        if failures:
            status = 1
            sys.stderr.write(
                f"error: The model is broken ({failures[0]}); the service has ended.\n"
            )
    # Python would wait for the thread, also after SIGTERM in the first process of a container.
    if models.is_busy:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    if status == 130:
        raise KeyboardInterrupt
    if status:
        raise SystemExit(status)


class _Connection(H11Protocol, asyncio.BufferedProtocol):
    """Connection that is cut if its client takes too long to send a request or to read the answer.

    If there are too many connections, a new one replaces the oldest one that waits for its client.

    Uvicorn's own limits do not suffice. `limit_concurrency` also counts silent connections, so that
    a few of them keep all requests out. `timeout_keep_alive` begins after an answer, so that a
    client may be silent from the start, and it waits for a client that does not read its answer.
    Only the grace period is used as it is.

    Clients that send request after request without reading look like busy ones, as long as the
    answers fit into the buffers of the system. Hundreds of them can keep others out for as long as
    they like; with the limits of docker/nginx.conf they do not.
    """

    _timer: Any = None  # of asyncio

    def __init__(self, limits: Limits, **settings: Any):
        super().__init__(**settings)
        self._limits, self._received = limits, bytearray(_BYTES_AT_ONCE)

    @property
    def is_idle(self) -> bool:
        """Whether no request is in progress, or its answer waits to be read."""
        return self.cycle is None or self.cycle.response_complete or self.flow.write_paused

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._restart_timer()
        # uvicorn creates no others than of this class.
        connections: Any = self.connections
        open_connections = []
        for connection in connections:
            if not connection.transport.is_closing():
                open_connections.append(connection)
        if len(open_connections) <= self._limits.max_connections:
            return
        # These wait for their clients.
        waiting = []
        for connection in open_connections:
            if connection.is_idle or connection.cycle.more_body:
                waiting.append(connection)
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
        if self._timer is not None:
            self._timer.cancel()
        seconds = self._limits.client_seconds
        self._timer = self.loop.call_later(seconds, self._cut_if_idle)

    def _cut_if_idle(self) -> None:
        if self.is_idle:
            self.transport.abort()
