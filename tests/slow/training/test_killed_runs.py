"""Runs that are killed at random moments and resumed have the weights of an uninterrupted one, bit
for bit.
"""

import json
import subprocess
import sys

from benchmarks.harness import ROOT


def test_runs_resume_after_kills_at_random_moments():
    command = [sys.executable, "-m", "tests.killed_runs", "4"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800)
    assert ended.returncode == 0, ended.stderr
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert rows == [{"processes": n, "runs": 2, "status": 0, "weights": True} for n in (1, 2)]
