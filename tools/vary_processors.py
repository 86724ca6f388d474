#!/usr/bin/env python3
"""Run the tests that compare numbers or decoded tokens as other processors would compute them, and
print a table.

    python tools/vary_processors.py                       # 12 settings, which have all pairs of
    values python tools/vary_processors.py --all                 # all 36
    python tools/vary_processors.py --tests tests/golden  # other tests

ATen and oneDNN choose their kernels by the instructions of the processor, and sums of several
threads are rounded in another order. `ATEN_CPU_CAPABILITY` and `ONEDNN_MAX_CPU_ISA` leave
instructions out.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import torch

ROOT = Path(__file__).resolve().parents[1]
# The set of tests: files with one of these words, in the folders that `make test` runs.
NUMERIC = re.compile(
    r"assert_close|approx\(|allclose|close_to|isclose|assert_same|_cases import|losses\[|doors"
)
FOLDERS = ["unit", "integration", "golden", "extensions/*/unit", "extensions/*/integration"]
ATEN = ["default", "avx2", "avx512"]
ONEDNN = ["SSE41", "AVX2", "AVX512_CORE", None]  # None for all that the processor has
THREADS = [1, 2, 4]


class Setting(NamedTuple):
    """The instructions and threads that a process uses."""

    aten: str
    onednn: str | None
    threads: int

    def environment(self) -> dict[str, str]:
        """Return the variables of a process. `tests/fixtures.py` reads `TEST_THREADS`."""
        environment = {
            name: value for name, value in os.environ.items() if name != "ONEDNN_MAX_CPU_ISA"
        }
        threads = str(self.threads)
        environment |= {
            "ATEN_CPU_CAPABILITY": self.aten,
            "OMP_NUM_THREADS": threads,
            "TEST_THREADS": threads,
        }
        return (
            environment
            if self.onednn is None
            else environment | {"ONEDNN_MAX_CPU_ISA": self.onednn}
        )


def all_settings() -> list[Setting]:
    return [Setting(*values) for values in product(ATEN, ONEDNN, THREADS)]


def pairwise_settings() -> list[Setting]:
    """Return settings in which any two values meet: a Latin square."""
    return [
        Setting(aten, onednn, THREADS[(row + column) % len(THREADS)])
        for row, onednn in enumerate(ONEDNN)
        for column, aten in enumerate(ATEN)
    ]


def numeric_tests() -> list[str]:
    """Return the paths of the tests, relative to the checkout."""
    files = (path for folder in FOLDERS for path in (ROOT / "tests").glob(f"{folder}/**/test_*.py"))
    return sorted(
        str(path.relative_to(ROOT))
        for path in files
        if NUMERIC.search(path.read_text(encoding="utf-8"))
    )


def run(setting: Setting, tests: list[str]) -> Iterator[str]:
    """Run tests, and yield the row of the table and the names of failed tests."""
    options = ["-q", "-p", "no:cacheprovider", "--numprocesses", "2", "--dist", "loadfile"]
    start = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        env=setting.environment(),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    lines = ended.stdout.splitlines()
    result = (
        re.sub(r" in [\d.]+s.*|, \d+ (warnings?|deselected)|=+ ?", "", lines[-1])
        if lines
        else "no output"
    )
    values = (
        setting.aten,
        setting.onednn or "unset",
        setting.threads,
        result,
        round(time.monotonic() - start),
    )
    yield f"| {' | '.join(map(str, values))} |"
    yield from (line for line in lines if line.startswith(("FAILED", "ERROR")))
    if ended.returncode and not any(line.startswith(("FAILED", "ERROR")) for line in lines):
        yield f"ERROR: pytest ended with status {ended.returncode}."


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--tests", nargs="+", default=numeric_tests())
    options = parser.parse_args(words)
    settings = all_settings() if options.all else pairwise_settings()
    # Without it, ATen's kernels end in SIGILL.
    has_avx512 = torch.cpu.get_capabilities().get("avx512_f", False)
    failures = []
    print(
        "| ATEN_CPU_CAPABILITY | ONEDNN_MAX_CPU_ISA | threads | result | seconds |\n"
        "|---|---|---|---|---|",
        flush=True,
    )
    for setting in settings:
        if setting.aten == "avx512" and not has_avx512:
            print(
                f"| avx512 | {setting.onednn or 'unset'} | {setting.threads} | the processor has "
                "none | |"
            )
            continue
        row, *failed = run(setting, options.tests)
        print(row, flush=True)
        failures += [
            f"{setting.aten}, {setting.onednn or 'unset'}, {setting.threads}: {line}"
            for line in failed
        ]
    print("\n".join(["", *failures]) if failures else "\nAll passed.")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
