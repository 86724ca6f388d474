"""Batches: nothing lost, nothing doubled, never over budget, for any lengths."""

from itertools import chain, combinations, islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from tests.sweeps import examples
from vanilla_transformer.data.batch_sampler import PairLengths, TokenBudgetBatchSampler
from vanilla_transformer.data.batches import plan_batches

# 15 pairs at least: one for each batch of the largest update below.
LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=15, max_size=200)
BUDGETS = st.integers(40, 1000)
SEEDS = st.integers(0, 2**32)
EPOCHS = st.integers(0, 3)
REPLICAS = st.integers(1, 5)
ACCUMULATIONS = st.integers(1, 3)


def sides(lengths):
    source, target = zip(*lengths, strict=True)
    return np.array(source, dtype=np.int32), np.array(target, dtype=np.int32)


def can_be_shared(lengths, max_tokens, batches_per_step):
    """Return whether there is a pair for each batch; errors have their own tests."""
    fewest = len(plan_batches(*sides(lengths), max_tokens))
    return fewest + batches_per_step <= len(lengths)


def as_lists(plan):
    return [list(map(np.ndarray.tolist, step)) for step in plan]


def pairs_of(steps):
    """Return the pairs in all batches of some steps, sorted."""
    return sorted(chain.from_iterable(chain.from_iterable(steps)))


def padded_tokens(plan, lengths):
    """Tokens of each batch where its pairs are as long as its longest,
    `(steps, batches_per_step)`.
    """
    lengths = np.asarray(lengths)

    def count(batch):
        return len(batch) * int(lengths[batch].max())

    return np.array([list(map(count, step)) for step in plan])


def generated_lengths(pairs):
    """Lengths of both sides of sentences, correlated as translations are."""
    random = np.random.default_rng(0)
    common = random.normal(3.0, 0.5, pairs)

    def draw():
        lengths = np.exp(random.normal(common, 0.2))
        return np.clip(lengths, 1, 250).astype(np.int32)

    return draw(), draw()


@examples(300)
@given(LENGTHS, BUDGETS, SEEDS, EPOCHS, REPLICAS, ACCUMULATIONS)
def test_plan_has_each_pair_once(lengths, max_tokens, seed, epoch, replicas, accumulation):
    per_step = replicas * accumulation
    if not can_be_shared(lengths, max_tokens, per_step):
        per_step = 1
    source, target = sides(lengths)
    plan = plan_batches(source, target, max_tokens, seed, epoch, per_step)
    assert pairs_of(as_lists(plan)) == list(range(len(lengths)))
    for step in plan:
        assert len(step) == per_step
        for batch in step:
            assert len(batch) * source[batch].max() <= max_tokens
            assert len(batch) * target[batch].max() <= max_tokens


@examples(200)
@given(LENGTHS, st.integers(200, 1000), SEEDS, REPLICAS, ACCUMULATIONS)
def test_token_budget_batch_sampler_gives_replicas_equally_many_batches(
    lengths, max_tokens, seed, replicas, accumulation
):
    if not can_be_shared(lengths, max_tokens, replicas * accumulation):
        replicas = accumulation = 1
    samplers = []
    for rank in range(replicas):
        pairs = PairLengths(*sides(lengths))
        options = (seed, accumulation, replicas, rank)
        samplers.append(TokenBudgetBatchSampler(pairs, max_tokens, *options))
    epochs = [list(sampler) for sampler in samplers]
    assert {len(batches) for batches in epochs} == {len(samplers[0])}
    assert len(samplers[0]) % accumulation == 0
    assert pairs_of(epochs) == list(range(len(lengths)))


@examples(100)
@given(LENGTHS, BUDGETS, SEEDS, EPOCHS)
def test_plan_has_as_many_steps_in_each_epoch(lengths, max_tokens, seed, epoch):
    plan = plan_batches(*sides(lengths), max_tokens, seed, epoch)
    assert as_lists(plan) == as_lists(plan_batches(*sides(lengths), max_tokens, seed, epoch))
    assert len(plan) == len(plan_batches(*sides(lengths), max_tokens, seed + 1, epoch + 1))


def test_plan_batches_order_depends_on_seed_and_epoch():
    lengths = [1 + number % 17 for number in range(300)]

    def plan(seed, epoch):
        return as_lists(plan_batches(lengths, lengths, 64, seed, epoch))

    assert plan(1, 0) != plan(2, 0)
    assert plan(1, 0) != plan(1, 1)


def test_plan_batches_shuffles_pairs_of_equal_length():
    def couples_of(epoch):
        plan = plan_batches([10] * 1000, [10] * 1000, 200, epoch=epoch)
        couples = set()
        for batch in chain.from_iterable(as_lists(plan)):
            couples |= {*combinations(sorted(batch), 2)}
        return couples

    first, second = couples_of(0), couples_of(1)
    assert len(first & second) < 0.1 * len(first)


