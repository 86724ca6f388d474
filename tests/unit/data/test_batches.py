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
    return [[batch.tolist() for batch in step] for step in plan]


def padded_tokens(plan, lengths):
    """Tokens of each batch where its pairs are as long as its longest,
    `(steps, batches_per_step)`.
    """
    lengths = np.asarray(lengths)
    return np.array([[len(batch) * int(lengths[batch].max()) for batch in step] for step in plan])


def generated_lengths(pairs):
    """Lengths of both sides of sentences, correlated as translations are."""
    random = np.random.default_rng(0)
    common = random.normal(3.0, 0.5, pairs)
    return tuple(
        np.clip(np.exp(random.normal(common, 0.2)), 1, 250).astype(np.int32) for _ in range(2)
    )


@examples(300)
@given(LENGTHS, BUDGETS, SEEDS, EPOCHS, REPLICAS, ACCUMULATIONS)
def test_plan_has_each_pair_once(lengths, max_tokens, seed, epoch, replicas, accumulation):
    per_step = (
        replicas * accumulation
        if can_be_shared(lengths, max_tokens, replicas * accumulation)
        else 1
    )
    source, target = sides(lengths)
    plan = plan_batches(source, target, max_tokens, seed, epoch, per_step)
    assert sorted(chain.from_iterable(chain.from_iterable(as_lists(plan)))) == list(
        range(len(lengths))
    )
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
    samplers = [
        TokenBudgetBatchSampler(
            PairLengths(*sides(lengths)), max_tokens, seed, accumulation, replicas, rank
        )
        for rank in range(replicas)
    ]
    epochs = [list(sampler) for sampler in samplers]
    assert {len(batches) for batches in epochs} == {len(samplers[0])}
    assert len(samplers[0]) % accumulation == 0
    assert sorted(chain.from_iterable(chain.from_iterable(epochs))) == list(range(len(lengths)))


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
    def couples(epoch):
        batches = chain.from_iterable(
            as_lists(plan_batches([10] * 1000, [10] * 1000, 200, epoch=epoch))
        )
        return {couple for batch in batches for couple in combinations(sorted(batch), 2)}

    assert len(couples(0) & couples(1)) < 0.1 * len(couples(0))


def test_plan_batches_cuts_differently_in_each_epoch():
    lengths = np.arange(1, 1001)  # leaves but one order

    def batches(epoch):
        plan = plan_batches(lengths, lengths, 5000, epoch=epoch)
        return {frozenset(batch) for batch in chain.from_iterable(as_lists(plan))}

    assert len(batches(0) & batches(1)) < 0.5 * len(batches(0))


def test_plan_batches_fills_the_budget():
    assert np.median(padded_tokens(plan_batches([10] * 1000, [10] * 1000, 99), [10] * 1000)) == 90


def test_plan_batches_pads_little_and_balances_the_batches_of_a_step():
    source, target = generated_lengths(100_000)
    longest = np.maximum(source, target)
    plan = plan_batches(source, target, 3000, batches_per_step=8)
    padded = [padded_tokens(plan, lengths) for lengths in (source, target)]
    assert all(
        lengths.sum() / tokens.sum() > 0.97
        for lengths, tokens in zip((source, target), padded, strict=True)
    )
    cost = sum(padded)
    assert cost.shape == (len(plan), 8)
    assert cost.max(axis=1).sum() / cost.mean(axis=1).sum() < 1.03
    assert cost.sum(axis=1).min() > 0.7 * cost.sum(axis=1).mean()  # no small remainder
    assert np.median([longest[np.concatenate(step)].std() for step in plan]) < 0.2 * longest.std()


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.int64])
def test_plan_batches_accepts_arrays_of_any_integers(dtype):
    lengths = [1 + number % 9 for number in range(100)]
    plan = plan_batches(np.array(lengths, dtype=dtype), np.array(lengths[::-1], dtype=dtype), 40)
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
        planned = [batch for (batch,) in as_lists(plan_batches(lengths, lengths, 40, epoch=epoch))]
        assert list(sampler) == list(sampler) == planned and len(sampler) == len(planned)


def test_token_budget_batch_sampler_works_with_a_data_loader():
    lengths = [1 + number % 9 for number in range(100)]
    loader = DataLoader(
        range(100),  # type: ignore[arg-type]
        batch_sampler=TokenBudgetBatchSampler(PairLengths(lengths, lengths), 40),
        collate_fn=list,
    )
    assert len(loader) == len(batches := list(loader))
    assert sorted(chain.from_iterable(batches)) == list(range(100))
