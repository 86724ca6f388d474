"""The best continuations over a vocabulary, by its blocks."""

from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vanilla_transformer.decoding.engine import top_k
from vanilla_transformer.decoding.engine.top_k import argmax, log_sums, top_continuations


@settings(max_examples=100, deadline=None)
@given(
    vocab_size=st.integers(8, 200),
    beams=st.integers(1, 4),
    seed=st.integers(0, 1000),
    suppressed=st.booleans(),
)
def test_top_continuations_match_topk(vocab_size, beams, seed, suppressed):
    torch.manual_seed(seed)
    scores, running = torch.randn(3, beams, vocab_size), torch.randn(3, beams)
    if suppressed:
        scores[:, :, vocab_size // 2 :] = -torch.inf
    highest, parents, tokens = top_continuations(scores, running, count=4)
    expected, places = (scores + running[:, :, None]).flatten(1).topk(4)
    assert torch.equal(highest, expected)
    assert torch.equal(parents * vocab_size + tokens, places)


@pytest.mark.parametrize("most_logits", [0, 2**19])  # by blocks, and at once
@settings(max_examples=50, deadline=None)
@given(vocab_size=st.integers(8, 200), seed=st.integers(0, 1000))
def test_argmax_is_the_first_of_the_best(most_logits, vocab_size, seed):
    scores = torch.randint(
        0, 3, (3, vocab_size), generator=torch.Generator().manual_seed(seed)
    ).float()
    with mock.patch.object(top_k, "_CHUNK", most_logits):
        best = argmax(scores)
    assert torch.equal(best, (scores == scores.amax(dim=-1, keepdim=True)).int().argmax(dim=-1))


@pytest.mark.parametrize("shape", [(3, 1, 7), (64, 4, 8000), (2, 1, 2**20)])
def test_log_sums_of_chunks_are_exact(shape):
    logits = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    logits[0, 0, 0] = -torch.inf
    assert torch.equal(log_sums(logits), logits.logsumexp(dim=-1))
