"""
Measure the HTTP service under hostile clients: failures and waiting times of the others, memory,
time to end.

    python -m benchmarks.bench_service [FOLDER]

FOLDER is a trained model; by default a small model with random weights. `--checkout` measures
another state of this repository.
"""

import http.client
import json
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any, ClassVar, NamedTuple

import psutil

from benchmarks.harness import ROOT, BenchmarkArguments, read_arguments, write_report
from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
    paper_generation_config,
)
from vanilla_transformer.cli import run
from vanilla_transformer.data.demo_corpus import read_demo_corpus
from vanilla_transformer.data.tokenizer_training import train_tokenizer
from vanilla_transformer.loading.model_folders import save_model_folder

_SENTENCE = "The old woman buys a red apple."
_OTHERS = 4  # clients beside the hostile one
_HOSTILE_ADDRESS = "127.0.0.2"
_LONGEST_SECONDS = 120


@dataclass
class ServiceArguments(BenchmarkArguments):
    """Amounts of work."""

    SHORT: ClassVar[dict[str, Any]] = {"requests": 500, "seconds": 5, "connections": 50}

    requests: int = field(
        default=10_000, metadata={"help": "Requests of random lengths, for the growth of memory."}
    )
    seconds: int = field(
        default=20, metadata={"help": "Seconds to measure waiting times, with and without a rival."}
    )
    connections: int = field(default=300, metadata={"help": "Connections held open at the end."})
    checkout: str = field(
        default=str(ROOT), metadata={"help": "Root of the repository whose service is measured."}
    )


class Service(NamedTuple):
    """A running service."""

    process: subprocess.Popen
    port: int

    def ask(self, text: Any, source: str = "127.0.0.1") -> tuple[int, int]:
        """Send a request and return the status and the bytes of the answer; the status is 0 without
        an answer.
        """
        body = text if isinstance(text, bytes) else json.dumps({"text": text}).encode()
        address = ("127.0.0.1", self.port)
        connection = http.client.HTTPConnection(
            *address, timeout=_LONGEST_SECONDS, source_address=(source, 0)
        )
        with closing(connection):
            try:
                connection.request("POST", "/translate", body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                return answer.status, len(answer.read())
            except (OSError, http.client.HTTPException):
                return 0, 0

    def megabytes(self) -> float:
        return psutil.Process(self.process.pid).memory_info().rss / 1e6


def main(arguments: Sequence[str]) -> None:
    folders, options = read_arguments(ServiceArguments, arguments, "bench_service FOLDER", (0, 1))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(folders[0]).absolute() if folders else save_random_model(Path(temporary))
        write_report("service", options, rows(measure(folder, options)))


def save_random_model(folder: Path) -> Path:
    """Save a small model with random weights and return its folder."""
    tokenizer = train_tokenizer(
        [pair.source for pair in read_demo_corpus("test", 500)], vocab_size=800
    )
    config = VanillaTransformerConfig(
        vocab_size=len(tokenizer),
        d_model=256,
        encoder_layers=2,
        decoder_layers=2,
        encoder_ffn_dim=1024,
        decoder_ffn_dim=1024,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
    )
    model = VanillaTransformerForConditionalGeneration(config)
    model.generation_config = paper_generation_config(0, 2, 1, max_new_tokens_beyond_source=4)
    return save_model_folder(model, tokenizer, folder / "model")


@contextmanager
def running_service(folder: Path, checkout: str, *flags: str) -> Iterator[Service]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "vanilla_transformer",
        "serve",
        str(folder),
        "--port",
        str(port),
        *flags,
    ]
    process = subprocess.Popen(
        command, cwd=checkout, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    service = Service(process, port)
    try:
        while service.ask(_SENTENCE)[0] != 200:
            if process.poll() is not None:
                raise RuntimeError(f"The service ended with status {process.returncode}.")
            time.sleep(0.2)
        yield service
    finally:
        process.kill()
        process.wait()


def measure(folder: Path, options: ServiceArguments) -> dict[str, Any]:
    """Attack one service after the other and return all figures.

    Waiting times and memory are measured on fresh services, since an attack can keep one busy for
    minutes.
    """
    with running_service(folder, options.checkout) as service:
        found: dict[str, Any] = {
            "failed": count_failures(service),
            "invalid": send_invalid_list(service),
        }
        found["emoji"] = send_emoji(service)
    with running_service(folder, options.checkout) as service:
        found["alone"] = waiting_times(service, options.seconds)
        with rival(lambda: service.ask([_SENTENCE] * 256, _HOSTILE_ADDRESS)):
            found["beside a rival"] = waiting_times(service, options.seconds)
        found["held"] = end_with_held_connections(service, options.connections)
    with running_service(folder, options.checkout) as service:
        found["memory"] = memory_by_requests(service, options.requests)
    return found


def count_failures(service: Service) -> dict[str, int]:
    """Send 80 good requests beside requests with a lone surrogate, and count the good ones without
    translation.
    """
    bad = b'{"text": "\\ud800"}'
    with ThreadPoolExecutor(16) as pool:
        bodies = [bad if number % 5 == 4 else _SENTENCE for number in range(100)]
        statuses = list(pool.map(lambda body: (body == bad, service.ask(body)[0]), bodies))
    return {
        "requests": 80,
        "failed": sum(not is_bad and status != 200 for is_bad, status in statuses),
    }


def send_invalid_list(service: Service) -> dict[str, float]:
    """Send a list of 300,000 numbers and return the bytes and the seconds of the answer."""
    body, start = json.dumps({"text": [1] * 300_000}).encode(), time.perf_counter()
    return {
        "sent": len(body),
        "received": service.ask(body)[1],
        "seconds": time.perf_counter() - start,
    }


def send_emoji(service: Service) -> dict[str, float]:
    """Send four texts of 5,000 emoji and return the status and the seconds of the answer."""
    start = time.perf_counter()
    return {
        "status": service.ask(["\U0001f642" * 5000] * 4)[0],
        "seconds": time.perf_counter() - start,
    }


def waiting_times(service: Service, seconds: float) -> dict[str, float]:
    """Return quantiles of the seconds that some clients with one sentence each wait, and how many
    requests failed.
    """
    end = time.perf_counter() + seconds

    def client(number: int) -> list[tuple[int, float]]:
        answers = []
        while time.perf_counter() < end:
            start = time.perf_counter()
            status, _ = service.ask(_SENTENCE)
            answers.append((status, time.perf_counter() - start))
            time.sleep(0.1 * number)  # so that the clients do not all ask at the same time
        return answers

    with ThreadPoolExecutor(_OTHERS) as pool:
        answers = [each for answers in pool.map(client, range(_OTHERS)) for each in answers]
    cuts = quantiles([waited for _, waited in answers], n=20)
    failed = sum(status != 200 for status, _ in answers)
    return {"requests": len(answers), "failed": failed, "p50": cuts[9], "p95": cuts[18]}


@contextmanager
def rival(request: Callable[[], Any]) -> Iterator[None]:
    """Send one request after the other, on a thread, until the block ends."""
    stopped = False

    def send() -> None:
        while not stopped:
            request()

    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send)
        time.sleep(1)
        try:
            yield
        finally:
            stopped = True
        sending.result()


