"""Validation covers each pair once, in any batches."""

import pytest
from accelerate import Accelerator

from tests.tiny_runs import no_scores
from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.data.tokenized_corpus import encode_pairs
from vanilla_transformer.training.validation import Validation


@pytest.fixture
def pairs():
    """Return distinct pairs of very different lengths."""
    pairs = []
    for number in range(30):
        letters = "ab" * (number % 7) + "c" * (number % 5 + 1)
        pairs.append(SentencePair(" ".join(letters), "b " * (number // 2 + 1)))
    return pairs


def validation(pairs, tokenizer, max_tokens):
    return Validation(pairs, tokenizer, no_scores, Accelerator(cpu=True), max_tokens)


def rows(batch):
    """Yield source and target of each row without padding."""
    tensors = (batch["input_ids"], batch["attention_mask"], batch["labels"])
    for source, mask, labels in zip(*tensors, strict=True):
        yield source[mask.bool()].tolist(), labels[labels != -100].tolist()


@pytest.mark.parametrize("max_tokens", [80, 200, 10_000])
def test_validation_batches_hold_each_pair_once(pairs, tiny_tokenizer, max_tokens):
    batches = validation(pairs, tiny_tokenizer, max_tokens).batches
    encoded = encode_pairs(tiny_tokenizer, pairs)
    expected = [(list(pair.source), list(pair.target)) for pair in encoded]
    all_rows = []
    for batch, tokens in batches:
        all_rows += rows(batch)
        assert batch["input_ids"].numel() <= max_tokens
        assert batch["labels"].numel() <= max_tokens
        assert tokens == int((batch["labels"] != -100).sum())
    assert sorted(all_rows) == sorted(expected)
    assert len(batches) > 3 or max_tokens == 10_000


def test_validation_batches_include_pairs_beyond_max_tokens(pairs, tiny_tokenizer):
    batches = validation(pairs, tiny_tokenizer, 4).batches
    assert sum(len(batch["labels"]) for batch, _ in batches) == len(pairs)


def test_validation_loss_is_independent_of_batches(pairs, tiny_tokenizer, tiny_model):
    tiny_model.eval()
    few = validation(pairs, tiny_tokenizer, 10_000).loss(tiny_model)
    many = validation(pairs, tiny_tokenizer, 80).loss(tiny_model)
    assert many == pytest.approx(few, rel=1e-5)