def test_plan_batches_cuts_differently_in_each_epoch():
    lengths = np.arange(1, 1001)  # leaves but one order

    def batches(epoch):
        plan = plan_batches(lengths, lengths, 5000, epoch=epoch)
        return {frozenset(batch) for batch in chain.from_iterable(as_lists(plan))}

    first, second = batches(0), batches(1)
    assert len(first & second) < 0.5 * len(first)


def test_plan_batches_fills_the_budget():
    lengths = [10] * 1000
    tokens = padded_tokens(plan_batches(lengths, lengths, 99), lengths)
    assert np.median(tokens) == 90


def test_plan_batches_pads_little_and_balances_the_batches_of_a_step():
    source, target = generated_lengths(100_000)
    longest = np.maximum(source, target)
    plan = plan_batches(source, target, 3000, batches_per_step=8)
    padded = [padded_tokens(plan, source), padded_tokens(plan, target)]
    assert source.sum() / padded[0].sum() > 0.97
    assert target.sum() / padded[1].sum() > 0.97
    cost = sum(padded)
    assert cost.shape == (len(plan), 8)
    assert cost.max(axis=1).sum() / cost.mean(axis=1).sum() < 1.03
    assert cost.sum(axis=1).min() > 0.7 * cost.sum(axis=1).mean()  # no small remainder
    spreads = [longest[np.concatenate(step)].std() for step in plan]
    assert np.median(spreads) < 0.2 * longest.std()


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.int64])
def test_plan_batches_accepts_arrays_of_any_integers(dtype):
    lengths = [1 + number % 9 for number in range(100)]
    source, target = np.array(lengths, dtype=dtype), np.array(lengths[::-1], dtype=dtype)
    plan = plan_batches(source, target, 40)
    assert as_lists(plan) == as_lists(plan_batches(lengths, lengths[::-1], 40))


def test_plan_batches_sorts_lengths_beyond_16_bits():
    source, target = (lengths * 10_000 for lengths in generated_lengths(20_000))
    plan = plan_batches(source, target, 10_000_000)
    assert padded_tokens(plan, target).max() <= 10_000_000
    assert target.sum(dtype=np.int64) / padded_tokens(plan, target).sum() > 0.9


LONG = "max_tokens={}, but pair 2 after cleaning has 4 source and 12 target tokens.*to {}"


@pytest.mark.parametrize(
    ("source", "target", "options", "message"),
    [
        ([3, 4, 5], [3, 12, 5], {"max_tokens": 10}, LONG.format(10, 12)),
        (
            [3, 4, 5],
            [3, 12, 5],
            {"max_tokens": 15, "pad_to_multiple_of": 8},
            "sentence, as a multiple of 8, got " + LONG.format(15, 16),
        ),
        (
            [1] * 3,
            [1] * 3,
            {"batches_per_step": 4},
            "each of the 4 batches of a step .* got 3 pairs",
        ),
        (
            [8] * 3,
            [8] * 3,
            {"max_tokens": 8, "batches_per_step": 2},
            "3 pairs cannot be divided among the 2 batches of a step",
        ),
        ([1, 1], [1, 1, 1], {}, "got 2 of the source and 3 of the target"),
        ([1, 1], [1, 0], {}, "pair 2 has 0 target tokens"),
    ],
)
def test_plan_batches_refuses_what_cannot_be(source, target, options, message):
    with pytest.raises(ValueError, match=message):
        plan_batches(source, target, **{"max_tokens": 10} | options)


def test_token_budget_batch_sampler_set_epoch_restarts_the_epoch():
    lengths = [1 + number % 9 for number in range(100)]
    sampler = TokenBudgetBatchSampler(PairLengths(lengths, lengths), 40)
    list(islice(sampler, 5))
    for epoch in (0, 1, 1, 0, 2):
        sampler.set_epoch(epoch)
        plan = as_lists(plan_batches(lengths, lengths, 40, epoch=epoch))
        planned = [batch for (batch,) in plan]
        assert list(sampler) == list(sampler) == planned
        assert len(sampler) == len(planned)


def test_token_budget_batch_sampler_works_with_a_data_loader():
    lengths = [1 + number % 9 for number in range(100)]
    sampler = TokenBudgetBatchSampler(PairLengths(lengths, lengths), 40)
    loader = DataLoader(range(100), batch_sampler=sampler, collate_fn=list)  # type: ignore[arg-type]
    batches = list(loader)
    assert len(loader) == len(batches)
    assert sorted(chain.from_iterable(batches)) == list(range(100))
