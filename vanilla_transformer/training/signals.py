"""Stop training cleanly at SIGINT and SIGTERM."""

import signal
from typing import Any

from accelerate import Accelerator

from .distributed import sum_over_processes


class TrainingInterrupted(KeyboardInterrupt):
    """SIGINT or SIGTERM ended a run early. Its last checkpoint is complete; the same command resumes from it."""

    exit_status = 75  # EX_TEMPFAIL in sysexits.h: try the same again


class StopSignal:
    """Catch SIGINT (Ctrl-C) and SIGTERM (preemption), and stop all processes after the same step.

    The first signal is remembered until `check` is called. A second one ends the program at once.

    Attributes:
        received: Whether this process received a signal.
        interrupted: Whether a signal to any process was the reason to stop.
    """

    def __init__(self, accelerator: Accelerator):
        self.accelerator = accelerator
        self.received = self.interrupted = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "StopSignal":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: Any) -> None:
        self._restore_handlers()

    def _receive(self, signal_number: int, frame: Any) -> None:
        self.received = True
        self._restore_handlers()

    def _restore_handlers(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def check(self, finished: bool) -> bool:
        """Return whether training stops: as soon as one process is finished or received a signal.

        All processes must call it together. A signal that arrives meanwhile counts at the next call.
        """
        received = self.received
        if finished or received:
            self.accelerator.set_trigger()
        if not self.accelerator.check_trigger():
            return False
        self.interrupted = bool(sum_over_processes(self.accelerator, [received])[0])
        return True
