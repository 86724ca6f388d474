"""Fail unit tests that start a process or open a network connection: they belong to `tests/integration`."""

import sys
from pathlib import Path

import matplotlib.font_manager  # noqa: F401 - asks `fc-list` for the fonts when a machine first imports it
import pytest

FORBIDDEN = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec"}
FORBIDDEN |= {"socket.bind", "socket.connect", "socket.getaddrinfo"}
FOLDER = Path(__file__).parent
_running_test = None  # node id of the unit test in progress


def _refuse(event, arguments):
    """Fail the test in progress at a forbidden audit event (PEP 578)."""
    if _running_test and event in FORBIDDEN:
        # This exception is a BaseException, so `except Exception` in a library does not hide it.
        pytest.fail(
            f"{_running_test} causes {event!r}, which unit tests must not; move it to tests/integration.", False
        )


sys.addaudithook(_refuse)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    global _running_test
    _running_test = item.nodeid if item.path.is_relative_to(FOLDER) else None
    try:
        return (yield)
    finally:
        _running_test = None