def memory_by_requests(service: Service, requests: int) -> dict[str, Any]:
    """Return the resident megabytes of the service after 1%, 10%, 50% and all of the requests, and
    the failed ones.
    """
    generator = random.Random(0)
    words = _SENTENCE.split()
    texts = [
        " ".join(generator.choices(words, k=generator.randint(1, 40))) for _ in range(requests)
    ]
    megabytes, failed, start = {}, 0, 0
    with ThreadPoolExecutor(16) as pool:
        for share in (0.01, 0.1, 0.5, 1.0):
            end = int(requests * share)
            failed += sum(status != 200 for status, _ in pool.map(service.ask, texts[start:end]))
            megabytes[end], start = service.megabytes(), end
    return {"requests": requests, "failed": failed, "megabytes": megabytes}


def end_with_held_connections(service: Service, connections: int) -> dict[str, float]:
    """Send SIGTERM while connections are silent, half a request or in progress; return the seconds
    to the end.
    """
    head = b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    beginnings = [
        b"",
        head,
        head + b"Content-Length: 1000\r\n\r\n{",
        b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n",
    ]
    with ExitStack() as held, ThreadPoolExecutor(1) as pool:
        for number in range(connections):
            connection = held.enter_context(socket.create_connection(("127.0.0.1", service.port)))
            connection.sendall(beginnings[number % len(beginnings)])
        answer = pool.submit(service.ask, [_SENTENCE] * 64)
        time.sleep(0.5)
        start = time.perf_counter()
        service.process.send_signal(signal.SIGTERM)
        try:
            service.process.wait(_LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            service.process.kill()
        return {"seconds": time.perf_counter() - start, "status of a request": answer.result()[0]}


def rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row of the table for each attack."""
    invalid, emoji, memory = found["invalid"], found["emoji"], found["memory"]
    megabytes = ", ".join(
        f"{size:,.0f} MB after {count:,}" for count, size in memory["megabytes"].items()
    )
    lines = [
        ("good requests beside lone surrogates", "", found["failed"]),
        (
            "a list of 300,000 numbers",
            f"{invalid['received']:,} bytes, {invalid['seconds']:.2f} s",
            {},
        ),
        ("four texts of 5,000 emoji", f"status {emoji['status']}, {emoji['seconds']:.2f} s", {}),
        ("waiting times of four clients", _waited(found["alone"]), found["alone"]),
        (
            "the same beside a client with 256 texts",
            _waited(found["beside a rival"]),
            found["beside a rival"],
        ),
        ("SIGTERM to the end with held connections", f"{found['held']['seconds']:.1f} s", {}),
        ("resident memory by requests of random lengths", megabytes, memory),
    ]
    return [
        {
            "attack": attack,
            "result": result,
            "requests": counts.get("requests"),
            "failed": counts.get("failed"),
        }
        for attack, result, counts in lines
    ]


def _waited(times: dict[str, float]) -> str:
    return f"p50 {times['p50']:.3f} s, p95 {times['p95']:.3f} s"


if __name__ == "__main__":
    sys.exit(run(main))
