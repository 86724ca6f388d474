"""`bench_waiting` compares environments in separate processes, beside others that compute."""

from benchmarks import bench_waiting
from benchmarks.bench_waiting import WaitingArguments


def test_bench_waiting_compares_settings():
    options = WaitingArguments(settings=["default", "OMP_NUM_THREADS=1"], rounds=1, seconds=0.1, sentences=1)
    first, second = bench_waiting.measure(1, options)
    assert (first["setting"], second["setting"], first["other processes"]) == (*options.settings, 1)
    assert first["updates/s, ratio"] == first["ms a sentence, ratio"] == 1 and second["updates/s, ratio"] > 0
