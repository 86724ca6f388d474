"""The order of the data: every pair once an epoch, in any number of processes, and from wherever it
is taken up.
"""

import threading
from functools import partial
from itertools import chain, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.corpora import FreshCorpus
from tests.corpora import LengthsCorpus as Pairs
from tests.sweeps import examples
from vanilla_transformer.data import batch_sampler
from vanilla_transformer.data.batch_sampler import PairLengths, TokenBudgetBatchSampler

lengths = st.lists(st.integers(1, 20), min_size=12, max_size=60)


def updates(order, count):
    """Return the indices of the pairs of `count` steps, batch by batch."""
    return [list(map(indices_of, step)) for step in islice(walk(order), count)]


def indices_of(batch):
    return batch.pairs.tolist()


def walk(order):
    while True:
        order.enter_next_epoch()
        yield order.take_step()


def pairs_of(many_updates):
    return sorted(chain.from_iterable(chain.from_iterable(many_updates)))


@given(lengths, st.integers(0, 3))
@examples(60)
def test_token_budget_batch_sampler_has_each_pair_once_per_epoch(lengths, seed):
    order = TokenBudgetBatchSampler(Pairs(lengths), 40, seed, accumulation=2)
    first = updates(order, order.position.steps_per_epoch)
    assert pairs_of(first) == list(range(len(lengths)))
    assert order.position.progress == 1.0
    next(walk(order))
    assert order.epoch == 1


@given(lengths)
@examples(60)
def test_sampler_counts_tokens_of_batches_and_steps(lengths):
    options = {"accumulation": 2, "num_replicas": 2}
    step = []
    for rank in (0, 1):
        order = TokenBudgetBatchSampler(Pairs(lengths), 40, 0, rank=rank, **options)
        step += next(walk(order))
    for batch in step:
        sizes = [lengths[number] for number in batch.pairs]
        assert batch.shape == (len(sizes), max(sizes), max(sizes))
        assert batch.rows.tolist() == batch.pairs.tolist()
        assert batch.counts == (sum(sizes), sum(sizes), 2 * len(sizes) * max(sizes))
    target_tokens = sum(batch.counts.target_tokens for batch in step)
    assert {batch.step_target_tokens for batch in step} == {target_tokens}


@given(lengths, st.integers(0, 30))
@examples(60)
def test_token_budget_batch_sampler_resumes_from_its_state(lengths, done):
    straight = TokenBudgetBatchSampler(Pairs(lengths), 40, seed=1)
    stopped = TokenBudgetBatchSampler(Pairs(lengths), 40, seed=1)
    expected = updates(straight, done + 5)[done:]
    updates(stopped, done)
    again = TokenBudgetBatchSampler(Pairs(lengths), 40, seed=1)
    again.load_state_dict(stopped.position.state_dict())
    assert updates(again, 5) == expected


