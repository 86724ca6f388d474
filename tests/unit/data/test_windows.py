"""A corpus in windows: the batches of one table where a window has all shards, and otherwise each pair
once an epoch, for any number of processes, from wherever a run is taken up.
"""

import threading
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.prepared_corpora import write_prepared_lengths
from tests.sweeps import examples
from vanilla_transformer.data import windows
from vanilla_transformer.data.batch_sampler import PairLengths, TokenBudgetBatchSampler
from vanilla_transformer.data.batches import plan_batches
from vanilla_transformer.data.packing import packed_shape, plan_packed_batches
from vanilla_transformer.data.prepared_corpus import REPORT_FILE, read_manifest
from vanilla_transformer.data.windows import PreparedCorpus
from vanilla_transformer.errors import UserError

LENGTHS = [1 + number * 7 % 11 for number in range(120)]
SHARDS = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared")
    write_prepared_lengths(folder, LENGTHS, SHARDS)
    return folder


@pytest.fixture(scope="module")
def sampler(folder):
    """Return a function that returns the sampler of a process over windows of some shards."""

    def build(window_shards, **options):
        corpus = PreparedCorpus(folder, read_manifest(folder), 3, window_shards)
        return TokenBudgetBatchSampler(corpus, **{"max_tokens": 40, "seed": 3} | options)

    return build


def take(order, count):
    """Return the position and the pairs of the batches of some steps."""
    steps = []
    for _ in range(count):
        order.enter_next_epoch()
        position = order.position.epoch, order.position.window
        steps.append((position, [batch.pairs.tolist() for batch in order.take_step()]))
    return steps


def take_epoch(order):
    """Return the steps of the current epoch."""
    steps, epoch = [], order.epoch
    while True:
        order.enter_next_epoch()
        if order.epoch != epoch:
            return steps
        steps += take(order, 1)


def pairs_of(steps):
    batches = chain.from_iterable(batches for _, batches in steps)
    return sorted(chain.from_iterable(batches))


@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize("window_shards", [SHARDS, SHARDS + 5])
def test_window_of_all_shards_has_the_batches_of_one_table(sampler, packing, window_shards):
    options = {"packing": packing, "accumulation": 2}
    lengths = PairLengths(LENGTHS, LENGTHS)
    one_table = TokenBudgetBatchSampler(lengths, 40, 3, **options)
    order = sampler(window_shards, **options)
    for step in range(2 * order.position.steps_per_epoch + 1):
        order.enter_next_epoch()
        if step % one_table.position.steps_per_epoch == 0:
            one_table.set_epoch(order.epoch)
            expected = iter(one_table)
        for batch in order.take_step():
            assert batch.rows.tolist() == batch.pairs.tolist() == next(expected)
        assert order.packed_shape == one_table.packed_shape


