"""Batches read from Arrow chunks at once equal those padded sentence by sentence."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.rnn import pad_sequence
from transformers import DataCollatorForSeq2Seq

from tests.corpora import LengthsCorpus, encoded_pairs
from tests.sweeps import examples
from vanilla_transformer.data.batch_sampler import TokenBudgetBatchSampler
from vanilla_transformer.data.tokenized_corpus import EncodedPair

TOKENS = st.lists(st.integers(3, 40_000), max_size=9)
SIDES = TOKENS.filter(bool)
PAIRS = st.lists(st.builds(EncodedPair, SIDES, SIDES), min_size=1, max_size=30)


def pad_by_sentence(pairs):
    """Return the batch as a loop over sentences builds it."""
    sources = [torch.tensor(pair.source) for pair in pairs]
    targets = [torch.tensor(pair.target) for pair in pairs]
    masks = [torch.ones_like(source) for source in sources]
    pad = partial(pad_sequence, batch_first=True)
    return {
        "input_ids": pad(sources, padding_value=1),
        "attention_mask": pad(masks),
        "labels": pad(targets, padding_value=-100),
    }


@given(PAIRS, st.integers(1, 6), st.data())
@examples(100)
def test_token_table_pads_any_rows_as_a_loop_does(pairs, chunks, data):
    order = data.draw(st.permutations(range(len(pairs))))
    encoded = encoded_pairs(pairs, chunks).select(order[: 1 + len(order) // 2])
    batch = encoded.table.pad(encoded.rows, 1)
    expected = pad_by_sentence([pairs[row] for row in encoded.rows])
    assert batch.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(batch[name], tensor)
        assert batch[name].dtype is torch.long


def test_token_table_reads_rows_without_tokens_beside_others():
    pairs = [EncodedPair([], [7]), EncodedPair([5], []), EncodedPair([6], [8, 8])]
    encoded = encoded_pairs(pairs, chunks=3)
    batch = encoded.table.pad(encoded.rows[[2, 0, 1]], 0)
    assert batch["input_ids"].tolist() == [[6], [0], [5]]
    assert batch["labels"].tolist() == [[8, 8], [7, -100], [-100, -100]]
    none = encoded.table.pad(encoded.rows[:0], 0)
    assert {tuple(tensor.shape) for tensor in none.values()} == {(0, 0)}


ONE_PAIR = [([5, 6, 2], [7, 2])]
THREE_PAIRS = [([5, 2], [7, 8, 9, 2]), ([2], [6, 2]), ([4, 4, 4, 2], [2])]


@pytest.mark.parametrize("pairs", [ONE_PAIR, THREE_PAIRS])
def test_token_table_gives_the_tensors_of_the_library_collator(tiny_tokenizer, pairs):
    features = [{"input_ids": source, "labels": target} for source, target in pairs]
    expected = DataCollatorForSeq2Seq(tiny_tokenizer, return_tensors="pt")(features)
    encoded = encoded_pairs([EncodedPair(*pair) for pair in pairs])
    batch = encoded.table.pad(encoded.rows, tiny_tokenizer.pad_token_id)
    assert batch.keys() == expected.keys()
    assert all(torch.equal(batch[name], expected[name]) for name in batch)


LENGTHS = [1, 3, 7, 8, 9, 15, 16, 17, 20, 24] * 6


@pytest.mark.parametrize("multiple", [1, 8, 16])
def test_token_budget_batch_sampler_pads_to_multiples_within_the_budget(multiple):
    sampler = TokenBudgetBatchSampler(LengthsCorpus(LENGTHS), 64, 0, pad_to_multiple_of=multiple)
    batches = []
    for _ in range(sampler.position.steps_per_epoch):
        batches += sampler.take_step()
    pairs = []
    for batch in batches:
        pairs += batch.pairs.tolist()
        lengths = [LENGTHS[pair] for pair in batch.pairs]
        assert batch.shape[1:] == (-(-max(lengths) // multiple) * multiple,) * 2
        assert len(lengths) * batch.shape.source_length <= 64
        assert batch.counts.padded_tokens == len(lengths) * sum(batch.shape[1:])
        assert batch.counts.target_tokens == sum(lengths)
    assert sorted(pairs) == list(range(len(LENGTHS)))


def test_token_table_pads_to_multiples():
    pairs = [EncodedPair([5, 6, 2], [7, 2]), EncodedPair([5, 2], [7, 8, 9, 3, 2])]
    encoded = encoded_pairs(pairs)
    plain, wide = encoded.table.pad(encoded.rows, 1), encoded.table.pad(encoded.rows, 1, 4)
    shapes = {name: tuple(tensor.shape) for name, tensor in wide.items()}
    assert shapes == {"input_ids": (2, 4), "attention_mask": (2, 4), "labels": (2, 8)}
    for name, padding in (("input_ids", 1), ("attention_mask", 0), ("labels", -100)):
        length = plain[name].shape[1]
        assert torch.equal(wide[name][:, :length], plain[name])
        assert (wide[name][:, length:] == padding).all()
