"""The benchmark of planning batches runs, and its figures are those of batches counted by hand."""

import runpy
from pathlib import Path

import numpy as np
import pytest

from vanilla_transformer.data.batch_sampler import plan_batches

BENCHMARK = runpy.run_path(str(Path(__file__).parents[3] / "benchmarks" / "batching.py"))


def test_padding_and_balance_are_those_of_the_batches():
    lengths = np.array([3, 9, 4, 4, 8, 2, 7, 5, 6, 3])
    plan = plan_batches(lengths, lengths, max_tokens=20, batches_per_step=2)
    batches = [[lengths[batch] for batch in plan[step]] for step in range(len(plan))]
    padded = [[len(batch) * batch.max() for batch in step] for step in batches]
    assert BENCHMARK["padded_tokens"](plan, lengths).tolist() == padded
    share = 1 - lengths.sum() / sum(map(sum, padded))
    assert BENCHMARK["padding_share"](plan, [lengths]) == pytest.approx(share)
    expected = sum(map(max, padded)) / sum(sum(step) / 2 for step in padded)
    assert BENCHMARK["balance"](BENCHMARK["padded_tokens"](plan, lengths)) == pytest.approx(expected)


def test_the_command_prints_a_row_for_each_order(capsys):
    BENCHMARK["main"](["--planned_pairs", "2000", "--compared_pairs", "2000", "--ranks", "2"])
    said = capsys.readouterr().out
    assert "| 2,000 |" in said
    assert all(f"| {name} |" in said for name in ["ours", *BENCHMARK["ORDERS"]])
