"""
Resident memory of this process: its peak, and how much a block or a function adds to it.

It needs psutil only, so the environments of other toolkits can import it.
"""

import ctypes
import os
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import psutil

_CLEAR_REFS = Path("/proc/self/clear_refs")
_SAMPLING_SECONDS = 0.005


def peak_bytes() -> int:
    """
    Return the most resident memory that this process has had.

    Read from /proc where it exists: the maximum of `getrusage` starts at the parent's size.
    """
    if os.path.exists("/proc/self/status"):
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def peak_increase_of(step: Callable[[], None]) -> int:
    """Call `step` and return the most bytes of resident memory that it added."""
    _return_freed_memory()
    with kernel_peak_increase() as increases:
        step()
    return max(increases)


@contextmanager
def sampled_increase() -> Iterator[list[int]]:
    """Yield a list that collects the increase of resident memory, in bytes, every few milliseconds."""
    process, stop, increases = psutil.Process(), Event(), [0]
    before = process.memory_info().rss

    def sample() -> None:
        while not stop.wait(_SAMPLING_SECONDS):
            increases.append(process.memory_info().rss - before)

    thread = Thread(target=sample)
    thread.start()
    try:
        yield increases
    finally:
        stop.set()
        thread.join()


@contextmanager
def kernel_peak_increase() -> Iterator[list[int]]:
    """Yield a list that gets the kernel's own peak, which misses nothing; sample where it cannot be reset."""
    try:
        _CLEAR_REFS.write_text("5")  # resets VmHWM, see proc(5)
    except OSError:
        with sampled_increase() as increases:
            yield increases
        return
    before = psutil.Process().memory_info().rss
    increases = [0]
    yield increases
    increases.append(peak_bytes() - before)


def _return_freed_memory() -> None:
    """Return glibc's free memory to the system; a step that reused it would not be seen to allocate."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
