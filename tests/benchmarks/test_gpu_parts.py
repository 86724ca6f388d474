"""Parts of `make gpu` as processes: their rows, their limit of time, and Ctrl-C. The parts are
small scripts.
"""

import sys

import pytest

from benchmarks import bench_gpu
from benchmarks.bench_gpu import run_part
from benchmarks.gpu_report import FAILED, FINISHED, OUT_OF_TIME
from benchmarks.harness import ROOT

SCRIPT = """
import json, pathlib, sys, time
with open(sys.argv[2], "a") as file:
    file.write('{"row": 1}\\n')
    file.flush()
    pathlib.Path(__file__).with_suffix(".started").touch()
    %s
"""


@pytest.fixture
def run_script(tmp_path, monkeypatch):
    """Return a function that runs a part of one line of Python, after a row."""

    def run(line, seconds=30):
        (tmp_path / "part_decoding.py").write_text(SCRIPT % line)
        monkeypatch.setitem(bench_gpu.MODULES, "decoding", "part_decoding")
        monkeypatch.setattr(bench_gpu, "_GRACE", 0.2)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        return run_part("decoding", seconds)

    return run


@pytest.mark.parametrize(
    ("line", "seconds", "status"),
    [
        ("pass", 30, FINISHED),
        ("sys.exit(1)", 30, FAILED),
        ("time.sleep(60)", 0.7, OUT_OF_TIME),
        ("import signal; signal.signal(2, signal.SIG_IGN); time.sleep(60)", 0.7, OUT_OF_TIME),
    ],
)
def test_run_part_keeps_the_rows_of_a_process(line, seconds, status, run_script):
    record = run_script(line, seconds)
    assert (record["status"], record["rows"]) == (status, [{"row": 1}])
    assert record["seconds"] < 10


def test_run_part_stops_the_process_at_ctrl_c(run_script, tmp_path, monkeypatch):
    processes = []

    class Interrupted(bench_gpu.subprocess.Popen):
        def wait(self, timeout=None):
            processes.append(self)
            if len(processes) == 1:
                raise KeyboardInterrupt
            return super().wait(timeout)

    monkeypatch.setattr(bench_gpu.subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_script("time.sleep(60)")
    assert processes[0].returncode not in (None, 0)


WITHOUT_PYTEST = """
import importlib.util as util; find = util.find_spec
util.find_spec = lambda name: None if name == "pytest" else find(name)
"""
OLDER_TRANSFORMERS = """
import importlib.metadata as data; true = data.version
data.version = lambda name: "4.57.1" if name == "transformers" else true(name)
"""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (WITHOUT_PYTEST, "but pytest is missing.\n"),
        (
            OLDER_TRANSFORMERS,
            "must have transformers>=5.12,<6, but has transformers 4.57.1. Install it",
        ),
    ],
)
def test_missing_packages_are_named_in_one_line(change, message):
    command = f"{change}import runpy; runpy.run_module('benchmarks.bench_gpu', run_name='__main__')"
    ended = bench_gpu.subprocess.run(
        [sys.executable, "-c", command], cwd=ROOT, capture_output=True, text=True
    )
    assert ended.returncode == 1 and message in ended.stderr and ended.stderr.count("\n") == 1
