"""Claims of the paper that need no training: layers' costs, the softmax of wide keys, and order."""

import positions
import pytest
import scaling_by_sqrt_dk
import table1
import torch
from experiment import markdown_table


def finish(module, budget, seeds=1):
    """Return the rows of an experiment."""
    words = ["--budget", str(budget), "--seeds", str(seeds)]
    runs = module.runs(module.EXPERIMENT.parse(words))
    return module.rows({name: run(None) for name, run in runs.items()})


def test_softmax_saturates_without_division_by_root_of_d_k():
    table = {}
    for row in finish(scaling_by_sqrt_dk, 32, seeds=2):
        d_k, *figures = row.values()
        table[d_k] = figures
    largest, scaled, slope, scaled_slope = table[1024]
    assert largest > 0.9 and scaled < 0.2 and slope < 0.5 * scaled_slope
    assert table[1][0] == pytest.approx(table[1][1])
    assert table[1][2] == pytest.approx(table[1][3])
    assert scaled_slope == pytest.approx(table[4][3], rel=0.5)


def test_states_of_permuted_tokens_are_permuted_without_positions():
    for row in finish(positions, 8):
        assert row["none"] < 1e-5 < 0.01 < min(row["sinusoidal"], row["learned"])


def test_costs_of_layers_grow_as_table_1_says():
    costs = {row["layer"]: [*row.values()] for row in finish(table1, 128)}
    powers = {}
    for layer, cost in costs.items():
        powers[layer] = (round(cost[2], 2), round(cost[4], 1))
    assert powers == {
        "self-attention": (2.0, 0.0),
        "recurrent": (1.0, 1.0),
        "convolutional": (1.0, 0.0),
        "restricted self-attention": (1.0, 0.0),
    }
    assert [cost[6] for cost in costs.values()] == [1, 128, 127, 16]


def test_restricted_attention_is_attention_to_neighbors():
    states = torch.randn(40, table1._WIDTH)
    position = 20
    near = states[position - 8 : position + 9]
    weights = (near @ states[position] / table1._WIDTH**0.5).softmax(dim=0)
    torch.testing.assert_close(table1._attend_nearby(states)[position], weights @ near)


def test_markdown_table_leaves_out_lists():
    rows = [{"a": 1234, "b": 0.123456, "c": [1], "d": None}]
    rows.append({"a": 1, "b": 1234.5, "c": [2], "d": "x"})
    head, line, *body = markdown_table(rows).splitlines()
    assert (head, line) == ("| a | b | d |", "| --- | --- | --- |")
    assert body == ["| 1,234 | 0.123 |  |", "| 1 | 1,234 | x |"]
