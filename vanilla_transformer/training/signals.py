"""Stop training cleanly at SIGINT and SIGTERM."""

import math
import signal
import time
from typing import Any

from accelerate import Accelerator

from .distributed import sum_over_processes

_SECONDS_BETWEEN_TALKS = 1.0
_SHORTEST_STEP = 1e-3  # seconds


class TrainingInterrupted(KeyboardInterrupt):
    """SIGINT or SIGTERM ended a run early.

    Its last checkpoint is complete; the same command resumes from it.
    """

    exit_status = 75  # EX_TEMPFAIL in sysexits.h: try the same again


class StopSignal:
    """Catch SIGINT (Ctrl-C) and SIGTERM (preemption), and stop all processes after the same step.

    A single process stops after the step in progress. Several talk about it once a second, or after
    each longer step: more often would make each host wait for the slowest one.

    The first signal is remembered until `check` is called. A second one ends the program at once.

    Attributes:
        received: Whether this process received a signal.
        interrupted: Whether a signal to any process was the reason to stop.
    """

    def __init__(self, accelerator: Accelerator):
        self.accelerator = accelerator
        self.received = self.interrupted = False
        self._previous: dict[int, Any] = {}
        self._next_step = self._last_step = 0
        self._since, self._seconds_per_step = time.monotonic(), math.inf

    def __enter__(self) -> "StopSignal":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: Any) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _receive(self, signal_number: int, frame: Any) -> None:
        self.received = True
        self.__exit__()  # a second signal is the previous handlers'

    def due(self, step: int) -> bool:
        """Return whether processes talk to each other after `step`: all of them or none, about once
        a second.
        """
        return self.accelerator.num_processes == 1 or step >= self._next_step

    def check(self, step: int, finished: bool, at_once: bool = False) -> bool:
        """Return whether training stops: if a process is finished or received a signal, and all
        know it.

        All processes must call it together. A signal that arrives meanwhile counts at the next
        call.

        Args:
            step: Steps so far.
            finished: Whether this process has reached a limit. Clocks differ, so that the others
                may not have.
            at_once: Talk now, even if it is not due. All processes must agree.
        """
        if not (at_once or self.due(step)):
            return False
        received = self.received
        if self.accelerator.num_processes == 1:
            self.interrupted = received
            return finished or received
        wishes = [finished or received, received, self._seconds_per_step]
        stops, interruptions, seconds = sum_over_processes(self.accelerator, wishes).tolist()
        # The next talk is after a step that follows from the mean of all processes.
        seconds_per_step = max(seconds / self.accelerator.num_processes, _SHORTEST_STEP)
        self._next_step = step + max(1, int(_SECONDS_BETWEEN_TALKS / seconds_per_step))
        now = time.monotonic()
        if step > self._last_step:
            self._seconds_per_step = (now - self._since) / (step - self._last_step)
        self._since, self._last_step = now, step
        self.interrupted = interruptions > 0
        return stops > 0
