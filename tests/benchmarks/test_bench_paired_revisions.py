"""Unit tests of `benchmarks/bench_paired_revisions.py`: its ratios, its table, and the checkouts it
refuses.
"""

import pytest

from benchmarks import bench_paired_revisions


def rounds(*seconds, units=10, digest=None):
    return [
        {"seconds": each, "cpu_seconds": 2 * each, "units": units, "digest": digest}
        for each in seconds
    ]


def test_paired_revisions_ratios_are_per_unit_of_work_and_pair():
    both = {"old": rounds(1.0, 2.0), "new": rounds(2.0, 2.0, units=20)}
    assert bench_paired_revisions.ratios(both, "seconds") == [1.0, 0.5]


def test_paired_revisions_row_has_ratios_and_compares_outputs():
    both = {
        "old": rounds(*[1.0] * 5, digest="a"),
        "new": rounds(0.8, 0.9, 1.0, 1.1, 1.5, digest="a"),
    }
    row = bench_paired_revisions.row(both)
    assert row["time ratio"] == row["CPU time ratio"] == pytest.approx([0.8, 0.9, 1.0, 1.1, 1.5])
    assert row["old, units/s"] == row["new, units/s"] == 10 and row["same outputs"] is True
    assert (
        bench_paired_revisions.row(both | {"new": rounds(*[1.0] * 5, digest="b")})["same outputs"]
        is False
    )
    assert (
        bench_paired_revisions.row({"old": rounds(1.0), "new": rounds(1.0)})["same outputs"] is None
    )


ROOT = str(bench_paired_revisions.ROOT)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["."], "takes 2 words before its flags, got 1"),
        ([".", "missing"], "but missing is not one"),
        ([ROOT, ROOT, "--jobs", "sing"], "There must be a job and a round"),
    ],
)
def test_paired_revisions_refuses_folders_and_jobs_that_do_not_exist(words, message):
    with pytest.raises(ValueError, match=message):
        bench_paired_revisions.main(words)
