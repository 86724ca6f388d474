"""Unit tests of `benchmarks/bench_paired_revisions.py`: its ratios, its table, and the checkouts it
refuses.
"""

import pytest

from benchmarks import bench_paired_revisions


def rounds(*seconds, units=10, digest=None):
    rows = []
    for measured in seconds:
        row = {"seconds": measured, "cpu_seconds": 2 * measured}
        rows.append(row | {"units": units, "digest": digest})
    return rows


def test_ratios_are_per_unit_of_work_and_pair():
    both = {"old": rounds(1.0, 2.0), "new": rounds(2.0, 2.0, units=20)}
    assert bench_paired_revisions.ratios(both, "seconds") == [1.0, 0.5]


def test_row_has_ratios_and_compares_outputs():
    both = {"old": rounds(1.0, 1.0, 1.0, 1.0, 1.0, digest="a")}
    both["new"] = rounds(0.8, 0.9, 1.0, 1.1, 1.5, digest="a")
    row = bench_paired_revisions.row(both)
    assert row["time ratio"] == row["CPU time ratio"] == pytest.approx([0.8, 0.9, 1.0, 1.1, 1.5])
    assert row["old, units/s"] == row["new, units/s"] == 10
    assert row["same outputs"] is True
    both["new"] = rounds(1.0, 1.0, 1.0, 1.0, 1.0, digest="b")
    assert bench_paired_revisions.row(both)["same outputs"] is False
    both = dict.fromkeys(("old", "new"), rounds(1.0))
    assert bench_paired_revisions.row(both)["same outputs"] is None


ROOT = str(bench_paired_revisions.ROOT)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["."], "takes 2 words before its flags, got 1"),
        ([".", "missing"], "but missing is not one"),
        ([ROOT, ROOT, "--jobs", "sing"], "There must be a job and a round"),
    ],
)
def test_missing_folders_and_jobs_are_refused(words, message):
    with pytest.raises(ValueError, match=message):
        bench_paired_revisions.main(words)
