"""Waiting for other processes and threads, up to a limit."""

import time


def wait_until(condition, seconds=120):
    """Wait until `condition()` is true, or fail after so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "It took too long."
        time.sleep(0.01)
