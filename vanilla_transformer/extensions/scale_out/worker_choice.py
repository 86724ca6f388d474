"""Measure on this machine how many worker processes translate fastest."""

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch

from vanilla_transformer.decoding.engine.precision import AUTO
from vanilla_transformer.decoding.loading import open_pipeline
from vanilla_transformer.errors import LostProcessError
from vanilla_transformer.utils.device_utils import usable_cores

from .engine_workers import save_workers, threads_of, worker_counts

_ROUNDS = 3
LEAST_GAIN = 1.05
_SENTENCES_PER_WORKER = 256  # at least, by repetition, or the last ones of each worker would decide


def compare_workers(
    name: str | Path, sentences: Sequence[str], counts: Sequence[int], precision: str | None = None, **options: Any
) -> dict[int, float]:
    """Return the sentences a second of each number of workers, or 0.0 if a worker was killed.

    Args:
        counts: Numbers of workers.
        options: Options of the search.
    """
    sentences = [*islice(cycle(sentences), max(len(sentences), _SENTENCES_PER_WORKER * max(counts)))]
    return {count: _speed(name, sentences, count, precision, options) for count in counts}


def choose_workers(speeds: Mapping[int, float]) -> int:
    """Return the fastest number of workers if it has at least `LEAST_GAIN` times the speed of one, else 1."""
    fastest = max(speeds, key=speeds.__getitem__)
    return fastest if speeds[fastest] >= LEAST_GAIN * speeds[1] else 1


def _speed(name: str | Path, sentences: list[str], workers: int, precision: str | None, options: dict) -> float:
    seconds = []
    try:
        with open_pipeline(name, workers, precision) as translate:
            for _ in range(1 + _ROUNDS):
                start = time.perf_counter()
                translate(sentences, progress_bar=False, **options)
                seconds.append(time.perf_counter() - start)
    except LostProcessError:  # the memory is not enough for so many
        return 0.0
    return len(sentences) / min(seconds[1:])  # workers start in the first round


def threads_to_compile(workers: int | str) -> list[int]:
    """Return the numbers of threads of so many workers, or of the workers that `auto` compares."""
    cores, most = usable_cores(), torch.get_num_threads()
    counts = worker_counts(cores, most) if workers == AUTO else [int(workers)]
    return [*dict.fromkeys(threads_of(count, cores, most) for count in counts)]


def measure_workers(
    name: str, model: Any, sentences: Sequence[str], precision: str, beams: int, report: Callable[[str], Any]
) -> None:
    """Compare numbers of workers, report a table, and store the one that `auto` means on this machine."""
    cores, most = usable_cores(), torch.get_num_threads()
    speeds = compare_workers(name, sentences, worker_counts(cores, most), precision, num_beams=beams)
    report("\n| workers | threads of each | sentences a second |\n|---|---|---|")
    for workers, speed in speeds.items():
        shown = f"{speed:.1f}" if speed else "not enough memory"
        report(f"| {workers} | {threads_of(workers, cores, most)} | {shown} |")
    chosen = choose_workers(speeds)
    reason = f"{speeds[chosen] / speeds[1]:.2f} times the speed of one."
    save_workers(model, precision, beams, chosen, reason)
    report(f"\n`--workers auto` is {chosen}: {reason}")
