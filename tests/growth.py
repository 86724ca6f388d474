"""How work grows with its text: its processor time at four times a size."""

import gc
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from vanilla_transformer.errors import UserError

MOST = 6  # times the time at a size that the work may take at four times the size
_FACTOR = 4
_ENOUGH = 0.05  # seconds of processor time that are measured exactly enough
_LIMIT = 3.0  # seconds after which the work is stopped
_REPEATS = 3
_LARGEST = 10**6  # characters of a text; work that needs no time on so many is not measured further
_LEAST = 0.01  # seconds that the clock measures well


class StoppedError(BaseException):
    """The work took too long. No `except Exception` hides this."""


def _stop(number: int, frame: Any) -> None:
    raise StoppedError


def processor_seconds(work: Callable[[str], Any], text: str) -> float:
    """Return the processor time of work on a text, at most the limit.

    The work may refuse the text.
    """
    before = signal.signal(signal.SIGVTALRM, _stop)
    gc.disable()
    start = time.process_time()
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, _LIMIT)
        with suppress(UserError, StoppedError):
            work(text)
        return time.process_time() - start
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
        gc.enable()


def measure_growth(
    work: Callable[[str], Any], build: Callable[[int], str], sizes: Sequence[int], floor: float
) -> float:
    """
    Return the ratio of the times of work on a text and on one of a quarter of its size, or 0 if it
    takes no time.

    A ratio that is too large is measured again, since other programs disturb the clock.

    Args:
        build: Returns a text of about a number of characters.
        sizes: Numbers of characters, of which the first is taken on which the work takes some time.
        floor: Seconds from which on a time tells something.
    """
    growth = float("inf")
    for _ in range(_REPEATS):
        growth = min(growth, _measure_once(work, build, sizes, floor))
        if growth <= MOST:
            break
    return growth


def _measure_once(
    work: Callable[[str], Any], build: Callable[[int], str], sizes: Sequence[int], floor: float
) -> float:
    """Return the ratio of times. A ratio that is too large is measured again on larger texts."""
    before = 0.0
    for size in sizes:
        before = processor_seconds(work, build(size))
        if before >= floor:
            break
    else:
        return 0.0
    ratios = list[float]()
    # The work would be stopped after the limit, and work without a loop would never take enough.
    while len(ratios) < 2 and before * MOST < _LIMIT and size < _LARGEST:
        seconds = processor_seconds(work, build(_FACTOR * size))
        if seconds > MOST * before:
            seconds = _least_seconds(work, build(_FACTOR * size))
            before = _least_seconds(work, build(size))
        if before > _LEAST:
            ratios.append(seconds / before)
            if ratios[-1] <= MOST:
                break
        before, size = seconds, _FACTOR * size
    if not ratios and size >= _LARGEST:
        return 0.0
    return min(ratios, default=before / _LEAST)  # without ratios, a short text took long


def _least_seconds(work: Callable[[str], Any], text: str) -> float:
    repeats = [processor_seconds(work, text)]
    while len(repeats) < _REPEATS and sum(repeats) < _ENOUGH:
        repeats.append(processor_seconds(work, text))
    return min(repeats)
