"""
The part `correctness` of `bench_gpu`: run the tests in `tests/gpu` in this process.

    python -m benchmarks.gpu_correctness correctness ROWS

`ROWS` gets a JSON line for each test: its name, its outcome, and the first line of its failure.
"""

import sys

import pytest

from benchmarks.gpu_report import Rows
from benchmarks.harness import ROOT

TESTS = ROOT / "tests" / "gpu"


class Recorder:
    """A plugin of pytest that orders the tests, and writes the outcome of each one as soon as it ends."""

    def __init__(self, rows: Rows):
        self._rows = rows

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put tests that compile for minutes last: if time is over, the others have run."""
        items.sort(key=lambda item: "inductor" in item.name)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            name, failed = report.nodeid.rpartition("/")[2], report.outcome == "failed"
            reason = _last_line(report.longreprtext) if failed else None
            self._rows.add(test=name, outcome=report.outcome, seconds=round(report.duration, 2), reason=reason)


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.startswith("E ")] or text.splitlines() or [""]
    return lines[0].removeprefix("E").strip()[:120]


def main(rows_file: str) -> int:
    """Return pytest's exit status."""
    # Without the fixtures of the other tests, which need more packages.
    flags = ["--confcutdir", str(TESTS), "--rootdir", str(ROOT), "-p", "no:cacheprovider", "--quiet"]
    return int(pytest.main([*flags, str(TESTS)], plugins=[Recorder(Rows(rows_file, "correctness"))]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[2]))
