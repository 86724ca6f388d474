"""Work that waits until no engine of the process has decoded for a second, or until the process ends."""

import atexit
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

IDLE_SECONDS = 1.0


class IdleWork:
    """Keep functions for later, each of which is called once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls = 0  # of engines that decode
        self._waiting = list[Callable[[], object]]()
        self._timer: threading.Timer | None = None
        atexit.register(self.finish)

    def add(self, function: Callable[[], object]) -> None:
        """Add a function to call after the decoding in progress."""
        with self._lock:
            self._waiting.append(function)

    @contextmanager
    def decoding(self) -> Iterator[None]:
        """Hold the work back while an engine decodes, and for a second."""
        with self._lock:
            self._calls += 1
        try:
            yield
        finally:
            with self._lock:
                self._calls -= 1
                if self._timer is not None:
                    self._timer.cancel()
                    self._timer = None
                if self._waiting and not self._calls:
                    self._timer = threading.Timer(IDLE_SECONDS, self._run_if_idle)
                    self._timer.daemon = True
                    self._timer.start()

    def finish(self) -> None:
        """Call all functions that wait, once another thread that calls them has ended: at the end of the process."""
        timer = self._timer
        if timer is not None:
            timer.cancel()
            timer.join()
        self._run_if_idle()

    def _run_if_idle(self) -> None:
        with self._lock:
            if self._calls:
                return
            functions, self._waiting = self._waiting, []
        for function in functions:
            function()


idle_work = IdleWork()  # of all engines
