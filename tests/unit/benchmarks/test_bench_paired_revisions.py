"""Unit tests of `benchmarks/bench_paired_revisions.py`: its ratios, its table, and the checkouts it refuses."""

import pytest

from benchmarks import bench_paired_revisions


def rounds(*seconds, units=10, digest=None):
    return [{"seconds": each, "cpu_seconds": 2 * each, "units": units, "digest": digest} for each in seconds]


def test_paired_revisions_ratios_are_per_unit_of_work_and_pair():
    both = {"old": rounds(1.0, 2.0), "new": rounds(2.0, 2.0, units=20)}
    assert bench_paired_revisions.ratios(both, "seconds") == [1.0, 0.5]


def test_paired_revisions_table_shows_median_quartiles_and_outputs():
    machine = {"cpu": "a CPU", "cores": 2, "python": "3", "torch": "2"}
    both = {"old": rounds(*[1.0] * 5, digest="a"), "new": rounds(0.8, 0.9, 1.0, 1.1, 1.5, digest="a")}
    clocks = {clock: bench_paired_revisions.ratios(both, clock) for clock in ("seconds", "cpu_seconds")}
    results = [{"job": "one", "rounds": both, "ratios": clocks}]
    both = both | {"new": rounds(*[1.0] * 5, digest="b")}
    results.append({"job": "two", "rounds": both, "ratios": clocks})
    report = {"machine": machine, "old": "A", "new": "B", "rounds": 5, "results": results}
    lines = list(bench_paired_revisions.markdown(report))
    assert "| one | 1.000 [0.900, 1.100] | 1.000 [0.900, 1.100] | 10 | 10 | yes |" in lines
    assert lines[-3].startswith("| two |") and lines[-3].endswith("| NO |")


@pytest.mark.parametrize("roots", [["."], [".", "missing"]])
def test_paired_revisions_refuses_folders_that_are_no_checkouts(roots):
    with pytest.raises(ValueError, match="Name the roots of two checkouts"):
        bench_paired_revisions.main(roots)


def test_paired_revisions_refuses_jobs_that_do_not_exist():
    root = str(bench_paired_revisions.ROOT)
    with pytest.raises(ValueError, match="There must be a job and a round"):
        bench_paired_revisions.main([root, root, "--jobs", "sing"])
