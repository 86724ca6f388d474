"""The command `bench_resume` finds no difference."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_bench_resume_finds_every_item_equal(tmp_path):
    output = tmp_path / "resume.md"
    command = [sys.executable, "-m", "benchmarks.bench_resume", "--output", str(output)]
    ended = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=1800
    )
    assert ended.returncode == 0, ended.stderr
    assert output.read_text() == ended.stdout
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in ended.stdout.splitlines()[2:]]
    assert [row[1] for row in rows] == ["1"] * 4 + ["2"] * 4
    # Before update 2, inside update 4 and while checkpoint 3 was written, with one process and with two.
    assert [rows[index][2] for index in (0, 1, 3, 4, 5, 7)] == ["1", "3", "2"] * 2
    assert all(cell == "equal" for row in rows for cell in row[3:])
