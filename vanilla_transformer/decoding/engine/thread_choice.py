"""The number of threads that computes steps fastest, on a machine as it is now."""

from collections import deque

_SHARE_OF_TRIALS = 1 / 100  # of the time that may be lost on slower numbers
# Times of each number that count; the lower one does not wait for other programs.
_LATEST = 2


class ThreadChoice:
    """
    Choose among numbers of threads by the times of the latest steps on each.

    On idle cores, threads read the weights together. On busy ones, they wait for each other in each
    operation.
    """

    def __init__(self, *numbers: int):
        self._times = {number: deque[float](maxlen=_LATEST) for number in numbers}
        self._choices = 0  # since a slower number was chosen

    def choose(self) -> int:
        """Return the fastest number, or another one, unless it was so slow that it has to wait."""
        untried = [number for number, times in self._times.items() if not times]
        if untried:
            return untried[0]
        self._choices += 1
        seconds, fastest = min((min(times), number) for number, times in self._times.items())
        for number, times in self._times.items():
            if (
                number != fastest
                and min(times) - seconds < self._choices * seconds * _SHARE_OF_TRIALS
            ):
                self._choices = 0
                return number
        return fastest

    def add(self, threads: int, seconds: float) -> None:
        """Add the time of a step on a number of threads."""
        self._times[threads].append(seconds)
