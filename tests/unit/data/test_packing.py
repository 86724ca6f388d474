"""Packed batches: one shape, little padding, each pair once, and a run that resumes in the middle
of an epoch.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.corpora import LengthsCorpus
from tests.sweeps import examples
from vanilla_transformer.data.batch_sampler import TokenBudgetBatchSampler
from vanilla_transformer.data.batches import BatchShape, plan_batches
from vanilla_transformer.data.packing import find_rows, packed_shape, plan_packed_batches

LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=15, max_size=200)


def check_plan(plan, shape, source, target):
    """Check that each pair occurs once and that no row is too long. Return the share of padding."""
    assert sorted(plan.pairs.tolist()) == list(range(len(source)))
    for step in range(len(plan)):
        assert sum(map(len, plan[step]))
        for pairs, rows in zip(plan[step], plan.rows_of(step), strict=True):
            assert (np.diff(rows) >= 0).all() and rows.max(initial=0) < shape.rows
            first_fit = find_rows(source[pairs], target[pairs], shape)
            assert (first_fit <= rows).all() and (np.diff(first_fit) >= 0).all()
            for numbers in (rows, first_fit):
                longest = np.bincount(numbers, source[pairs]).max(initial=0)
                assert longest <= shape.source_length
                longest = np.bincount(numbers, target[pairs]).max(initial=0)
                assert longest <= shape.target_length
    tokens = shape.rows * (shape.source_length + shape.target_length) * plan.steps.size
    return 1 - (source.sum() + target.sum()) / tokens


@examples(200)
@given(LENGTHS, st.integers(40, 1000), st.integers(0, 2**32), st.integers(0, 3), st.integers(1, 15))
def test_plan_packs_each_pair_once(lengths, max_tokens, seed, epoch, batches_per_step):
    source, target = np.array(lengths).T
    shape = packed_shape(source, target, max_tokens)
    assert shape.rows * max(shape.source_length, shape.target_length) <= max_tokens
    plan = plan_packed_batches(source, target, shape, seed, epoch, batches_per_step)
    check_plan(plan, shape, source, target)


def lengths_like(pairs, mean, spread, longest, ratio):
    """Return the lengths of both sides of sentences, log-normal and correlated as translations
    are.
    """
    random = np.random.default_rng(0)
    source = np.exp(random.normal(np.log(mean), spread, pairs)).clip(2, longest).astype(int)
    target = source * np.exp(random.normal(np.log(ratio), 0.22, pairs))
    return source, target.clip(2, longest).astype(int)


@pytest.mark.parametrize(
    ("lengths", "max_tokens", "most"),
    [
        pytest.param(lengths_like(100_000, 26, 0.62, 256, 1.05), 25_000, 0.08, id="WMT"),
        pytest.param(lengths_like(29_000, 15, 0.33, 60, 1.05), 1536, 0.15, id="Multi30k"),
    ],
)
def test_packed_batches_have_one_shape_and_little_padding(lengths, max_tokens, most):
    source, target = lengths
    shape = packed_shape(source, target, max_tokens)
    plans = [plan_packed_batches(source, target, shape, 0, epoch) for epoch in range(3)]
    padding = [check_plan(plan, shape, source, target) for plan in plans]
    assert max(padding) < most
    assert max(map(len, plans)) - min(map(len, plans)) <= 0.005 * len(plans[0])
    assert len({tuple(plan.pairs[:50]) for plan in plans}) == 3


def test_packed_batches_are_a_function_of_seed_and_epoch():
    source, target = lengths_like(2000, 15, 0.3, 60, 1.0)
    shape = packed_shape(source, target, 1536)
    first, again = (plan_packed_batches(source, target, shape, 3, 1, 2) for _ in range(2))
    other = plan_packed_batches(source, target, shape, 4, 1, 2)
    assert first.pairs.tolist() == again.pairs.tolist() != other.pairs.tolist()


def test_packed_shape_holds_longest_sentence_of_each_side():
    assert packed_shape([5, 300, 7], [9, 20, 8], 25_000) == BatchShape(82, 304, 40)
    assert packed_shape([5, 30, 7], [9, 20, 8], 25_000) == BatchShape(97, 256, 232)
    assert packed_shape([5, 30, 7], [9, 20, 8], 40) == BatchShape(1, 40, 40)
    message = "max_tokens=29, but pair 2 after cleaning has 30 source and 20 target"
    with pytest.raises(ValueError, match=message):
        packed_shape([5, 30, 7], [9, 20, 8], 29)


PACKED = {
    "input_ids": [[2, 0, 0, 9], [9, 9, 9, 9], [1, 1, 1, 9]],
    "source_positions": [[0, 0, 1, 0], [0, 0, 0, 0], [0, 1, 2, 0]],
    "labels": [[0, 0, 0, -100, -100], [-100] * 5, [0, 0, 0, -100, -100]],
    "target_positions": [[0, 0, 1, 0, 0], [0] * 5, [0, 1, 2, 0, 0]],
}


def test_pack_writes_sentences_and_positions_one_after_another():
    table = LengthsCorpus([2, 3, 1]).pairs.table
    none = np.empty(0, int)
    empty = table.pack(none, none, BatchShape(1, 2, 1), pad_token_id=9)
    assert empty["input_ids"].tolist() == [[9, 9]] and empty["labels"].tolist() == [[-100]]
    pairs, rows = np.array([2, 0, 1]), np.array([0, 0, 2])
    batch = table.pack(pairs, rows, BatchShape(3, 4, 5), pad_token_id=9)
    for name, expected in PACKED.items():
        assert batch[name].tolist() == expected


CHANGES = [{"accumulation": 2}, {"packing": False}, {"max_tokens": 320}]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_packed_epoch_continues_with_other_batches(change):
    options = {"max_tokens": 640, "seed": 0, "packing": True}
    lengths = lengths_like(400, 15, 0.3, 60, 1.0)[0].tolist()
    sampler = TokenBudgetBatchSampler(LengthsCorpus(lengths), **options)
    seen = [sampler.take_step() for _ in range(4)]
    resumed = TokenBudgetBatchSampler(LengthsCorpus(lengths), **options | change)
    resumed.load_state_dict(sampler.position.state_dict())
    while resumed.position.epoch == 0 and resumed.position.progress < 1:
        seen.append(resumed.take_step())
    pairs = []
    for step in seen:
        for batch in step:
            pairs += batch.pairs.tolist()
    assert sorted(pairs) == list(range(400))


SORTS = ("argsort", "lexsort", "concatenate", "searchsorted")


def plan_packed(source, target):
    plan_packed_batches(source, target, packed_shape(source, target, 4096))


def plan_padded(source, target):
    plan_batches(source, target, 4096)


@pytest.mark.parametrize("plan", [plan_packed, plan_padded])
def test_plans_sort_and_copy_in_proportion_to_pairs(plan, monkeypatch):
    """Count the numbers that a plan sorts, copies or seeks, at two sizes."""
    handled = []

    def counting(function):
        def count(values, *arguments, **options):
            result = function(values, *arguments, **options)
            handled.append(np.size(result))
            return result

        return count

    for name in SORTS:
        monkeypatch.setattr(np, name, counting(getattr(np, name)))
    totals = []
    for pairs in (10_000, 40_000):
        handled.clear()
        plan(*lengths_like(pairs, 26, 0.62, 256, 1.05))
        totals.append(sum(handled))
    assert totals[1] < 4.4 * totals[0]
