"""Unit, integration and slow tests, by the name of a folder of theirs, and the fixtures of slow
tests.

Unit tests that start a process or open a network connection fail. Slow tests get the mark `slow`.
"""

import os
import subprocess
import sys
from pathlib import Path

import matplotlib.font_manager  # noqa: F401 - asks `fc-list` for the fonts when a machine first imports it
import pytest

from tests.axe import install_axe
from tests.browser import open_browser

TESTS = Path(__file__).parent
FORBIDDEN = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec"}
FORBIDDEN |= {"socket.bind", "socket.connect", "socket.getaddrinfo"}
_running_test = None  # node id of the unit test in progress


def _refuse(event, arguments):
    """Fail the test in progress at a forbidden audit event (PEP 578)."""
    if _running_test and event in FORBIDDEN:
        # This exception is a BaseException, so `except Exception` in a library does not hide it.
        pytest.fail(
            f"{_running_test} causes {event!r}, which unit tests must not; move it to "
            "tests/integration.",
            False,
        )


sys.addaudithook(_refuse)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    global _running_test
    _running_test = item.nodeid if is_in(item, "unit") else None
    try:
        return (yield)
    finally:
        _running_test = None


def is_in(item, tier):
    """Return whether a test is in a folder with the name of a tier."""
    return tier in item.path.relative_to(TESTS).parts


def pytest_collection_modifyitems(items):
    for item in items:
        if is_in(item, "slow"):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def browser(tmp_path):
    with open_browser(tmp_path / "profile") as driver:
        yield driver


@pytest.fixture(scope="session")
def axe(tmp_path_factory):
    return install_axe(tmp_path_factory.mktemp("axe"))


@pytest.fixture(scope="session")
def run_with_torchao(tmp_path_factory):
    """Return a function that runs code in a process that has torchao, whose import prints lines
    about GPUs.
    """
    target = tmp_path_factory.mktemp("torchao")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(target),
        "torchao==0.18.0",
    ]
    subprocess.run(pip, check=True, capture_output=True)

    def run(code, *arguments):
        paths = {"PYTHONPATH": os.pathsep.join([str(target), os.getcwd()])}
        paths["VANILLA_TRANSFORMER_CACHE"] = str(target / "cache")
        command = [sys.executable, "-c", code, *map(str, arguments)]
        ended = subprocess.run(
            command, env=os.environ | paths, capture_output=True, text=True, timeout=500
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.splitlines()

    return run
