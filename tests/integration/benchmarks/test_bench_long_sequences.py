"""Tests of `bench_long_sequences`: slopes, crossovers, tables, and a small measurement of each point."""

from types import SimpleNamespace

import pytest

from benchmarks import bench_long_sequences, long_sequences_worker


def point(value, **sides):
    return {"value": value} | {side.replace("_", " "): measured for side, measured in sides.items()}


def curve_of(powers, values=(2, 4, 8, 16), **more):
    """Return points whose time and memory grow with the given power for each side."""
    return [
        {"value": value} | {side: {"seconds": 3e-3 * value**power, "mib": 5 * value**power} | more
                            for side, power in powers.items()}
        for value in values
    ]  # fmt: skip


def test_bench_long_sequences_slope_recovers_a_power_law():
    points = curve_of({"one": 1.0, "two": 2.0, "none": 0.0})
    found = [bench_long_sequences.slope(points, side, "seconds") for side in ("one", "two", "none")]
    assert found == pytest.approx([1.0, 2.0, 0.0], abs=1e-9)


def test_bench_long_sequences_slope_fits_the_last_three_points():
    points = [point(10**place, linear={"mib": mib}) for place, mib in enumerate((9.0, 1.0, 10.0, 1000.0))]
    points.append(point(10**4, linear={"needed_mib": 1.0, "available_mib": 0.5}))
    assert bench_long_sequences.slope(points, "linear", "mib") == pytest.approx(1.5)  # least squares through 0, 1, 3


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 0.0]], ids=["none", "one", "nothing to take a logarithm of"])
def test_bench_long_sequences_slope_needs_two_positive_points(values):
    points = [point(place + 1, lsh={"mib": mib}) for place, mib in enumerate(values)]
    assert bench_long_sequences.slope(points, "lsh", "mib") is None


@pytest.mark.parametrize(
    ("mine", "theirs", "found"),
    [
        ([3, 3, 3], [1, 4, 9], 2),
        ([0, 3, 0], [1, 2, 9], 4),  # a temporary advantage does not count
        ([0, 0, 0], [1, 1, 1], 1),
        ([0, 0, 9], [1, 1, 1], None),
        ([1, 1, 1], [1, 1, 1], None),
        ([5, 5, 5], [1, 9, None], 2),  # the last length has only one side
        ([5, 5, 5], [None, None, None], None),
    ],
)
def test_bench_long_sequences_begins_finds_the_crossover(mine, theirs, found):
    rows = zip((1, 2, 4), mine, theirs, strict=True)
    points = [point(at, lsh={"mib": one}, softmax={} if two is None else {"mib": two}) for at, one, two in rows]
    assert bench_long_sequences.begins(points, "lsh", "softmax", "mib") == found


def test_bench_long_sequences_table_ends_with_conclusions():
    powers = {"softmax (eager)": 2.0, "softmax (sdpa)": 1.0, "linear": 0.5, "lsh": 1.5}
    points = curve_of(powers, values=(1, 2, 1024))
    points[-1]["softmax (eager)"] = {"needed_mib": 2048.0, "available_mib": 1024.4}
    lines = bench_long_sequences.markdown("length", points)
    assert lines[0].startswith("| length | softmax (eager), ms | ") and lines[0].endswith(" | lsh, MiB |")
    assert lines[3] == "| 2 | 12.0 | 6.0 | 4.2 | 8.5 | 20.0 | 10.0 | 7.1 | 14.1 |"
    assert lines[4].startswith("| 1,024 | left out | 3,072.0 |")
    assert lines[5] == "| slope | 2.00 | 1.00 | 0.50 | 1.50 | 2.00 | 1.00 | 0.50 | 1.50 |"
    assert "softmax (eager) was not measured at 1,024: it needs about 2,048 MiB, but 1,024 were available." in lines
    assert "Less time than softmax (sdpa): linear from 2 on, lsh at no measured length." in lines
    assert "Less memory than softmax (eager): linear from 2 on, lsh from 2 on." in lines


def test_bench_long_sequences_table_omits_missing_memory():
    points = [point(64, softmax={"seconds": 0.002}, linear={"seconds": 0.001})]
    assert bench_long_sequences.markdown("position", points)[:4] == [
        "| position | softmax, ms | linear, ms |",
        "|---|---|---|",
        "| 64 | 2.0 | 1.0 |",
        "| slope | – | – |",
    ]


def test_bench_long_sequences_depth_table_reports_parameters():
    points = curve_of({"ordinary": 1.0, "reversible": 0.0}, values=(2, 16), parameters_mib=3.0)
    assert "Parameters take 3.0 MiB with 2 layers and 3.0 with 16." in bench_long_sequences.markdown("depth", points)


def test_bench_long_sequences_draws_all_curves(tmp_path):
    found = {
        "length": curve_of({"softmax (sdpa)": 2.0, "linear": 1.0}),
        "position": [point(64, linear={"seconds": 1})],
    }
    bench_long_sequences.draw(found, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_bench_long_sequences_skips_points_beyond_the_memory():
    request = bench_long_sequences.request_of("length", "softmax (eager)", 1024)
    needed = 4 * 4 * 1024**2 * 2 * 3
    assert bench_long_sequences.lacking_memory(request, needed) == {}
    assert bench_long_sequences.lacking_memory(request, needed - 2**20) == {"needed_mib": 96.0, "available_mib": 95.0}
    assert bench_long_sequences.lacking_memory(bench_long_sequences.request_of("length", "linear", 1024), 0) == {}


def test_bench_long_sequences_buckets_grow_with_length():
    shapes = [bench_long_sequences.request_of("length", "lsh", length)["shape"] for length in (32, 256, 16384)]
    assert [shape["num_buckets"] for shape in shapes] == [2, 8, 512]


def test_bench_long_sequences_refuses_unknown_curves():
    with pytest.raises(ValueError, match="must be of length, depth, position, got 'width'"):
        bench_long_sequences.main(["--curves", "width"])


SIDES = [(curve, side) for curve, (_, sides) in bench_long_sequences.CURVES.items() for side in sides]


@pytest.mark.parametrize(("curve", "side"), SIDES)
def test_long_sequences_worker_measures_a_small_point(curve, side, monkeypatch):
    monkeypatch.setattr(bench_long_sequences, "_DEPTH_LENGTH", 64)
    monkeypatch.setattr(long_sequences_worker, "MIN_ROUND_SECONDS", 0.0)
    request = bench_long_sequences.request_of(curve, side, 3 if curve == "depth" else 65)
    measured = {what: long_sequences_worker.measure(what, rounds=1, **request) for what in _quantities(curve)}
    assert all(found["seconds"] > 0.0 for what, found in measured.items() if what != "mib")
    if curve != "position":
        assert measured["mib"]["mib"] >= 0.0 and measured["mib"]["parameters_mib"] > 0.9


def _quantities(curve):
    return ["token"] if curve == "position" else ["seconds", "mib"]


def test_long_sequences_worker_repeats_short_steps_only(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(long_sequences_worker, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    steps = []

    def step(seconds):
        steps.append(seconds)
        clock.now += seconds

    assert long_sequences_worker.best_seconds(lambda: step(0.1)) == pytest.approx(0.1)
    assert long_sequences_worker.best_seconds(lambda: step(0.5)) == pytest.approx(0.5)
    assert steps == [0.1, 0.1, 0.1, 0.5]
