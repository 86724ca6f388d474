"""Tests of `bench_long_tasks`: the generated tasks, the memory budget, tables, and short training runs."""

import json

import pytest
import torch

from benchmarks import bench_long_tasks
from benchmarks import long_tasks_worker as worker

DOCUMENT_SIDES = {
    "relative": {"perplexity": {"0": 10.0, "8": 5.0, "32": 3.0}, "counted": 2.0, "updates": 3},
    "softmax": {"perplexity": {"0": 9.5}, "counted": 2.0, "updates": 3},
}
TASK_SIDES = {
    "linear": {"length": 1024, "mib": 40.2, "updates": 10, "own": 0.5, "long": 0.5, "reached": 1024},
    "softmax": {"length": 512, "mib": 36.0, "updates": 1200, "own": 0.993, "long": 0.1, "reached": 512},
}


def facts_and_queries(task, length):
    """Yield, for each row, the tokens of the facts, the tokens of the query, and the labels of the query."""
    ids, labels = worker.TASKS[task](5, length)
    assert ids.shape == labels.shape == (5, length)
    noise = (ids >= worker._NOISE) & (ids < worker._NOISE + worker.NOISE)
    ends = length - int((~noise).sum(1)[0]) + worker.ITEMS
    for row, quiet, answers in zip(ids, ~noise, labels, strict=True):
        places = quiet[:ends].nonzero().flatten().tolist()
        assert len(places) == worker.ITEMS and places[-1] - places[0] == worker.ITEMS - 1  # in one piece
        assert places[-1] < length // 2 and quiet[ends:].all() and (answers[:ends] == -100).all()
        yield row[places].tolist(), row[ends:].tolist(), answers[ends:].tolist()


def test_copy_task_repeats_the_word_in_capitals():
    for word, capitals, labels in facts_and_queries("copy", 200):
        assert len(set(word)) == worker.ITEMS
        assert [letter - worker._LETTER for letter in word] == [each - worker._CAPITAL for each in capitals]
        assert labels == [-100, *capitals[1:]]


def test_recall_task_labels_are_the_symbols_of_the_letters():
    for pairs, asked, labels in facts_and_queries("recall", 200):
        told = dict(divmod(pair - worker._PAIR, worker.SYMBOLS) for pair in pairs)
        letters, symbols = asked[::2], asked[1::2]
        assert [told[letter - worker._LETTER] for letter in letters] == [each - worker.FIRST for each in symbols]
        assert len(told) == len(set(letters)) == worker.ITEMS and letters != sorted(letters)
        assert labels[1::2] == symbols and set(labels[::2]) == {-100}


def test_copy_task_facts_are_anywhere_in_the_first_half():
    ids, _ = worker.copying(400, 4 * worker.SHORTEST)
    begins = (ids < worker._NOISE).to(torch.uint8).argmax(dim=1)
    assert begins.min() < 8 and begins.max() > 2 * worker.SHORTEST - worker.ITEMS - 8


def test_ideal_losses_approach_the_entropy_of_documents():
    torch.manual_seed(0)
    losses = worker.ideal_losses(worker.documents(200, 400))
    assert losses[:, 0].exp().mean() == pytest.approx(worker.WORDS)  # the first word cannot be predicted
    frequencies = torch.distributions.Dirichlet(torch.full((worker.WORDS,), worker.CONCENTRATION)).sample((2000,))
    known = torch.distributions.Categorical(frequencies).entropy().mean()
    assert known < losses[:, 300:].mean() < known + 0.15
    assert losses[:, 4:8].mean() > losses[:, 40:80].mean() > losses[:, 300:].mean()


def test_ideal_losses_are_a_distribution():
    text = torch.tensor([[3, 3, 5]]).repeat(worker.WORDS, 1)
    text[:, 2] = torch.arange(worker.WORDS) + worker.FIRST
    assert (-worker.ideal_losses(text)[:, 2]).exp().sum() == pytest.approx(1.0)


def test_accuracy_counts_labeled_positions_only():
    labels = torch.tensor([[-100, -100, 4, 5]])
    logits = torch.nn.functional.one_hot(torch.tensor([[0, 4, 9, 5]]), 10).float()
    assert worker.accuracy_of(logits, labels) == worker.accuracy_of(logits[:, 1:], labels) == 0.5


