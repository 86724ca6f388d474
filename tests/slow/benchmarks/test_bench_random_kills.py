"""`bench_random_kills` kills runs, and all of them end as if nothing had happened."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_bench_random_kills_finds_same_weights():
    command = [sys.executable, "-m", "benchmarks.bench_random_kills", "--kills", "6", "--processes", "1", "2"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr
    lines = [line.split(maxsplit=1) for line in ended.stdout.splitlines()]
    assert lines == [["3", f"processes: {processes}, status 0, same weights"] for processes in (1, 2)]