@pytest.mark.parametrize("replicas", [2, 4])
def test_token_budget_batch_sampler_gives_processes_what_one_accumulates(replicas):
    options = {"max_tokens": 20, "accumulation": 4 // replicas, "num_replicas": replicas}
    alone = updates(TokenBudgetBatchSampler(Pairs([5] * 40), 20, accumulation=4), 4)
    ranks = []
    for rank in range(replicas):
        order = TokenBudgetBatchSampler(Pairs([5] * 40), rank=rank, **options)
        ranks.append(updates(order, 4))
    together = [sorted(chain.from_iterable(shares)) for shares in zip(*ranks, strict=True)]
    assert together == [sorted(step) for step in alone]


@given(lengths, st.integers(0, 6), st.sampled_from([1, 2, 4]), st.integers(0, 3))
@examples(100)
def test_sampler_keeps_pairs_when_processes_change(lengths, done, replicas, more):
    before = TokenBudgetBatchSampler(Pairs(lengths), 40, seed=0, accumulation=3)
    done = min(done, before.position.steps_per_epoch - 1)
    seen = pairs_of(updates(before, done))
    rest = []
    for rank in range(replicas):
        options = {"num_replicas": replicas, "rank": rank}
        order = TokenBudgetBatchSampler(Pairs(lengths), 40, seed=0, **options)
        order.load_state_dict(before.position.state_dict())
        rest.append(pairs_of(updates(order, order.position.steps_per_epoch - done)))
    together = sorted(chain(seen, *rest))
    left = set(range(len(lengths))) - set(together)
    assert len(together) == len(set(together))
    assert len(left) < replicas and (not left or not any(rest))


def test_token_budget_batch_sampler_survives_two_changes_within_an_epoch():
    pairs = Pairs([4] * 60)
    order = TokenBudgetBatchSampler(pairs, 8, seed=0, accumulation=2)
    seen = pairs_of(updates(order, 3))
    for accumulation in (3, 1):
        state = order.position.state_dict()
        order = TokenBudgetBatchSampler(pairs, 8, seed=0, accumulation=accumulation)
        order.load_state_dict(state)
        seen += pairs_of(updates(order, 2))
    parts = order.position.state_dict()["parts"]
    assert parts == [[2, 3, 8, False], [3, 2, 8, False], [1, 2, 8, False]]
    seen += pairs_of(updates(order, order.position.steps_per_epoch - 7))
    assert sorted(seen) == list(range(60))


def test_token_budget_batch_sampler_refuses_a_pair_beyond_the_budget():
    message = "`max_tokens` must be at least the length of the longest sentence"
    with pytest.raises(ValueError, match=message):
        TokenBudgetBatchSampler(Pairs([5, 41]), 40, seed=0)


@given(lengths, st.integers(0, 6), st.sampled_from([1, 2, 4]))
@examples(100)
def test_sampler_keeps_pairs_when_batches_change(lengths, done, accumulation):
    before = TokenBudgetBatchSampler(Pairs(lengths), 160, seed=0)
    done = min(done, before.position.steps_per_epoch - 1)
    seen = pairs_of(updates(before, done))
    options = {"seed": 0, "accumulation": accumulation}
    order = TokenBudgetBatchSampler(Pairs(lengths), 160 // accumulation, **options)
    order.load_state_dict(before.position.state_dict())
    rest = pairs_of(updates(order, order.position.steps_per_epoch - done))
    again = TokenBudgetBatchSampler(Pairs(lengths), 160 // accumulation, **options)
    again.load_state_dict(order.position.state_dict())
    assert again.position == order.position
    assert len({*seen, *rest}) == len(seen) + len(rest) > len(lengths) - accumulation


@given(lengths, st.integers(0, 8), st.sampled_from([1, 2]), st.booleans())
@examples(60)
def test_sampler_iterates_over_batches_of_steps(lengths, done, replicas, packing):
    """Without a corpus and with one, from any step of an epoch, in all processes."""
    for rank in range(replicas):
        options = {"max_tokens": 40, "accumulation": 2, "packing": packing}
        options |= {"num_replicas": replicas, "rank": rank}
        order = TokenBudgetBatchSampler(Pairs(lengths), **options)
        steps = order.position.steps_per_epoch
        done = min(done, steps)
        updates(order, done)
        others = TokenBudgetBatchSampler(PairLengths(lengths, lengths), **options)
        others.load_state_dict(order.position.state_dict())
        batches, again = list(others), list(others)
        expected = list(chain.from_iterable(updates(order, steps - done)))
        assert batches == again == expected and len(others) == len(expected)


@pytest.mark.parametrize("earlier", [0, 1])
def test_sampler_computes_shape_of_packed_batches_once(monkeypatch, earlier):
    computed, plain = [], batch_sampler.packed_shape

    def record(*lengths):
        computed.append(lengths)
        return plain(*lengths)

    monkeypatch.setattr(batch_sampler, "packed_shape", record)
    sampler = TokenBudgetBatchSampler(Pairs([5] * 80), 40, packing=True)
    parts = [[2, 1, 20, True]] * earlier + [[1, 1, 40, True]]
    sampler.load_state_dict({"first_step": 0, "epoch": 1, "parts": parts})
    assert len(computed) == 2 + earlier


@pytest.fixture
def planned(monkeypatch):
    """Return a list that gets the epoch of each plan, and whether the main thread makes it."""
    made = []

    def record(plain, *arguments):
        made.append((arguments[4], threading.current_thread() is threading.main_thread()))
        return plain(*arguments)

    for name in ("plan_batches", "plan_packed_batches"):
        plain = getattr(batch_sampler, name)
        monkeypatch.setattr(batch_sampler, name, partial(record, plain))
    return made


@pytest.mark.parametrize("packing", [False, True])
def test_token_budget_batch_sampler_plans_the_next_epoch_in_a_thread(planned, packing):
    sampler = TokenBudgetBatchSampler(Pairs([5] * 40), 20, seed=1, packing=packing)
    steps = sampler.position.steps_per_epoch + 1
    ahead = updates(sampler, steps)
    assert planned == [(0, True), (1, False)]
    other = TokenBudgetBatchSampler(FreshCorpus([5] * 40), 20, seed=1, packing=packing)
    assert updates(other, steps) == ahead
    assert planned[2:] == [(0, True), (1, True)]


def test_token_budget_batch_sampler_keeps_its_plan_when_it_returns_to_a_place(planned):
    sampler = TokenBudgetBatchSampler(Pairs([5] * 40), 20)
    position = sampler.position.state_dict()
    first = updates(sampler, 2)
    sampler.load_state_dict(position)
    assert updates(sampler, 2) == first and planned == [(0, True)]
    sampler.load_state_dict(position | {"epoch": 7})
    assert planned[1:] == [(7, True)]