def test_longest_within_takes_the_longest_length_in_budget():
    asked = []

    def memory(length):
        asked.append(length)
        return length**2 / 1000

    assert bench_long_tasks.longest_within(70.0, 1024, memory) == (256, 65.536)
    assert asked == [1024, 512, 256]
    with pytest.raises(ValueError, match=r"No length fits into the budget of 0\.1 MiB"):
        bench_long_tasks.longest_within(0.1, 1024, memory)


def test_bench_long_tasks_table_has_a_row_for_each_side():
    lines = "\n".join(bench_long_tasks.markdown({"recall": TASK_SIDES, "context": DOCUMENT_SIDES}, 1024))
    assert "| recall | softmax | 512 | 36 | 1,200 | 512 | 99.3% | 10.0% |" in lines
    assert "| memory length | 0 | 8 | 32 | softmax, segment only |" in lines
    assert "| perplexity | 10.00 | 5.00 | 3.00 | 9.50 |" in lines and "has 2.00; no context gives 256." in lines


def test_fitted_slope_recovers_a_power_law():
    half = worker.SEGMENT / 2
    perplexities = {str(memory): 200.0 * (half + memory) ** -0.7 for memory in (0, 8, 16, 64)}
    assert bench_long_tasks.fitted_slope(perplexities) == pytest.approx(-0.7)


def test_bench_long_tasks_draws_all_parts(tmp_path):
    bench_long_tasks.draw({"recall": TASK_SIDES, "context": DOCUMENT_SIDES}, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 5000


@pytest.mark.parametrize("flag", [["--parts", "copy,sing"], ["--length", "100"]])
def test_bench_long_tasks_refuses_unknown_parts_and_lengths(flag, capsys):
    with pytest.raises(ValueError, match=flag[1].split(",")[-1]):
        bench_long_tasks.main(flag)


@pytest.mark.parametrize("side", worker.SIDES)
def test_long_tasks_worker_trains_every_side(side, monkeypatch):
    monkeypatch.setattr(worker, "EVAL_BATCHES", 1)
    monkeypatch.setattr(worker, "until", lambda minutes: iter([0.0, 0.5]))
    torch.manual_seed(0)
    assert worker.memory_of("copy", side, 64)["mib"] >= 0.0
    found = worker.run_task("recall", side, 64, 128, minutes=9.0, learning_rate=0.002)
    assert found["updates"] == 2 and 0.0 <= found["own"] <= 1.0 and 0.0 <= found["long"] <= 1.0


def test_long_tasks_worker_reads_the_end_with_the_memory():
    torch.manual_seed(0)
    ids, labels = worker.recalling(2, 256)
    model = worker.build("relative").eval()
    found = worker.read(model, "relative", ids, labels)
    whole = model(input_ids=ids, labels=labels, use_cache=False)
    torch.testing.assert_close(found.logits, whole.logits[:, -worker.SHORTEST :], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found.loss, whole.loss)


def test_set_attention_fields_reaches_every_layer():
    model = worker.build("lsh")
    worker.set_attention_fields(model, num_buckets=worker.buckets_of(512), num_hashes=3)
    assert [(each.self_attn.config.num_buckets, each.self_attn.config.num_hashes) for each in model.model.layers] == [
        (16, 3),
        (16, 3),
    ]
    assert [worker.buckets_of(length) for length in (64, 128, 1024)] == [1, 4, 32]


@pytest.mark.parametrize("side", ["relative", "softmax"])
def test_long_tasks_worker_trains_on_consecutive_segments(side, monkeypatch):
    monkeypatch.setattr(worker, "until", lambda minutes: iter([0.0, 0.3, 0.6]))  # the first draws the documents
    torch.manual_seed(0)
    found = worker.run_context(side, [0, 8], minutes=9.0, learning_rate=0.002)
    assert found["updates"] == 2 and set(found["perplexity"]) == ({"0", "8"} if side == "relative" else {"0"})
    assert all(1.0 < value < 600.0 for value in found["perplexity"].values()) and json.dumps(found)
    assert 10.0 < found["counted"] < 40.0
