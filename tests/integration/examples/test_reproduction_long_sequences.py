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
        expected = {
            pair // recall.ANSWERS + recall._LETTER: pair % recall.ANSWERS + recall._FIRST
            for pair in pairs
        }
        asked = text[-32:]
        assert len(expected) == 16 and dict(zip(asked[::2], asked[1::2], strict=True)) == expected
        assert [label for label in answers if label != -100] == asked[1::2] == answers[-31::2]
        assert all(recall._NOISY <= token < recall._PAIR for token in text[128:-32])


def test_accuracy_is_the_share_of_symbols_that_the_position_before_predicts():
    _, labels = draw_texts(2, 64)
    right = torch.nn.functional.one_hot(
        labels.roll(-1, dims=1).clamp(min=0), recall.SHAPE["vocab_size"]
    ).float()
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
        first, second = (read_text(model, each, labels).logits for each in (ids, other))
    assert first.shape[1] == (64 if name == "Transformer-XL" else 128)
    assert not torch.allclose(first[:, -32:], second[:, -32:], atol=1e-7)


def test_costs_and_training_fill_the_table(monkeypatch):
    monkeypatch.setattr(long_sequences, "_ROUND_SECONDS", 0.0)
    monkeypatch.setattr(recall, "_BATCHES", 1)
    costs = {
        name: long_sequences.measure_costs(name, (64, 128)) for name in long_sequences.VARIANTS
    }
    found = recall.train_recall(long_sequences.VARIANTS["linear attention"], 0, 0.05, 64)
    assert found["updates"] > 0 and found["length"] == 64 and 0 <= found["accuracy"] <= 1
    trained = {
        f"{name}-{seed}": {"attention": name, **found, "accuracy": seed}
        for name in costs
        for seed in (0, 1)
    }
    table = long_sequences.rows(costs | trained)
    assert [row["attention"] for row in table] == [*long_sequences.VARIANTS]
    assert {row["recall, %"] for row in table} == {50.0}
    assert all(row["ms at n = 128"] > 0 and row["MiB at n = 128"] >= 0 for row in table)
    assert len(long_sequences.draw(table).axes) == 3


def test_growth_is_the_power_of_the_length():
    assert growth_exponent([1, 2, 4], [3, 12, 48]) == pytest.approx(2.0)


def test_script_measures_alone_in_a_new_interpreter(monkeypatch, tmp_path):
    commands, answer = [], json.dumps({"attention": "linear attention", "costs": {}}).encode()

    def run(command, **options):
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, answer)

    monkeypatch.setattr(subprocess, "run", run)
    assert long_sequences._measure_alone("linear attention", tmp_path) == json.loads(answer)
    assert commands == [[sys.executable, long_sequences.__file__, "--measure", "linear attention"]]
