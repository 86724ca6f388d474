"""LSH attention agrees with a quadratic reference, with full attention for one bucket, and with
Reformer.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers import ReformerConfig
from transformers.cache_utils import Cache
from transformers.models.reformer.modeling_reformer import LSHSelfAttention

from vanilla_transformer import lsh_attention as hashing
from vanilla_transformer.lsh_attention import (
    LSHCacheLayer,
    chunked_lsh_attention,
    hash_buckets,
    lsh_attention_forward,
    rotations,
)


class LSHFields:
    """Configuration with the fields that LSH attention reads."""

    def __init__(self, rounds=2, buckets=4, chunk=4, seed=0):
        self.num_hashes, self.num_buckets = rounds, buckets
        self.lsh_attn_chunk_length, self.hash_seed = chunk, seed


class AttentionModule(nn.Module):
    """Module with the attributes that an attention function reads."""

    def __init__(self, is_causal, **shape):
        super().__init__()
        self.is_causal, self.layer_idx, self.config = is_causal, 0, LSHFields(**shape)


def quadratic_lsh_attention(query_keys, value, buckets, padding, is_causal, chunk):
    """
    Compute LSH attention from its definition, with a loop over rounds and pairs of positions.

    A query attends to a key if, in any round, both are in the same bucket and the key is in the
    query's chunk of the sorted positions or in the previous one. It attends to itself only if there
    is no other key. `padding` is True for tokens; the other positions are sorted after them.
    """
    batch, heads, length, _ = query_keys.shape
    keys = query_keys / query_keys.norm(dim=-1, keepdim=True)
    chunk = min(chunk, length)
    output = torch.zeros_like(value)
    for row in range(batch):
        for head in range(heads):
            meets = torch.zeros((length, length), dtype=torch.bool)
            for bucket in buckets[row, head]:
                tokens = [position for position in range(length) if padding[row, position]]
                order = sorted(tokens, key=bucket.tolist().__getitem__)
                order += [position for position in range(length) if position not in tokens]
                chunk_of = {position: rank // chunk for rank, position in enumerate(order)}
                for one in range(length):
                    for other in range(length):
                        near = chunk_of[one] - chunk_of[other] in (0, 1)
                        meets[one, other] |= near and bool(bucket[one] == bucket[other])
            for one in range(length):
                seen = meets[one] & padding[row]
                seen[one] = False
                if is_causal:
                    seen[one:] = False
                if not seen.any():
                    seen[one] = True
                scores = query_keys[row, head, one] @ keys[row, head, seen].T
                output[row, head, one] = scores.softmax(dim=0) @ value[row, head, seen]
    return output


def random_states(length, seed=0, heads=2):
    options = {"generator": torch.Generator().manual_seed(seed), "dtype": torch.float64}
    shape = (2, heads, length, 4)
    return [torch.randn(shape, **options), torch.randn(shape, **options)]


def everywhere(length):
    """Return the mask of two sequences without padding."""
    return torch.ones(2, 1, length, 1).bool()


def key_mask(padding):
    return padding[:, None, :, None]


@settings(max_examples=30, deadline=None)
@given(
    length=st.integers(1, 17),
    seed=st.integers(0, 100),
    rounds=st.integers(1, 3),
    buckets=st.sampled_from([1, 2, 4, 8]),
    chunk=st.integers(1, 20),
    is_causal=st.booleans(),
)
def test_lsh_matches_a_quadratic_reference(length, seed, rounds, buckets, chunk, is_causal):
    states = [state.requires_grad_() for state in random_states(length, seed)]
    padding = torch.ones((2, length), dtype=torch.bool)
    padding[1, length // 2 + 1 :] = False
    tokens = key_mask(padding)  # the outputs at padding are not used
    hashes = hash_buckets(states[0], seed, rounds, buckets)
    expected = quadratic_lsh_attention(*states, hashes, padding, is_causal, chunk)
    output = chunked_lsh_attention(*states, hashes, tokens, is_causal, chunk)
    torch.testing.assert_close(output * tokens, expected * tokens, atol=1e-10, rtol=1e-10)
    weights = torch.randn(expected.shape, dtype=torch.float64) * tokens
    theirs = torch.autograd.grad((expected * weights).sum(), states)
    ours = torch.autograd.grad((output * weights).sum(), states)
    torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("before", "after"), [(0, 1), (0, 13), (5, 0)])
def test_lsh_attention_does_not_depend_on_padding(is_causal, before, after):
    states = random_states(20)
    buckets = hash_buckets(states[0], 0, 2, 4)
    alone = chunked_lsh_attention(*states, buckets, everywhere(20), is_causal, chunk_size=3)
    others = random_states(before + after, seed=1)
    padded = []
    for state, other in zip(states, others, strict=True):
        parts = [other[:, :, :before], state, other[:, :, before:]]
        padded.append(torch.cat(parts, dim=2))
    tokens = torch.zeros(2, 1, before + 20 + after, 1, dtype=torch.bool)
    tokens[:, :, before : before + 20] = True
    buckets = hash_buckets(padded[0], 0, 2, 4)
    output = chunked_lsh_attention(*padded, buckets, tokens, is_causal, chunk_size=3)
    output = output[:, :, before : before + 20]
    torch.testing.assert_close(output, alone, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("is_causal", [False, True])
def test_lsh_attention_with_one_bucket_equals_full_attention(is_causal):
    query_keys, value = random_states(12)
    scores = query_keys @ nn.functional.normalize(query_keys, dim=-1).transpose(-1, -2)
    scores = scores.masked_fill(torch.eye(12, dtype=torch.bool), -1e5)
    if is_causal:
        scores = scores.masked_fill(torch.ones(12, 12).triu(1).bool(), float("-inf"))
    buckets = hash_buckets(query_keys, 0, rounds=8, buckets=1)
    mask = everywhere(12)
    output = chunked_lsh_attention(query_keys, value, buckets, mask, is_causal, chunk_size=64)
    expected = scores.softmax(dim=-1) @ value
    torch.testing.assert_close(output, expected, atol=1e-10, rtol=1e-10)


def test_lsh_attention_approaches_full_attention_with_more_hashes():
    query_keys, value = random_states(64)
    mask = everywhere(64)
    one_bucket = hash_buckets(query_keys, 0, 1, 1)
    full = chunked_lsh_attention(query_keys, value, one_bucket, mask, False, 64)
    distances = []
    for rounds in (1, 4, 16):
        buckets = hash_buckets(query_keys, 0, rounds, 8)
        output = chunked_lsh_attention(query_keys, value, buckets, mask, False, 16)
        distances.append((output - full).norm().item())
    assert distances[0] > 1.5 * distances[1] > 2 * distances[2]


def test_hash_buckets_depend_only_on_seed_and_direction():
    query_keys, _ = random_states(50)
    first = hash_buckets(query_keys, 3, 2, 8)
    torch.manual_seed(17)
    assert torch.equal(first, hash_buckets(query_keys, 3, 2, 8))
    assert not torch.equal(first, hash_buckets(query_keys, 4, 2, 8))
    assert torch.equal(first, hash_buckets(2.5 * query_keys, 3, 2, 8))
    assert first.min() >= 0 and first.max() < 8 and len(first.unique()) == 8


def test_lsh_attention_with_cache_matches_full_sequence_in_one_chunk():
    states = random_states(20)
    module = AttentionModule(True, rounds=2, buckets=4, chunk=32)
    cache = Cache(layer_class_to_replicate=LSHCacheLayer)
    parts = zip(*(state.split([7, 1, 3, 1, 8], dim=2) for state in states), strict=True)
    rows = [lsh_attention_forward(module, *part, None, cache=cache) for part in parts]
    output = torch.cat(rows, dim=1)
    expected = lsh_attention_forward(module, *states, None)
    torch.testing.assert_close(output, expected, atol=1e-10, rtol=1e-10)
    assert cache.layers[0].buckets.shape == (2, 2, 2, 20)


def test_lsh_cache_selects_and_crops_buckets_with_keys():
    cache = Cache(layer_class_to_replicate=LSHCacheLayer)
    query_keys, value = random_states(6)
    lsh_attention_forward(AttentionModule(True), query_keys, value, None, cache=cache)
    before = cache.layers[0].buckets
    cache.batch_repeat_interleave(2)
    cache.reorder_cache(torch.tensor([3, 0]))
    assert torch.equal(cache.layers[0].buckets, before[[1, 0]])
    cache.batch_select_indices(torch.tensor([1]))
    cache.crop(-2)
    assert torch.equal(cache.layers[0].buckets, before[:1, ..., :4])
    assert cache.get_seq_length() == 4
    cache.reset()
    assert cache.get_seq_length() == 0 and cache.layers[0].buckets is None


def test_lsh_attention_dropout_keeps_expected_output():
    query_keys, value = random_states(30)
    buckets, padding = hash_buckets(query_keys, 0, 2, 2), everywhere(30)
    arguments = (query_keys, value, buckets, padding, False, 32)
    kept = chunked_lsh_attention(*arguments)
    torch.manual_seed(0)
    draws = [chunked_lsh_attention(*arguments, dropout=0.2) for _ in range(400)]
    assert not torch.allclose(draws[0], kept)
    mean = torch.stack(draws).mean(dim=0)
    torch.testing.assert_close(mean, kept, atol=0.15, rtol=0.1)


def test_lsh_attention_rejects_4d_mask():
    query_keys, value = random_states(3)
    message = r"padding mask of shape `\(batch_size, length\)`, got the shape \(2, 1, 3, 3\)"
    mask = torch.ones(2, 1, 3, 3)
    with pytest.raises(ValueError, match=message):
        lsh_attention_forward(AttentionModule(True), query_keys, value, mask)


HEADS, WIDTH, LENGTH = 2, 4, 24


def reformer_attention(is_decoder, length):
    """Return Reformer's LSH attention from transformers, random hidden states, and their query-keys
    and values.
    """
    config = ReformerConfig(
        hidden_size=HEADS * WIDTH, num_attention_heads=HEADS, attention_head_size=WIDTH, num_hashes=1, num_buckets=6,
        lsh_attn_chunk_length=8, is_decoder=is_decoder, hash_seed=5, lsh_attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    torch.manual_seed(0)
    attention = LSHSelfAttention(config).eval()
    states = torch.randn(2, length, HEADS * WIDTH)
    split = []
    for projection in (attention.query_key, attention.value):
        heads = projection(states).unflatten(-1, (HEADS, WIDTH))
        split.append(heads.transpose(1, 2))
    return attention, states, split


def test_hash_buckets_match_reformer_with_same_rotations(monkeypatch):
    reformer, states, (query_keys, _) = reformer_attention(False, LENGTH)
    expected = reformer(states, num_hashes=1, num_buckets=6).buckets
    torch.manual_seed(5)
    drawn = torch.randn(HEADS, WIDTH, 1, 3)
    monkeypatch.setattr(hashing, "rotations", lambda *_: drawn)
    buckets = hash_buckets(query_keys, 0, 1, 6)
    assert torch.equal(buckets.flatten(2), expected.flatten(2))


@pytest.mark.parametrize(("is_decoder", "length"), [(True, LENGTH), (True, 8), (False, 8)])
def test_lsh_matches_reformer_with_one_bucket(is_decoder, length, monkeypatch):
    """Compare where both agree: Reformer also attends to other buckets of a chunk, and wraps around
    without a mask.
    """
    reformer, states, (query_keys, value) = reformer_attention(is_decoder, length)
    zeros = torch.zeros(2, HEADS, length).long()
    monkeypatch.setattr(LSHSelfAttention, "_hash_vectors", lambda *_, **__: zeros)
    hidden = reformer(states, num_hashes=1, num_buckets=6).hidden_states
    expected = hidden.unflatten(-1, (HEADS, WIDTH)).transpose(1, 2)
    buckets = hash_buckets(query_keys, 0, 1, 1)
    mask = everywhere(length)
    output = chunked_lsh_attention(query_keys, value, buckets, mask, is_decoder, chunk_size=8)
    torch.testing.assert_close(output, expected, atol=1e-4, rtol=1e-3)


def test_rotations_are_cached_by_seed_and_shape():
    assert rotations(1, 2, 4, 3, 8) is rotations(1, 2, 4, 3, 8)
    assert rotations(1, 2, 4, 3, 8).shape == (2, 4, 3, 4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_hash_buckets_ignore_default_dtype(dtype):
    query_keys, value = random_states(20)
    expected = hash_buckets(query_keys, 5, 2, 8)
    rotations.cache_clear()
    torch.set_default_dtype(dtype)
    try:
        hashes = hash_buckets(query_keys.to(dtype), 5, 2, 8)
        states = [query_keys.to(dtype), value.to(dtype)]
        output = chunked_lsh_attention(*states, hashes, everywhere(20), True, 8)
    finally:
        torch.set_default_dtype(torch.float32)
        rotations.cache_clear()
    assert output.dtype == dtype
    if dtype == torch.float64:  # rounding to bfloat16 may change a bucket
        assert torch.equal(hashes, expected)