@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize("window_shards", [1, 2, 4])
def test_windows_have_each_pair_once_per_epoch(sampler, packing, window_shards):
    order = sampler(window_shards, packing=packing)
    shape = sampler(SHARDS, packing=packing).packed_shape
    epochs = []
    for epoch in range(3):
        steps = take_epoch(order)
        assert pairs_of(steps) == list(range(len(LENGTHS)))
        positions = [position for position, _ in steps]
        assert positions == sorted(positions)
        assert {window for _, window in positions} == set(range(-(-SHARDS // window_shards)))
        assert {number for number, _ in positions} == {epoch}
        assert order.packed_shape == shape
        epochs.append([batches for _, batches in steps])
    assert epochs[0] != epochs[1] != epochs[2]


def test_windows_read_the_pairs_that_they_name(sampler):
    order = sampler(2)
    for _ in range(40):
        order.enter_next_epoch()
        (batch,) = order.take_step()
        tokens = order.pairs.table.pad(batch.rows, 0)["input_ids"]
        assert tokens[:, 0].tolist() == batch.pairs.tolist()
        assert tokens.shape == (batch.shape.rows, batch.shape.source_length)


@given(st.integers(0, 60), st.integers(1, 3))
@examples(20)
def test_windows_resume_from_their_state(sampler, done, window_shards):
    straight, stopped = sampler(window_shards), sampler(window_shards)
    expected = take(straight, done + 9)[done:]
    take(stopped, done)
    again = sampler(window_shards)
    again.load_state_dict(stopped.position.state_dict())
    assert again.position == stopped.position
    assert take(again, 9) == expected


@pytest.mark.parametrize("packing", [False, True])
def test_windows_give_processes_the_batches_of_one(sampler, packing):
    options = {"max_tokens": 20, "packing": packing}
    alone = take(sampler(2, accumulation=4, **options), 30)
    assert alone[-1][0] > (1, 0)
    for replicas in (2, 4):
        options |= {"num_replicas": replicas, "accumulation": 4 // replicas}
        ranks = [take(sampler(2, rank=rank, **options), 30) for rank in range(replicas)]
        for (position, batches), *shares in zip(alone, *ranks, strict=True):
            assert {position} == {other for other, _ in shares}
            together = chain.from_iterable(batches for _, batches in shares)
            assert sorted(together) == sorted(batches)


@pytest.mark.parametrize("replicas", [1, 3])
def test_windows_keep_pairs_when_processes_change(sampler, replicas):
    before = sampler(2, accumulation=2)
    steps = take(before, 1)
    while before.position.window < 1 or before.position.done < 2:
        steps += take(before, 1)
    seen = pairs_of(steps)
    for rank in range(replicas):
        order = sampler(2, num_replicas=replicas, rank=rank)
        order.load_state_dict(before.position.state_dict())
        seen += pairs_of(take_epoch(order))
    assert len(seen) == len(set(seen)) > len(LENGTHS) - replicas


def test_state_without_a_window_is_of_the_first_one(sampler):
    stopped, again = sampler(SHARDS), sampler(SHARDS)
    take(stopped, 3)
    state = stopped.position.state_dict()
    assert state.pop("window") == 0
    again.load_state_dict(state)
    assert take(again, 30) == take(stopped, 30)


def test_windows_are_opened_and_planned_one_ahead_by_a_thread(sampler, monkeypatch):
    opened, plain = [], windows.open_shards

    def record(folder, entries):
        is_main = threading.current_thread() is threading.main_thread()
        opened.append(([entry.file for entry in entries], is_main))
        return plain(folder, entries)

    monkeypatch.setattr(windows, "open_shards", record)
    order, entered = sampler(2), 1
    while entered < 9:
        order.enter_next_epoch()
        order.take_step()
        for plan in order._plans.values():
            plan.result()
        entered = 3 * order.position.epoch + order.position.window + 1
        assert len(opened) == entered + (order.position.done >= order.position.steps // 2)
        assert len(order.corpus._opened) <= 2 and len(order._plans) <= 2
    assert [is_main for _, is_main in opened] == [True] + 8 * [False]
    for files, _ in opened:
        assert len(files) == 2 and files == sorted(files)
    epochs = [[files for files, _ in opened[begin : begin + 3]] for begin in (0, 3, 6)]
    for epoch in epochs:
        assert len(set(chain.from_iterable(epoch))) == SHARDS
    assert epochs[0] != epochs[1] != epochs[2]


def test_windows_estimate_the_steps_of_an_epoch(sampler):
    order = sampler(2)
    estimate, before, steps = order.position.steps_per_epoch, 0.0, 0
    while order.epoch == 0:
        assert before <= order.position.progress <= 1.0 + 1e-9
        before = order.position.progress
        order.take_step()
        order.enter_next_epoch()
        steps += 1
    assert before > 1.0 - 2 / steps
    assert estimate == pytest.approx(steps, rel=0.2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens": 10}, "`max_tokens` must be at least .* got 10 .* has 11 tokens"),
        ({"pad_to_multiple_of": 16, "max_tokens": 31}, None),
        ({"pad_to_multiple_of": 16, "max_tokens": 15}, "`max_tokens` must be at least .* got 0"),
        ({"num_replicas": 21}, "a pair for each of the 21 batches .* one of 20 pairs"),
    ],
)
def test_windows_refuse_limits_of_a_later_one_at_once(sampler, options, message):
    if message is None:
        assert sampler(1, **options).position.window == 0
        return
    with pytest.raises(UserError, match=message):
        sampler(1, **options)


@pytest.mark.parametrize("content", ["[]", "{}", '{"overlap": {}, "cleaning": {"read": 1}}'])
def test_prepared_corpus_refuses_another_report(folder, tmp_path, content):
    (tmp_path / REPORT_FILE).write_text(content)
    with pytest.raises(UserError, match="must be the report of a prepared corpus"):
        PreparedCorpus(tmp_path, read_manifest(folder), 0, 1)


def plan_packed(lengths, window):
    shape = packed_shape(lengths, lengths, 40)
    return plan_packed_batches(lengths, lengths, shape, 3, 1, 2, window)


def plan_padded(lengths, window):
    return plan_batches(lengths, lengths, 40, 3, 1, 2, 1, window)


@pytest.mark.parametrize("plan", [plan_padded, plan_packed])
def test_plans_of_windows_have_other_seeds(plan):
    first, again, second = (plan(LENGTHS, window).pairs.tolist() for window in (0, 0, 1))
    assert first == again != second
    assert sorted(first) == sorted(second)


def test_packed_batches_have_the_shape_of_the_whole_corpus_in_each_window(tmp_path):
    lengths = [300, *[5] * 59]
    manifest = write_prepared_lengths(tmp_path, lengths, 3)
    corpus = PreparedCorpus(tmp_path, manifest, 0, window_shards=1)
    order = TokenBudgetBatchSampler(corpus, 1000, packing=True)
    shapes = set()
    while order.epoch == 0:
        shapes.add(order.take_step()[0].shape)
        order.enter_next_epoch()
    assert shapes == {packed_shape(lengths, lengths, 1000)}
