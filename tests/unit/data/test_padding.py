"""Padding to multiples of a number: the same pairs and counts in batches of few lengths, within the budget."""

import pytest
import torch

from tests.tiny_corpora import LengthsCorpus, encoded_pairs
from vanilla_transformer.data.batch_sampler import TokenBudgetBatchSampler
from vanilla_transformer.data.tokenized_corpus import EncodedPair

LENGTHS = [1, 3, 7, 8, 9, 15, 16, 17, 20, 24] * 6


@pytest.mark.parametrize("multiple", [1, 8, 16])
def test_token_budget_batch_sampler_pads_to_multiples_within_the_budget(multiple):
    sampler = TokenBudgetBatchSampler(LengthsCorpus(LENGTHS), 64, 0, pad_to_multiple_of=multiple)
    batches = [batch for _ in range(sampler.position.steps_per_epoch) for batch in sampler.take_step()]
    assert sorted(pair for batch in batches for pair in batch.pairs) == list(range(len(LENGTHS)))
    for batch in batches:
        longest = max(LENGTHS[pair] for pair in batch.pairs)
        assert batch.shape[1:] == (-(-longest // multiple) * multiple,) * 2
        assert len(batch.pairs) * batch.shape.source_length <= 64
        assert batch.counts.padded_tokens == len(batch.pairs) * sum(batch.shape[1:])
        assert batch.counts.target_tokens == sum(LENGTHS[pair] for pair in batch.pairs)


def test_token_table_pads_to_multiples():
    encoded = encoded_pairs([EncodedPair([5, 6, 2], [7, 2]), EncodedPair([5, 2], [7, 8, 9, 3, 2])])
    plain, wide = (encoded.table.pad(encoded.rows, 1, multiple) for multiple in (1, 4))
    assert {name: tuple(tensor.shape) for name, tensor in wide.items()} == {
        "input_ids": (2, 4),
        "attention_mask": (2, 4),
        "labels": (2, 8),
    }
    for name, padding in (("input_ids", 1), ("attention_mask", 0), ("labels", -100)):
        length = plain[name].shape[1]
        assert torch.equal(wide[name][:, :length], plain[name])
        assert (wide[name][:, length:] == padding).all()
