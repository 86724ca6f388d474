"""Work that waits until no engine of the process has decoded for a second, or until the process
ends.
"""

import atexit
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

IDLE_SECONDS = 1.0


class IdleWork:
    """Keep functions for later, each of which is called once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls = 0  # of engines that decode
        self._waiting = list[Callable[[], object]]()
        self._canceled = threading.Event()  # of the thread that waits now
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
                self._canceled.set()
                if self._waiting and not self._calls:
                    self._canceled = threading.Event()
                    threading.Thread(target=self._wait, args=(self._canceled,)).start()

    def finish(self) -> None:
        """Call all functions that wait: at the end of the process, which has waited for the other
        threads.
        """
        self._canceled.set()
        self._run_if_idle()

    def _wait(self, canceled: threading.Event) -> None:
        """Call the functions after a second, unless another engine decodes or the main thread ends
        before.
        """
        end = time.monotonic() + IDLE_SECONDS
        while time.monotonic() < end:
            if canceled.wait(0.02) or not threading.main_thread().is_alive():
                return
        self._run_if_idle()

    def _run_if_idle(self) -> None:
        with self._lock:
            if self._calls:
                return
            functions, self._waiting = self._waiting, []
        for function in functions:
            function()


idle_work = IdleWork()  # of all engines
