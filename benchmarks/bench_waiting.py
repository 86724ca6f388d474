"""
Measure how threads that wait for each other should wait, on idle and on busy cores.

    python -m benchmarks.bench_waiting [--busy 0 2] [--settings default "GOMP_SPINCOUNT=1000"]

Each worker process trains a small model and translates single sentences with the environment of its setting. The
settings take turns. With `--busy 2`, two other processes compute meanwhile, as on a shared machine.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any, ClassVar

from benchmarks.harness import BenchmarkArguments, read_arguments, run_command, write_report
from vanilla_transformer.cli import run

_BURN = "while True: pass"
# Trains for some seconds, then translates: prints updates, their wall and CPU seconds, and the seconds of sentences.
_WORK = """
import json, sys, time, torch
from benchmarks.random_models import random_model
from vanilla_transformer import Engine
seconds, sentences = float(sys.argv[1]), int(sys.argv[2])
torch.manual_seed(0)
model = random_model("small")
rows, length = 48, 14
batch = {name: torch.randint(4, 1000, (rows, length)) for name in ("input_ids", "labels")}
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
def update():
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
for _ in range(3):
    update()
updates, wall, cpu = 0, time.perf_counter(), time.process_time()
while time.perf_counter() - wall < seconds:
    update()
    updates += 1
found = {"updates": updates, "wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
engine = Engine(model.eval(), compile=False, max_new_tokens=14)
source = batch["input_ids"][:1].tolist()
times = []
for _ in range(sentences + 2):
    started = time.perf_counter()
    engine.translate_tokens(source, 1)
    times.append(time.perf_counter() - started)
print(json.dumps(found | {"sentence": sorted(times[2:])[sentences // 2]}))
"""


@dataclass
class WaitingArguments(BenchmarkArguments):
    """Settings, and how busy the cores are."""

    SHORT: ClassVar[dict[str, Any]] = {"rounds": 1, "seconds": 0.2, "sentences": 2, "busy": [0]}

    settings: list[str] = field(
        default_factory=lambda: (
            ["default", *(f"GOMP_SPINCOUNT={count}" for count in (100, 1000, 3000, 10_000, 30_000))]
            + ["OMP_WAIT_POLICY=passive", "OMP_NUM_THREADS=1"]
        ),
        metadata={"help": "Environments to compare: variables with commas between them, or `default`."},
    )
    busy: list[int] = field(
        default_factory=lambda: [0, 2], metadata={"help": "Numbers of other processes that compute meanwhile."}
    )
    rounds: int = field(default=5, metadata={"help": "Measurements of each setting."})
    seconds: float = field(default=4.0, metadata={"help": "Seconds of training in each measurement."})
    sentences: int = field(default=20, metadata={"help": "Sentences in each measurement, whose median counts."})


def main(arguments: Sequence[str]) -> None:
    _, options = read_arguments(WaitingArguments, arguments, "bench_waiting")
    rows = [row for busy in options.busy for row in measure(busy, options)]
    write_report("waiting", options, rows)


def measure(busy: int, options: WaitingArguments) -> list[dict[str, Any]]:
    """Return a row for each setting, with ratios to the first one."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in options.settings}
    with burning(busy):
        for _ in range(options.rounds):
            for name in options.settings:
                found[name].append(_work(name, options))
    rows: list[dict[str, Any]] = []
    for name, each in found.items():
        row: dict[str, Any] = {"other processes": busy, "setting": name}
        row["updates/s"] = [one["updates"] / one["wall"] for one in each]
        row["updates per CPU second"] = [one["updates"] / one["cpu"] for one in each]
        row["ms a sentence"] = [1000 * one["sentence"] for one in each]
        first = rows[0] if rows else row
        row["updates/s, ratio"] = median(row["updates/s"]) / median(first["updates/s"])
        row["ms a sentence, ratio"] = median(row["ms a sentence"]) / median(first["ms a sentence"])
        rows.append(row)
    return rows


@contextmanager
def burning(count: int) -> Iterator[None]:
    """Run processes that compute in the block."""
    processes = [subprocess.Popen([sys.executable, "-c", _BURN]) for _ in range(count)]
    try:
        time.sleep(0.5)
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _work(setting: str, options: WaitingArguments) -> dict[str, float]:
    given = [] if setting == "default" else setting.split(",")
    environment = dict(each.split("=", 1) for each in given)
    words = [sys.executable, "-c", _WORK, str(options.seconds), str(options.sentences)]
    return json.loads(run_command(words, setting, environment).splitlines()[-1])


if __name__ == "__main__":
    sys.exit(run(main))
