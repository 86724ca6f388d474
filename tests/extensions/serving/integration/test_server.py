"""The server under clients that are silent, slow, many, or gone."""

import json
import os
import re
import signal
import socket
import threading
import time
from contextlib import ExitStack, closing, contextmanager
from types import SimpleNamespace

import pytest

from tests.processes import wait_until
from tests.services import SlowModel, running_service, shout
from tests.sweeps import rare
from vanilla_transformer.extensions.serving import server
from vanilla_transformer.extensions.serving.limits import Limits
from vanilla_transformer.extensions.serving.models import LoadedModel, Models, ServedModel
from vanilla_transformer.extensions.serving.service import create_service, create_service_of

BODY = json.dumps({"text": "one"}).encode()
HEAD = (
    b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n"
)
REQUEST = HEAD % len(BODY) + BODY
HEALTH = b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
LIMITS = {"max_connections": 3, "client_seconds": 1, "grace_seconds": 2}


@contextmanager
def running(translate=shout, cors=(), **limits):
    """Run a server on a thread; yield it and a function that connects to it."""
    limits = Limits(**LIMITS | limits)
    service = create_service(translate, limits, cors=cors)
    with running_service(service, limits) as running_server:
        (running_server.model,) = service.state.models

        def connect():
            return closing(socket.create_connection(running_server.address, timeout=10))

        yield running_server, connect


def read_status(connection):
    """Return the status of the answer, or None if the server closed the connection without one."""
    try:
        answer = connection.recv(1 << 16)
    except ConnectionResetError:
        return None
    return int(answer.split()[1]) if answer else None


def seconds_until_cut(connection, trickle=b""):
    """Return the time until the server closes the connection, sending `trickle` again and again."""
    start = time.monotonic()
    connection.settimeout(0.1)
    while time.monotonic() - start < 5:
        try:
            if trickle:
                connection.sendall(trickle)
            if not connection.recv(1 << 16):
                break
        except TimeoutError:
            pass
        except OSError:
            break
    return time.monotonic() - start


def test_server_admits_requests_beside_silent_connections():
    with running() as (_, connect), ExitStack() as silent:
        for _ in range(20):
            silent.enter_context(connect())
        for _ in range(3):
            with connect() as connection:
                connection.sendall(REQUEST)
                assert read_status(connection) == 200


def test_server_refuses_connections_beyond_requests_in_progress():
    model = SlowModel()
    connections = ExitStack()
    with running(model) as (_, connect), connections:
        one, two, three = (connections.enter_context(connect()) for _ in range(3))
        for connection in (one, two, three):
            connection.sendall(REQUEST)
        assert model.started.wait(10)
        time.sleep(0.1)
        with connect() as refused:
            assert read_status(refused) == 503
        model.proceed.set()
        for connection in (one, two, three):
            assert read_status(connection) == 200


SILENT = {
    "silent": (b"", b""),
    "half a line": (b"POST /translate HT", b""),
    "endless headers": (b"GET / HTTP/1.1\r\n", b"a: b\r\n"),
    "idle after an answer": (REQUEST, b""),
}


@pytest.mark.parametrize(
    "kind",
    [rare("silent"), rare("half a line"), "endless headers", "idle after an answer"],
)
def test_server_cuts_a_client_that_sends_no_request(kind):
    sent, trickle = SILENT[kind]
    with running() as (_, connect), connect() as connection:
        connection.sendall(sent)
        assert seconds_until_cut(connection, trickle) < 3


@pytest.mark.parametrize("trickle", [b"", b"a"])
def test_server_bounds_the_time_of_a_body(trickle):
    with running() as (_, connect), connect() as connection:
        connection.sendall(HEAD % 1000)
        start = time.monotonic()
        if trickle:
            assert seconds_until_cut(connection, trickle) < 3
        else:
            assert read_status(connection) == 408 and time.monotonic() - start < 3


