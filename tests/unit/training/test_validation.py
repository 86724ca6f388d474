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
    return [
        SentencePair(
            " ".join("ab" * (number % 7) + "c" * (number % 5 + 1)), "b " * (number // 2 + 1)
        )
        for number in range(30)
    ]


def validation(pairs, tokenizer, max_tokens):
    return Validation(pairs, tokenizer, no_scores, Accelerator(cpu=True), max_tokens)


def rows(batch):
    """Yield source and target of each row without padding."""
    for source, mask, labels in zip(
        batch["input_ids"], batch["attention_mask"], batch["labels"], strict=True
    ):
        yield source[mask.bool()].tolist(), labels[labels != -100].tolist()


@pytest.mark.parametrize("max_tokens", [80, 200, 10_000])
def test_validation_batches_hold_each_pair_once(pairs, tiny_tokenizer, max_tokens):
    batches = validation(pairs, tiny_tokenizer, max_tokens).batches
    expected = [
        (list(pair.source), list(pair.target)) for pair in encode_pairs(tiny_tokenizer, pairs)
    ]
    assert sorted(row for batch, _ in batches for row in rows(batch)) == sorted(expected)
    assert all(
        batch[side].numel() <= max_tokens
        for batch, _ in batches
        for side in ("input_ids", "labels")
    )
    assert [tokens for _, tokens in batches] == [
        int((batch["labels"] != -100).sum()) for batch, _ in batches
    ]
    assert len(batches) > 3 or max_tokens == 10_000


def test_validation_batches_include_pairs_beyond_max_tokens(pairs, tiny_tokenizer):
    assert sum(
        len(batch["labels"]) for batch, _ in validation(pairs, tiny_tokenizer, 4).batches
    ) == len(pairs)


def test_validation_loss_is_independent_of_batches(pairs, tiny_tokenizer, tiny_model):
    few, many = (
        validation(pairs, tiny_tokenizer, max_tokens).loss(tiny_model.eval())
        for max_tokens in (10_000, 80)
    )
    assert many == pytest.approx(few, rel=1e-5)
