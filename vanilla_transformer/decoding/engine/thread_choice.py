"""The number of threads that computes steps of few rows fastest, on a machine as it is now."""

from collections import deque

_RETRY = 32  # choices of which one is the slower number
_LATEST = 2  # times of each number that count, of which the lower one does not wait for other programs


class ThreadChoice:
    """
    Choose between all threads and one by the times of the latest steps.

    On idle cores, threads read the weights together. On busy ones, they wait for each other in each operation.
    """

    def __init__(self, threads: int):
        self._times = {number: deque[float](maxlen=_LATEST) for number in (threads, 1)}
        self._choices = 0

    def choose(self) -> int:
        """Return the faster number, and now and then the other one. At first, they take turns."""
        self._choices += 1
        least = min(self._times, key=lambda number: len(self._times[number]))
        if len(self._times[least]) < _LATEST:
            return least
        fastest, *others = sorted(self._times, key=lambda number: min(self._times[number]))
        return others[0] if others and self._choices % _RETRY == 0 else fastest

    def add(self, threads: int, seconds: float) -> None:
        """Add the time of a step on a number of threads."""
        self._times[threads].append(seconds)
