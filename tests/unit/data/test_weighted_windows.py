"""A mix of prepared corpora in windows: shards as often as weights and stages say, the same for any
number of processes, from wherever a run is taken up.
"""

from collections import Counter
from operator import itemgetter

import numpy as np
import pytest

from tests.prepared_corpora import write_prepared_lengths
from vanilla_transformer.data import windows
from vanilla_transformer.data.batch_sampler import TokenBudgetBatchSampler
from vanilla_transformer.data.cleaning import CleaningReport
from vanilla_transformer.data.corpus import TokenizedCorpus
from vanilla_transformer.data.prepared_corpus import open_shards, read_manifest
from vanilla_transformer.data.stages import Stages
from vanilla_transformer.data.tokenized_corpus import EncodedPairs, TokenTable
from vanilla_transformer.data.windows import PreparedCorpus
from vanilla_transformer.errors import UserError

LENGTHS = [1 + number * 7 % 11 for number in range(120)]
CORPORA = [0, 0, 0, 1, 1, 2]  # of shards of 20 pairs
MIX = [1.0, 2.5, 3.0]
STAGES = Stages(shares=({"a": 1}, {"b": 1, "c": 1}), ends=(7,))
OF_STAGES = [[1.0, 0.0, 0.0], [0.0, 0.75, 1.5]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared")
    write_prepared_lengths(folder, LENGTHS, len(CORPORA), CORPORA)
    return folder


@pytest.fixture(scope="module")
def sampler(folder):
    """Return a function that returns the sampler of a process over windows of some shards."""

    def build(window_shards, weights, **options):
        corpus = PreparedCorpus(folder, read_manifest(folder), 3, window_shards, weights)
        return TokenBudgetBatchSampler(corpus, **{"max_tokens": 40, "seed": 3} | options)

    return build


def take(order, count):
    """Return the epoch, the window and the rows of the batches of some steps."""
    steps = []
    for _ in range(count):
        order.enter_next_epoch()
        position = order.position
        batches = []
        for batch in order.take_step():
            batches.append(batch.pairs.tolist())
        steps.append((position.epoch, position.window, position.stage, batches))
    return steps


def count_pairs(steps, epoch):
    """Return how often each pair is in an epoch, `(pairs,)`."""
    counts = np.zeros(len(LENGTHS), int)
    for number, _, _, batches in steps:
        if number == epoch:
            for batch in batches:
                np.add.at(counts, batch, 1)
    return counts


@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize("weights", [[MIX], OF_STAGES, [[1.0, 0.3, 0.001]]])
def test_window_of_all_shards_has_the_batches_of_weighted_text(folder, sampler, packing, weights):
    manifest = read_manifest(folder)
    texts = open_shards(folder, manifest.shards)
    texts = texts.select_columns(["source", "target", "corpus"])
    encoded = open_shards(folder, manifest.shards).select_columns(["input_ids", "labels"])
    pairs = EncodedPairs(TokenTable(encoded))
    text = TokenizedCorpus(texts, pairs, weights, 3, CleaningReport(), {})
    options = {"packing": packing, "accumulation": 2}
    if len(weights) > 1:
        options["stages"] = STAGES
    expected = TokenBudgetBatchSampler(text, 40, 3, **options)
    order = sampler(1000, weights, **options)
    for _ in range(80):
        order.enter_next_epoch()
        expected.enter_next_epoch()
        assert order.position == expected.position
        for batch, other in zip(order.take_step(), expected.take_step(), strict=True):
            assert batch.pairs.tolist() == other.rows.tolist()
            assert batch.shape == other.shape
    assert order.epoch > 1


@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize("window_shards", [1, 2, 4])
def test_windows_have_each_pair_as_often_as_its_weight(sampler, packing, window_shards):
    order = sampler(window_shards, [MIX], packing=packing)
    steps = take(order, 200)
    windows_of_epoch = -(-12 // window_shards)  # of 3, 2 * 2 and 2 halves, and 3 copies
    assert order.corpus.count_windows() == windows_of_epoch
    assert max(map(itemgetter(1), steps)) == windows_of_epoch - 1
    epochs = []
    for epoch in (0, 1):
        times = count_pairs(steps, epoch)
        assert (times[:60] == 1).all() and (times[100:] == 3).all()
        halves = times[60:100] - 2
        assert set(halves) == {0, 1} and halves.sum() == 20
        epochs.append(halves.tolist())
    assert epochs[0] != epochs[1]


def test_windows_read_the_pairs_that_they_name(sampler):
    order = sampler(2, [MIX])
    for _ in range(60):
        order.enter_next_epoch()
        (batch,) = order.take_step()
        tokens = order.pairs.table.pad(batch.rows, 0)["input_ids"]
        assert tokens[:, 0].tolist() == batch.pairs.tolist()


@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize("done", [3, 9, 40])
def test_weighted_windows_resume_and_give_processes_the_batches_of_one(sampler, packing, done):
    options = {"max_tokens": 20, "packing": packing, "stages": STAGES}
    alone = sampler(2, OF_STAGES, accumulation=4, **options)
    take(alone, done)
    state = alone.position.state_dict()
    steps = take(alone, 9)
    for replicas in (1, 2, 4):
        options |= {"num_replicas": replicas, "accumulation": 4 // replicas}
        orders = []
        for rank in range(replicas):
            orders.append(sampler(2, OF_STAGES, rank=rank, **options))
            orders[-1].load_state_dict(state)
        for step in steps:
            together = []
            for order in orders:
                (share,) = take(order, 1)
                assert share[:-1] == step[:-1]
                together += share[-1]
            assert sorted(together) == sorted(step[-1])


def test_a_stage_begins_with_an_epoch_and_opens_only_its_corpora(sampler, monkeypatch):
    opened, plain = set(), windows.open_shards

    def record(folder, entries):
        for entry in entries:
            opened.add(entry.corpus)
        return plain(folder, entries)

    monkeypatch.setattr(windows, "open_shards", record)
    order = sampler(1, OF_STAGES, stages=STAGES)
    *_, last = take(order, 7)
    assert last[:3] == (0, 1, 0) and opened == {0}  # the second one of three windows
    (first,) = take(order, 1)
    assert first[:3] == (1, 0, 1)
    take(order, 20)
    assert opened == {0, 1, 2}


def test_windows_estimate_the_steps_of_a_weighted_epoch(sampler):
    order = sampler(2, [MIX])
    estimate = order.position.steps_per_epoch
    epochs = Counter(map(itemgetter(0), take(order, 2 * estimate)))
    assert estimate == pytest.approx(epochs[0], rel=0.2)
    assert len(order.corpus.epoch(0)) == 60 + 40 * 2.5 + 20 * 3


def test_windows_refuse_weights_that_leave_them_empty(sampler):
    with pytest.raises(UserError, match="a pair for each of the 1 batches .* one of 0 pairs"):
        sampler(1, [[1.0, 0.02, 1.0]])
    assert sampler(1, [[1.0, 0.0, 1.0]]).corpus.count_windows() == 4
