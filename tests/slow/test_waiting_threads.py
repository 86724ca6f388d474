"""Waiting threads lose little time on busy cores, and none on idle ones."""

import os

import pytest

from benchmarks import bench_waiting
from benchmarks.bench_waiting import WaitingArguments
from vanilla_transformer.device_utils import usable_cores

USUAL = "GOMP_SPINCOUNT=300000"  # libgomp's default


@pytest.mark.skipif(usable_cores() < 2, reason="threads wait for each other on several cores")
@pytest.mark.parametrize(("per_core", "least"), [(0, 0.9), (1, 1.5)], ids=["idle cores", "busy cores"])
def test_waiting_threads_cost_nothing_on_idle_cores_and_little_on_busy_ones(monkeypatch, per_core, least):
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    if per_core == 0 and os.getloadavg()[0] > 0.5:
        pytest.skip("other programs use the cores")
    options = WaitingArguments(settings=[USUAL, "default"], rounds=3, seconds=3.0)
    usual, ours = bench_waiting.measure(per_core * usable_cores(), options)
    assert ours["updates/s, ratio"] > least, (usual, ours)
