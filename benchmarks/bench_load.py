"""
Measure the HTTP service under load, by hey (`apt install hey`).

    python -m benchmarks.bench_load FOLDER

FOLDER is a trained model. Figures are ratios, since the machine may do other work. Waiting times of
many clients are over the mean of their round, which is the time of each one in a queue without
turns; others are over the time of the same texts alone, or of a full batch. `--checkout` measures
another state of this repository.
"""

import csv
import io
import json
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any, ClassVar

from benchmarks.bench_service import Service, running_service
from benchmarks.harness import ROOT, BenchmarkArguments, read_arguments, write_report
from vanilla_transformer.cli import run
from vanilla_transformer.errors import UserError

_SENTENCE = "The old woman buys a red apple."
_ANOTHER_ADDRESS = "127.0.0.2"
_DOCUMENT_BYTES = 60_000
_BATCH_SIZE = 32
_ROUNDS = 3  # of large requests


@dataclass
class LoadArguments(BenchmarkArguments):
    """Clients and their requests."""

    SHORT: ClassVar[dict[str, Any]] = {"requests": 2}

    clients: int = field(default=256, metadata={"help": "Clients, all at one address."})
    requests: int = field(default=8, metadata={"help": "Requests of each client."})
    checkout: str = field(
        default=str(ROOT), metadata={"help": "Root of the repository whose service is measured."}
    )


def main(arguments: Sequence[str]) -> None:
    (folder,), options = read_arguments(LoadArguments, arguments, "bench_load FOLDER", (1,))
    if shutil.which("hey") is None:
        raise UserError("The program hey must be installed, but it is not: `apt install hey`.")
    rows = list[dict[str, Any]]()
    with running_service(
        Path(folder).absolute(), options.checkout, "--metrics", "--request_seconds", "600"
    ) as service:
        service.ask([_SENTENCE] * 2 * _BATCH_SIZE)  # the first batches take longer
        loads = [
            partial(ask_by_hey, service, options, is_replaced=False),
            partial(ask_by_hey, service, options, is_replaced=True),
            partial(ask_for_many_texts, service),
            partial(ask_beside_a_document, service),
        ]
        for load in loads:
            rows.append(load())
            print(rows[-1], flush=True)
    write_report("load", options, rows, [f"Model: {Path(folder).name}."])


def ask_by_hey(service: Service, options: LoadArguments, is_replaced: bool) -> dict[str, Any]:
    """Let many clients ask one sentence after another, and return how long they wait, over the mean
    of their round.

    Args:
        is_replaced: Whether the service loads its model again meanwhile.
    """
    before, body = read_batches(service), json.dumps({"text": _SENTENCE})
    num_requests = str(options.clients * options.requests)
    command = ["hey", "-c", str(options.clients), "-n", num_requests, "-t", "120"]
    command += ["-m", "POST", "-T", "application/json", "-d", body, "-o", "csv"]
    command.append(f"http://127.0.0.1:{service.port}/translate")
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(subprocess.check_output, command, text=True)
        time.sleep(1)
        if is_replaced:
            service.process.send_signal(signal.SIGHUP)
        answers = list(csv.DictReader(io.StringIO(asking.result())))
    answers.sort(key=lambda answer: float(answer["offset"]))
    waited, ratios = [float(answer["response-time"]) for answer in answers], list[float]()
    # The first requests of all clients come at once, and only the last ones of them wait for all.
    for start in range(options.clients, len(waited), options.clients):
        of_a_round = waited[start : start + options.clients]
        ratios += [seconds / mean(of_a_round) for seconds in of_a_round]
    batches, texts = (now - then for now, then in zip(read_batches(service), before, strict=True))
    cuts = quantiles(ratios, n=100)
    failed = sum(answer["status-code"] != "200" for answer in answers)
    kind = "while the model is replaced" if is_replaced else "at one address"
    row = {"load": f"{options.clients} clients {kind}", "requests": len(answers), "failed": failed}
    return row | {"p50": cuts[49], "p90": cuts[89], "p99": cuts[98], "mean batch": texts / batches}


def read_batches(service: Service) -> tuple[float, float]:
    """Return how many batches there were so far, and how many texts."""
    with urllib.request.urlopen(f"http://127.0.0.1:{service.port}/metrics") as answer:
        metrics = answer.read().decode()
    batches, texts = (
        float(re.findall(rf"^batch_size_{name}\{{.*}} (\S+)$", metrics, re.MULTILINE)[0])
        for name in ("count", "sum")
    )
    return batches, texts


def seconds_of(service: Service, body: Any, address: str = "127.0.0.1") -> float:
    start = time.perf_counter()
    status, _ = service.ask(body, address)
    if status != 200:
        raise RuntimeError(f"The service answered with status {status}.")
    return time.perf_counter() - start


def ask_for_many_texts(service: Service) -> dict[str, Any]:
    """Return how long 128 texts take right after a short request, over their time alone."""
    texts, alone, late = [_SENTENCE] * 4 * _BATCH_SIZE, [], []
    for _ in range(_ROUNDS):
        alone.append(seconds_of(service, texts))
        with ThreadPoolExecutor(1) as pool:
            short = pool.submit(service.ask, _SENTENCE, _ANOTHER_ADDRESS)
            late.append(seconds_of(service, texts))
            short.result()
    return {"load": "128 texts after a short request", "p50": median(late) / median(alone)}


def ask_beside_a_document(service: Service) -> dict[str, Any]:
    """Return how long short requests wait beside a document, over the time of a full batch."""
    batch = [seconds_of(service, [_SENTENCE] * _BATCH_SIZE) for _ in range(_ROUNDS)]
    paragraph = f"<p>{_SENTENCE}</p>\n"
    page = paragraph * (_DOCUMENT_BYTES // len(paragraph))
    body = json.dumps({"text": page, "format": "html"}).encode()
    waited = list[float]()
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(service.ask, body, _ANOTHER_ADDRESS)
        time.sleep(1)
        while not asking.done():
            waited.append(seconds_of(service, _SENTENCE))
        failed = asking.result()[0] != 200
    row = {"load": "short requests beside a document of 60 kB", "requests": len(waited)}
    cuts = quantiles(waited, n=100)
    unit = median(batch)
    row |= {"failed": int(failed), "p50": cuts[49] / unit, "p90": cuts[89] / unit}
    return row | {"p99": cuts[98] / unit}


if __name__ == "__main__":
    sys.exit(run(main))
