"""`reproduce long-sequences`: the texts of the task, how models read them, costs, and the table."""

import json
import subprocess
import sys

import long_sequences
import pytest
import recall
import torch
from recall import accuracy, build, draw_texts, read_text, set_length
from table1 import growth_exponent


def test_texts_ask_for_each_pair_once():
    torch.manual_seed(0)
    ids, labels = draw_texts(100, 256)
    for text, answers in zip(ids.tolist(), labels.tolist(), strict=True):
        pairs = [token - recall._PAIR for token in text[:128] if token >= recall._PAIR]
        expected = {}
        for pair in pairs:
            answer = pair % recall.ANSWERS + recall._FIRST
            expected[pair // recall.ANSWERS + recall._LETTER] = answer
        asked = text[-32:]
        assert len(expected) == 16
        assert dict(zip(asked[::2], asked[1::2], strict=True)) == expected
        assert asked[1::2] == answers[-31::2]
        assert [label for label in answers if label != -100] == asked[1::2]
        assert all(recall._NOISY <= token < recall._PAIR for token in text[128:-32])


def test_accuracy_is_the_share_of_predicted_symbols():
    """Predict each symbol by the position before it."""
    _, labels = draw_texts(2, 64)
    symbols = labels.roll(-1, dims=1).clamp(min=0)
    size = recall.SHAPE["vocab_size"]
    right = torch.nn.functional.one_hot(symbols, size).float()
    assert accuracy(right, labels) == accuracy(right[:, -32:], labels) == 1.0
    right[0, -2] = 0.0
    assert accuracy(right, labels) == pytest.approx(31 / 32)


@pytest.mark.parametrize("name", long_sequences.VARIANTS)
def test_each_attention_reads_the_whole_text(name):
    """The logits of the last positions depend on the first token, in Transformer-XL through its
    memory.
    """
    torch.manual_seed(0)
    model = build(long_sequences.VARIANTS[name]).eval()
    ids, labels = draw_texts(1, 128)
    set_length(model, 128)
    other = ids.clone()
    other[0, 0] = recall._PAIR
    with torch.inference_mode():
        first = read_text(model, ids, labels).logits
        second = read_text(model, other, labels).logits
    assert first.shape[1] == (64 if name == "Transformer-XL" else 128)
    assert not torch.allclose(first[:, -32:], second[:, -32:], atol=1e-7)


def test_costs_and_training_fill_the_table(monkeypatch):
    monkeypatch.setattr(long_sequences, "_ROUND_SECONDS", 0.0)
    monkeypatch.setattr(recall, "_BATCHES", 1)
    costs = {}
    for name in long_sequences.VARIANTS:
        costs[name] = long_sequences.measure_costs(name, (64, 128))
    variant = long_sequences.VARIANTS["linear attention"]
    run = recall.train_recall(variant, 0, 0.05, 64)
    assert run["updates"] > 0 and run["length"] == 64 and 0 <= run["accuracy"] <= 1
    trained = {}
    for name in costs:
        for seed in (0, 1):
            trained[f"{name}-{seed}"] = {"attention": name, **run, "accuracy": seed}
    table = long_sequences.rows(costs | trained)
    assert [row["attention"] for row in table] == [*long_sequences.VARIANTS]
    assert {row["recall, %"] for row in table} == {50.0}
    for row in table:
        assert row["ms at n = 128"] > 0 and row["MiB at n = 128"] >= 0
    assert len(long_sequences.draw(table).axes) == 3


def test_growth_is_the_power_of_the_length():
    assert growth_exponent([1, 2, 4], [3, 12, 48]) == pytest.approx(2.0)


def test_script_measures_alone_in_a_new_interpreter(monkeypatch, tmp_path):
    costs = {"attention": "linear attention", "costs": {}}
    commands, answer = [], json.dumps(costs).encode()

    def run(command, **options):
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, answer)

    monkeypatch.setattr(subprocess, "run", run)
    assert long_sequences._measure_alone("linear attention", tmp_path) == costs
    command = [sys.executable, long_sequences.__file__, "--measure"]
    assert commands == [[*command, "linear attention"]]
