"""`bench_long_sequences`: exponents of growth, tables, and a small measurement of each point."""

from types import SimpleNamespace

import pytest

from benchmarks import bench_long_sequences
from benchmarks.bench_long_sequences import CURVES, exponent, lacks_memory, request_of

SIDES = [(curve, side) for curve, (_, sides) in CURVES.items() for side in sides]


def test_exponent_fits_the_last_three_points_that_were_measured():
    assert exponent([(1, 9.0), (2, 2.0), (4, 4.0), (8, 16.0), (16, None)]) == pytest.approx(1.5)  # 1, 2, 4 in log2
    assert exponent([(1, 1.0), (2, None)]) is None and exponent([(1, 0.0), (2, 1.0)]) is None


def test_rows_have_a_column_for_each_side_and_quantity():
    points = {
        256: {"softmax (eager)": {"ms": 2.0, "MiB": 4.0}, "linear": {"ms": 1.0, "MiB": 1.0}},
        512: {"softmax (eager)": {}, "linear": {"ms": 2.0, "MiB": 2.0}},
    }
    first, second, exponents = bench_long_sequences.rows("length", points)
    assert first == {"curve": "length", "value": 256} | {
        "softmax (eager), ms": 2.0,
        "softmax (eager), MiB": 4.0,
        "linear, ms": 1.0,
        "linear, MiB": 1.0,
    }
    assert second["softmax (eager), MiB"] is None and second["linear, MiB"] == 2.0
    assert exponents["linear, ms"] == pytest.approx(1.0) and exponents["softmax (eager), ms"] is None


def test_points_beyond_the_memory_are_left_out(monkeypatch):
    request = request_of("length", "softmax (eager)", 1024)
    needed = 4 * 4 * 1024**2 * 2 * 3
    assert not lacks_memory(request, needed) and lacks_memory(request, needed - 1)
    assert not lacks_memory(request_of("length", "linear", 1024), 0)
    monkeypatch.setattr(bench_long_sequences.psutil, "virtual_memory", lambda: SimpleNamespace(available=0))
    assert bench_long_sequences._point("length", "softmax (eager)", 1024, 1) == {}


def test_lsh_buckets_grow_with_length():
    shapes = [request_of("length", "lsh", length)["shape"] for length in (32, 256, 16384)]
    assert [shape["num_buckets"] for shape in shapes] == [2, 8, 512]


def test_bench_long_sequences_refuses_unknown_curves():
    with pytest.raises(ValueError, match="must be of length, depth, position, got 'width'"):
        bench_long_sequences.main(["--curves", "width"])


@pytest.mark.parametrize(("curve", "side"), SIDES)
def test_measure_gives_a_small_point(curve, side, monkeypatch):
    monkeypatch.setattr(bench_long_sequences, "DEPTH_LENGTH", 64)
    monkeypatch.setattr(bench_long_sequences, "MIN_ROUND_SECONDS", 0.0)
    request = request_of(curve, side, 3 if curve == "depth" else 65)
    if curve == "position":
        assert bench_long_sequences.measure("token", rounds=1, **request)["ms"] > 0
        return
    assert bench_long_sequences.measure("ms", rounds=1, **request)["ms"] > 0
    assert bench_long_sequences.measure("MiB", rounds=1, **request)["MiB"] >= 0


def test_best_seconds_repeats_short_steps_only(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(bench_long_sequences, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    steps = []

    def step(seconds):
        steps.append(seconds)
        clock.now += seconds

    assert bench_long_sequences.best_seconds(lambda: step(0.1)) == pytest.approx(0.1)
    assert bench_long_sequences.best_seconds(lambda: step(0.5)) == pytest.approx(0.5)
    assert steps == [0.1, 0.1, 0.1, 0.5]


def test_bench_long_sequences_writes_a_table_of_workers(tmp_path, monkeypatch):
    monkeypatch.setitem(CURVES, "length", ([16], {"linear": CURVES["length"][1]["linear"]}))
    bench_long_sequences.main(["--curves", "length", "--rounds", "1", "--output_dir", str(tmp_path)])
    lines = (tmp_path / "long_sequences.md").read_text().splitlines()
    assert lines[-4] == "| curve | value | linear, ms | linear, MiB |" and lines[-2].startswith("| length | 16 |")
