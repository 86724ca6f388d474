"""The tasks ask what they say, budgets are kept, and every side learns something."""

import json
import math

import long_task_training as training
import long_tasks
import pytest
import torch

DOCUMENT_SIDES = {
    "relative": {"perplexity": {"0": 10.0, "8": 5.0, "32": 3.0}, "limit": 2.0, "updates": 3},
    "softmax": {"perplexity": {"0": 9.5}, "limit": 2.0, "updates": 3},
}
TASK_SIDES = {
    "linear": {"length": 1024, "mib": 40.2, "updates": 10, "own": 0.5, "long": 0.5, "reached": 1024},
    "softmax": {"length": 512, "mib": 36.0, "updates": 1200, "own": 0.993, "long": 0.1, "reached": 512},
}


def test_the_second_half_of_a_copy_is_the_first_and_all_of_it_is_asked():
    ids, labels = training.copying(3, 20)
    assert torch.equal(ids[:, :10], ids[:, 10:]) and torch.equal(labels[:, 10:], ids[:, 10:])
    assert (labels[:, :10] == -100).all() and ids.shape == labels.shape == (3, 20)


def test_what_is_recalled_is_what_was_told_behind_the_same_key():
    ids, labels = training.recalling(3, 40)
    for row, asked in zip(ids, labels, strict=True):
        told = dict(zip(row[:20:2].tolist(), row[1:20:2].tolist(), strict=True))
        assert len(told) == 10
        assert [told[key] for key in row[20::2].tolist()] == asked[21::2].tolist() == row[21::2].tolist()
        assert (asked != -100).sum() == 10 and row[20::2].tolist() != row[:20:2].tolist()


def test_more_pairs_than_keys_are_refused():
    with pytest.raises(ValueError, match="needs 1024 different letters or keys, and there are 512"):
        training.recalling(1, 4096)


def test_a_document_keeps_its_successors_and_the_known_perplexity_is_that_of_its_noise():
    (text,) = (documents := training.documents(1, 20_000)).tolist()
    follows = {}
    for one, other in zip(text, text[1:], strict=False):
        follows.setdefault(one, []).append(other)
    shares = [max(map(rows.count, set(rows))) / len(rows) for rows in follows.values()]
    assert len(shares) == training.SYMBOLS and documents.min() == training.FIRST
    right = 1 - training.NOISE + training.NOISE / training.SYMBOLS
    assert all(share == pytest.approx(right, abs=0.03) for share in shares)
    likeliest = {one: max(set(rows), key=rows.count) for one, rows in follows.items()}
    chances = {True: right, False: training.NOISE / training.SYMBOLS}
    losses = [-math.log(chances[likeliest[one] == other]) for one, other in zip(text, text[1:], strict=False)]
    assert math.exp(sum(losses) / len(losses)) == pytest.approx(training.known_perplexity(), rel=0.05)


def test_accuracy_counts_what_is_asked_alone():
    labels = torch.tensor([[-100, -100, 4, 5]])
    logits = torch.nn.functional.one_hot(torch.tensor([[0, 4, 9, 5]]), 10).float()
    assert training.accuracy_of(logits, labels) == 0.5


def test_the_longest_length_within_the_budget_is_taken():
    asked = []

    def memory(length):
        asked.append(length)
        return length**2 / 1000

    assert long_tasks.longest_within(70.0, 1024, memory) == (256, 65.536)
    assert asked == [1024, 512, 256]
    with pytest.raises(ValueError, match=r"No length is within the budget of 0\.1 MiB"):
        long_tasks.longest_within(0.1, 1024, memory)


def test_the_table_says_where_each_side_learnt_and_how_it_did():
    lines = "\n".join(long_tasks.markdown({"recall": TASK_SIDES, "context": DOCUMENT_SIDES}, 1024))
    assert "| recall | softmax | 512 | 36 | 1,200 | 512 | 99.3% | 10.0% |" in lines
    assert "| remembered | 0 | 8 | 32 | softmax, the segment alone |" in lines
    assert "| perplexity | 10.00 | 5.00 | 3.00 | 9.50 |" in lines and "left with 2.00" in lines


def test_the_slope_is_that_of_a_power_of_what_is_seen():
    half = training.SEGMENT / 2
    perplexities = {str(memory): 2.0 * math.exp((half + memory) ** -0.7) for memory in (0, 8, 16, 64)}
    assert long_tasks.fitted_slope(perplexities, 2.0) == pytest.approx(-0.7)


def test_the_picture_has_a_panel_for_each_part(tmp_path):
    long_tasks.draw({"recall": TASK_SIDES, "context": DOCUMENT_SIDES}, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 5000


@pytest.mark.parametrize("flag", [["--parts", "copy,sing"], ["--length", "100"]])
def test_parts_and_lengths_that_are_none_are_named(flag, capsys):
    with pytest.raises(ValueError, match=flag[1].split(",")[-1]):
        long_tasks.main(flag)


@pytest.mark.parametrize("side", training.SIDES)
def test_every_side_learns_a_short_copy(side):
    torch.manual_seed(0)
    assert training.memory_of("copy", side, 16)["mib"] >= 0.0
    found = training.run_task("copy", side, 16, 32, minutes=0.02, learning_rate=0.002)
    assert found["updates"] > 1 and 0.0 <= found["own"] <= 1.0 and 0.0 <= found["long"] <= 1.0


@pytest.mark.parametrize("side", ["relative", "softmax"])
def test_segments_are_learnt_one_after_the_other(side):
    torch.manual_seed(0)
    found = training.run_context(side, [0, 8], minutes=0.02, learning_rate=0.002)
    assert found["updates"] > 1 and set(found["perplexity"]) == ({"0", "8"} if side == "relative" else {"0"})
    assert all(1.0 < value < 600.0 for value in found["perplexity"].values()) and json.dumps(found)
