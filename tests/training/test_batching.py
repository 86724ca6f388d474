"""Batches: nothing lost, nothing doubled, never over budget, for any lengths."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vanilla_transformer.training.batching import TokenBatchSampler, collate, plan_batches
from vanilla_transformer.training.corpora import EncodedPair

LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=8, max_size=200)


@settings(max_examples=200, deadline=None)
@given(LENGTHS, st.integers(200, 1000), st.integers(0, 5), st.integers(0, 3), st.sampled_from([1, 2, 4]))
def test_every_pair_comes_once_and_no_batch_exceeds_its_budget(lengths, max_tokens, seed, epoch, replicas):
    source, target = [pair[0] for pair in lengths], [pair[1] for pair in lengths]
    steps = plan_batches(source, target, max_tokens, seed, epoch, replicas)
    assert sorted(pair for step in steps for batch in step for pair in batch) == list(range(len(lengths)))
    for step in steps:
        assert len(step) == replicas
        for batch in step:
            assert len(batch) * max(source[pair] for pair in batch) <= max_tokens
            assert len(batch) * max(target[pair] for pair in batch) <= max_tokens


def test_the_order_is_a_function_of_seed_and_epoch():
    lengths = [1 + number % 17 for number in range(300)]

    def plan(seed, epoch):
        return plan_batches(lengths, lengths, 64, seed, epoch)

    assert plan(1, 0) == plan(1, 0)
    assert plan(1, 0) != plan(2, 0)
    assert plan(1, 0) != plan(1, 1)


def test_batches_hold_pairs_of_like_length():
    lengths = [1 + (7 * number) % 50 for number in range(2000)]
    batches = [batch for step in plan_batches(lengths, lengths, 500) for batch in step]
    padded = sum(len(batch) * max(lengths[pair] for pair in batch) for batch in batches)
    assert sum(lengths) / padded > 0.97


def test_a_pair_longer_than_the_budget_is_named():
    with pytest.raises(ValueError, match=r"max_tokens=10, but pair 2 has 4 source and 12 target tokens.*to 12"):
        plan_batches([3, 4, 5], [3, 12, 5], max_tokens=10)


def test_fewer_pairs_than_batches_of_an_update_are_refused():
    with pytest.raises(ValueError, match="each of the 4 batches of an update .* got 3 pairs"):
        plan_batches([1, 1, 1], [1, 1, 1], 10, batches_per_step=4)


def test_batches_that_cannot_be_shared_evenly_are_refused():
    with pytest.raises(ValueError, match="3 batches of one pair each"):
        plan_batches([8, 8, 8], [8, 8, 8], 8, batches_per_step=2)


def test_replicas_see_disjoint_halves_of_each_step():
    lengths = [1 + number % 9 for number in range(100)]
    ranks = [TokenBatchSampler(lengths, lengths, 40, seed=3, num_replicas=2, rank=rank) for rank in (0, 1)]
    assert len(ranks[0]) == len(ranks[1])
    seen = [pair for rank in ranks for _, batch in zip(range(len(rank)), rank, strict=False) for pair in batch]
    assert sorted(seen) == list(range(100))


def test_how_many_processes_share_a_step_does_not_change_it():
    lengths = [1 + number % 9 for number in range(100)]

    def steps(accumulation, replicas):
        samplers = [
            iter(TokenBatchSampler(lengths, lengths, 40, 0, accumulation, replicas, rank)) for rank in range(replicas)
        ]
        return [
            sorted(sum((next(sampler) for sampler in samplers for _ in range(accumulation)), [])) for _ in range(30)
        ]

    assert steps(4, 1) == steps(2, 2) == steps(1, 4)


def test_a_sampler_goes_on_where_its_state_was_taken():
    lengths = [1 + number % 9 for number in range(100)]
    straight = iter(TokenBatchSampler(lengths, lengths, 40))
    expected = [next(straight) for _ in range(60)]  # more than two epochs

    first = TokenBatchSampler(lengths, lengths, 40)
    beginning = iter(first)
    batches = [next(beginning) for _ in range(23)]
    resumed = TokenBatchSampler(lengths, lengths, 40)
    resumed.load_state_dict(first.state_dict())
    batches += [batch for _, batch in zip(range(37), resumed, strict=False)]
    assert batches == expected


def test_collate_pads_on_the_right_and_marks_padding():
    batch = collate([EncodedPair([5, 6, 2], [7, 2]), EncodedPair([5, 2], [7, 8, 9, 2])], pad_token_id=0)
    assert batch["input_ids"].tolist() == [[5, 6, 2], [5, 2, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]
    assert batch["labels"].tolist() == [[7, 2, -100, -100], [7, 8, 9, 2]]
    assert all(tensor.dtype == torch.long for tensor in batch.values())
