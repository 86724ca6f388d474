"""Compare numbers of worker processes by speed, and choose one."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from vanilla_transformer.decoding.engine_workers import open_pipeline

LEAST_GAIN = 1.05
_ROUNDS = 3
_SENTENCES_PER_WORKER = 256  # at least, by repetition, or the last ones of each worker would decide


@dataclass(frozen=True)
class WorkersResult:
    """
    The speed of a number of workers.

    Attributes:
        workers: Their number.
        sentences_per_second: The highest speed of several rounds, or 0.0 if a worker was killed.
    """

    workers: int
    sentences_per_second: float


def compare_workers(
    name: str | Path, sentences: Sequence[str], counts: Sequence[int], precision: str | None = None, **options: Any
) -> list[WorkersResult]:
    """Translate sentences by each number of workers, and return the results.

    Args:
        name, precision: See [`open_pipeline`].
        counts: Numbers of workers.
        options: Of the search.
    """
    sentences = [*islice(cycle(sentences), max(len(sentences), _SENTENCES_PER_WORKER * max(counts)))]
    return [WorkersResult(count, _speed(name, sentences, count, precision, options)) for count in counts]


def choose_workers(results: Sequence[WorkersResult]) -> WorkersResult:
    """Return the fastest result if it has at least `LEAST_GAIN` times the speed of the first one, else the first one.

    Args:
        results: Of one worker first.
    """
    fastest = max(results, key=lambda result: result.sentences_per_second)
    return fastest if fastest.sentences_per_second >= LEAST_GAIN * results[0].sentences_per_second else results[0]


def _speed(name: str | Path, sentences: list[str], workers: int, precision: str | None, options: dict) -> float:
    seconds = []
    try:
        with open_pipeline(name, workers, precision) as translate:
            for _ in range(1 + _ROUNDS):
                start = time.perf_counter()
                translate(sentences, progress_bar=False, **options)
                seconds.append(time.perf_counter() - start)
    except ChildProcessError:  # the memory is not enough for so many
        return 0.0
    return len(sentences) / min(seconds[1:])  # workers start in the first round


__all__ = ["LEAST_GAIN", "WorkersResult", "choose_workers", "compare_workers"]