def test_server_cuts_a_client_that_does_not_read_its_answer():
    def translate(texts, options, format):
        return [["a" * 30_000_000]]

    with running(translate) as (running_server, connect), connect() as connection:
        connection.sendall(REQUEST)
        connection.recv(10)
        time.sleep(1.6)
        assert not running_server.server_state.connections


def test_server_admits_requests_beside_clients_that_read_nothing():
    count, long = LIMITS["max_connections"], [["a" * 1_000_000]]

    def translate(texts, options, format):
        return long * len(texts)

    with running(translate, client_seconds=3) as (running_server, connect), ExitStack() as deaf:
        connections = running_server.server_state.connections
        for _ in range(count):
            deaf.enter_context(connect()).sendall(REQUEST * 20)

        def are_paused():
            paused = [connection.flow.write_paused for connection in list(connections)]
            return sum(paused) == count

        wait_until(are_paused)
        with connect() as connection:
            connection.sendall(HEALTH)
            assert read_status(connection) == 200
        wait_until(lambda: not connections)


CHUNKED = b"POST /translate HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
PREFLIGHT = (
    b"OPTIONS /translate HTTP/1.1\r\nHost: a\r\nOrigin: https://a\r\n"
    b"Access-Control-Request-Method: POST\r\n"
)


@pytest.mark.parametrize(
    ("request_head", "statuses"),
    [
        (CHUNKED, [422, 200]),
        (CHUNKED + b"Content-Length: 5\r\n", [400]),
        (CHUNKED.replace(b"POST", b"GET") + b"CONTENT-LENGTH: 0\r\n", [400]),
        (CHUNKED.replace(b"translate", b"nothing") + b"Content-Length: 5\r\n", [400]),
        (PREFLIGHT + b"Content-Length: 5\r\nTransfer-Encoding: Chunked\r\n", [400]),
        (CHUNKED.replace(b"/1.1", b"/1.0") + b"Connection: keep-alive\r\n", [422]),
        (CHUNKED.replace(b": chunked", b": gzip, chunked"), [400]),
        (
            b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n",
            [400],
        ),
    ],
)
def test_server_closes_after_a_request_of_unclear_length(request_head, statuses):
    """RFC 9112, section 6.1: or a proxy may read a body where this server reads a request."""
    with running(cors=["*"]) as (_, connect), connect() as connection:
        connection.sendall(request_head + b"\r\n0\r\n\r\n" + HEALTH)
        answers = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    received = [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+)", answers)]
    assert received == statuses


def test_server_takes_turns_between_tiny_chunks_and_others():
    with running(client_seconds=4) as (running_server, connect), connect() as attacker:
        attacker.setblocking(False)
        attacker.send(CHUNKED + b"\r\n")
        wait_until(lambda: running_server.server_state.tasks)
        attacker.send(b"1\r\na\r\n" * 500_000)
        turns = []
        (connection,) = running_server.server_state.connections
        receive = connection.data_received

        def receive_counted(data):
            turns.append(len(data))
            receive(data)

        connection.data_received = receive_counted
        with connect() as other:
            other.sendall(HEALTH)
            assert read_status(other) == 200
    assert 0 < max(turns) <= 4096


def test_server_forgets_the_texts_of_a_client_that_hangs_up():
    model = SlowModel()
    started = running(model, max_batch_size=1)
    with started as (running_server, connect), connect() as first:
        first.sendall(REQUEST)
        assert model.started.wait(10)
        body = json.dumps({"text": ["gone"] * 20}).encode()
        with connect() as gone:
            gone.sendall(HEAD % len(body) + body)
            wait_until(lambda: running_server.model.batcher.waiting == 20)
        wait_until(lambda: running_server.model.batcher.waiting == 0)
        model.proceed.set()
        assert read_status(first) == 200
        assert model.calls == [["one"]]


def test_server_answers_accepted_requests_before_it_ends():
    model = SlowModel()
    with running(model) as (running_server, connect), connect() as accepted:
        accepted.sendall(REQUEST)
        assert model.started.wait(10)
        running_server.stop()
        time.sleep(0.3)
        model.proceed.set()
        assert read_status(accepted) == 200


