"""Tests of `bench_batching` against batches counted by hand."""

import numpy as np
import pytest

from benchmarks import bench_batching
from vanilla_transformer.data.batch_plan import plan_batches


def test_bench_batching_padding_and_balance_match_manual_counts():
    lengths = np.array([3, 9, 4, 4, 8, 2, 7, 5, 6, 3])
    plan = plan_batches(lengths, lengths, max_tokens=20, batches_per_step=2)
    batches = [[lengths[batch] for batch in plan[step]] for step in range(len(plan))]
    padded = [[len(batch) * batch.max() for batch in step] for step in batches]
    assert bench_batching.padded_tokens(plan, lengths).tolist() == padded
    share = 1 - lengths.sum() / sum(map(sum, padded))
    assert bench_batching.padding_share(plan, [lengths]) == pytest.approx(share)
    expected = sum(map(max, padded)) / sum(sum(step) / 2 for step in padded)
    assert bench_batching.balance(bench_batching.padded_tokens(plan, lengths)) == pytest.approx(expected)


def test_bench_batching_prints_a_row_for_each_order(capsys):
    bench_batching.main(["--planned_pairs", "2000", "--compared_pairs", "2000", "--ranks", "2"])
    said = capsys.readouterr().out
    assert "| 2,000 |" in said
    assert all(f"| {name} |" in said for name in ["ours", *bench_batching.ORDERS])
