"""Readings of memory cover the measured step only."""

import subprocess
import sys
import time

import pytest

from benchmarks import harness, memory_usage


def test_memory_usage_peak_excludes_the_parent_process():
    """The parent of a measurement may have held models in memory."""
    parent = "import subprocess, sys; held = bytearray(b'1') * 2**30; subprocess.run([sys.executable, *sys.argv[1:]])"
    child = "import sys; sys.path.insert(0, sys.argv[1]); from benchmarks.memory_usage import peak_bytes"
    child += "; print(peak_bytes())"
    child += "; import torch; from vanilla_transformer.training.metrics import peak_memory_gib"
    child += "; print(int(2**30 * peak_memory_gib(torch.device('cpu'))))"
    command = [sys.executable, "-c", parent, "-c", child, str(harness.ROOT)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert [int(peak) < 2**30 for peak in said] == [True, True]


@pytest.mark.parametrize("kernel", [True, False], ids=["kernel", "sampling"])
def test_memory_usage_peak_increase_covers_the_step_only(kernel, monkeypatch, tmp_path):
    if not kernel:
        monkeypatch.setattr(memory_usage, "_CLEAR_REFS", tmp_path / "missing" / "clear_refs")

    def held(size):
        taken = bytearray(b"1") * size
        time.sleep(0.05)
        assert len(taken) == size

    before = bytearray(b"1") * 2**27  # held before the step
    peaks = [memory_usage.peak_increase_of(lambda size=size: held(size)) for size in (2**27, 2**20)]
    assert len(before) == 2**27
    assert peaks[0] == pytest.approx(2**27, rel=0.1) and peaks[1] < 2**26