def test_server_ends_within_its_grace_period_with_open_clients():
    model = SlowModel()
    with running(model, max_connections=10) as (running_server, connect):
        with connect(), connect() as head, connect() as body, ExitStack() as others:
            waiting, idle = (others.enter_context(connect()) for _ in range(2))
            head.sendall(b"POST /translate HTTP/1.1\r\n")
            body.sendall(HEAD % 1000 + b"a")
            waiting.sendall(REQUEST)
            idle.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
            assert model.started.wait(10) and read_status(idle) == 200
            start = time.monotonic()
            running_server.stop()
            running_server.thread.join()
            assert time.monotonic() - start < 2
            assert read_status(waiting) == 503
        model.proceed.set()


def test_server_logs_the_model_the_texts_and_the_time_of_requests(capsys):
    body = json.dumps({"text": ["one", "two"]}).encode()
    with running() as (_, connect):
        for sent in (HEALTH, HEAD % len(body) + body, HEAD % 2 + b"[]"):
            with connect() as connection:
                connection.sendall(sent)
                read_status(connection)
    pattern = r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d,\d+ INFO: +.* default, texts: 2, \d+ ms"
    answered, refused = capsys.readouterr().out.splitlines()
    assert re.fullmatch(pattern, answered)
    assert '"POST /translate HTTP/1.1" 200 OK default,' in answered
    assert "422 Unprocessable" in refused and " -, texts: 0, " in refused


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows has no such signal")
def test_server_loads_its_models_again_at_sighup():
    loaded, ended = [], []

    def load():
        loaded.append(threading.current_thread())
        return LoadedModel(shout)

    model = ServedModel("one", Limits(**LIMITS), load, LoadedModel(shout))
    service = create_service_of(Models([model]), Limits(**LIMITS))
    running_server = server.Server(service, Limits(**LIMITS))
    listener = server.bind("127.0.0.1", 0)
    before = signal.signal(signal.SIGHUP, lambda number, frame: ended.append(number))

    def send():
        wait_until(lambda: running_server.started)
        os.kill(os.getpid(), signal.SIGHUP)
        wait_until(lambda: loaded or ended)
        running_server.stop()

    thread = threading.Thread(target=send)
    thread.start()
    running_server.run(sockets=[listener])
    thread.join()
    signal.signal(signal.SIGHUP, before)
    assert loaded and not ended


def run_server(translate, end, **limits):
    """Run the server until it ends by itself, and call `end` with a connection after a request.

    Return its status.
    """
    limits, listener = Limits(**LIMITS | limits), server.bind("127.0.0.1", 0)
    statuses = [None]
    service = create_service(translate, limits)
    listener.listen()  # or a connection would be refused until the server runs

    def run():
        try:
            server.run_server(service, listener, limits)
        except SystemExit as ended:
            statuses.append(ended.code)

    thread = threading.Thread(target=run)
    thread.start()
    address = listener.getsockname()
    with closing(socket.create_connection(address, timeout=10)) as connection:
        connection.sendall(REQUEST)
        end(service, connection)
        thread.join()
    return statuses[-1]


def test_run_server_ends_with_status_1_if_the_model_is_broken(capsys):
    def fail(texts, options, format):
        raise RuntimeError("no device")

    statuses = []

    def end(service, connection):
        statuses.append(read_status(connection))

    assert run_server(fail, end) == 1
    assert statuses == [500]
    assert "The model is broken (RuntimeError)" in capsys.readouterr().err


def test_run_server_ends_at_once_if_the_model_is_at_work(monkeypatch):
    """As it is for SIGTERM in a container, whose first process the signal itself does not end."""
    model, statuses = SlowModel(), []

    def end(service, connection):
        assert model.started.wait(10)
        next(iter(service.state.models)).batcher.on_broken()  # stops the server

    monkeypatch.setattr(server, "os", SimpleNamespace(_exit=statuses.append))
    run_server(model, end, grace_seconds=1)
    model.proceed.set()
    assert statuses == [0]
