"""The order of the tests of a GPU, and a file of their outcomes, which `make gpu` reads."""

import pytest

from benchmarks.gpu_report import Rows


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rows", help="File that gets a JSON line for each test of tests/gpu as soon as it ends."
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--rows"):
        config.pluginmanager.register(Recorder(Rows(config.getoption("--rows"), "correctness")))


class Recorder:
    """Order the tests, and write name, outcome and first line of the failure of each one."""

    def __init__(self, rows: Rows):
        self._rows = rows

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put tests that compile for minutes last: if time is over, the others have run."""
        items.sort(key=lambda item: "inductor" in item.name)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            name, failed = report.nodeid.rpartition("/")[2], report.outcome == "failed"
            reason = _last_line(report.longreprtext) if failed else None
            self._rows.add(
                test=name, outcome=report.outcome, seconds=round(report.duration, 2), reason=reason
            )


def _last_line(text: str) -> str:
    lines = (
        [line for line in text.splitlines() if line.startswith("E ")] or text.splitlines() or [""]
    )
    return lines[0].removeprefix("E").strip()[:120]
