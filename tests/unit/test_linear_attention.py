"""Linear attention: chunked sums, recurrence and quadratic formula agree, in values and
gradients.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers import DynamicCache
from transformers.cache_utils import Cache

from vanilla_transformer.compatibility_vanilla_transformer import CACHE
from vanilla_transformer.linear_attention import (
    LinearAttentionCacheLayer,
    causal_sums,
    feature_map,
    linear_attention_forward,
)


class AttentionModule(nn.Module):
    """Module with the attributes that an attention function reads."""

    def __init__(self, is_causal):
        super().__init__()
        self.is_causal, self.layer_idx = is_causal, 0


def quadratic_attention(query, key, value, mask, is_causal):
    """Compute linear attention from its full matrix `(B, H, T, S)`.

    The T queries are at the last T key positions.
    """
    weights = feature_map(query) @ feature_map(key).transpose(-1, -2)
    if mask is not None:
        weights = weights * mask[:, None, None, :]
    if is_causal:
        weights = weights.tril(key.shape[2] - query.shape[2])
    return (weights / weights.sum(dim=-1, keepdim=True) @ value).transpose(1, 2)


def random_states(length, seed=0, sentences=2):
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn((sentences, 3, length, 4), generator=generator, dtype=torch.float64)
        for _ in range(3)
    ]


def padding_mask(length, sentences=2):
    """Return a mask `(sentences, length)`, 1 for tokens; the last position of row 1 is padding."""
    mask = torch.ones((sentences, length), dtype=torch.long)
    mask[1, -1:] = 0
    return mask


@settings(max_examples=40, deadline=None)
@given(
    length=st.integers(1, 150),
    seed=st.integers(0, 100),
    is_causal=st.booleans(),
    padded=st.booleans(),
)
def test_linear_attention_matches_quadratic_reference(length, seed, is_causal, padded):
    states = [each.requires_grad_() for each in random_states(length, seed)]
    mask = padding_mask(length) if padded and length > 1 else None
    expected = quadratic_attention(*states, mask, is_causal)
    found = linear_attention_forward(AttentionModule(is_causal), *states, mask)[0]
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)
    weights = torch.randn(expected.shape, dtype=torch.float64)
    theirs = torch.autograd.grad((expected * weights).sum(), states)
    ours = torch.autograd.grad((found * weights).sum(), states)
    torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("chunk", [1, 3, 8, 64])
def test_causal_sums_match_loop_over_positions(chunk):
    query, key, value = random_states(20)
    before = torch.randn((2, 3, 4, 4), dtype=torch.float64)
    state, rows = before.clone(), []
    for place in range(20):  # equations 16 to 20
        state = state + key[:, :, place, :, None] * value[:, :, place, None, :]
        rows.append((query[:, :, place, None, :] @ state).squeeze(2))
    found = causal_sums(query, key, value, before, chunk)
    torch.testing.assert_close(found, torch.stack(rows, dim=2), atol=1e-12, rtol=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=5), st.integers(0, 100))
def test_linear_attention_with_cache_matches_full_sequence(pieces, seed):
    states, module = random_states(sum(pieces), seed), AttentionModule(True)
    cache = Cache(layer_class_to_replicate=LinearAttentionCacheLayer)
    rows = [
        linear_attention_forward(module, *parts, None, cache=cache)[0]
        for parts in zip(*(each.split(pieces, dim=2) for each in states), strict=True)
    ]
    expected = linear_attention_forward(module, *states, None)[0]
    torch.testing.assert_close(torch.cat(rows, dim=1), expected, atol=1e-10, rtol=1e-10)
    assert cache.get_seq_length() == sum(pieces)


def test_linear_attention_cache_size_is_constant():
    cache, module = Cache(layer_class_to_replicate=LinearAttentionCacheLayer), AttentionModule(True)
    sizes = []
    for length in (1, 500, 1):
        linear_attention_forward(module, *random_states(length), None, cache=cache)
        sizes.append(cache.layers[0].keys.numel() + cache.layers[0].values.numel())
    assert sizes == [2 * 3 * 4 * 5] * 3


def test_linear_attention_sees_keys_before_first_query():
    query, key, value = random_states(9)
    found = linear_attention_forward(AttentionModule(True), query[:, :, 6:], key, value, None)[0]
    torch.testing.assert_close(found, quadratic_attention(query, key, value, None, True)[:, 6:])


def test_linear_attention_cache_repeats_and_reorders_rows():
    cache, module = Cache(layer_class_to_replicate=LinearAttentionCacheLayer), AttentionModule(True)
    states = random_states(5)
    linear_attention_forward(module, *states, None, cache=cache)
    before = cache.layers[0].values
    cache.batch_repeat_interleave(2)
    assert torch.equal(cache.layers[0].values, before.repeat_interleave(2, dim=0))
    cache.reorder_cache(torch.tensor([3, 0]))
    assert torch.equal(cache.layers[0].values, before[[1, 0]])
    cache.reset()
    linear_attention_forward(module, *states, None, cache=cache)
    assert cache.get_seq_length() == 5 and torch.equal(cache.layers[0].values, before)


def test_linear_attention_sums_in_float32_for_bfloat16_inputs():
    states = [each.to(torch.bfloat16) for each in random_states(600)]
    found = linear_attention_forward(AttentionModule(True), *states, None)[0]
    expected = quadratic_attention(*(each.double() for each in states), None, True)
    assert found.dtype == torch.bfloat16
    assert (
        found == expected.to(torch.bfloat16)
    ).float().mean() > 0.999  # 0.4 with sums in bfloat16


def test_linear_attention_returns_zeros_for_row_of_padding():
    mask = torch.tensor([[1, 1, 1], [0, 0, 0]])
    assert not linear_attention_forward(AttentionModule(False), *random_states(3), mask)[0][1].any()


def test_linear_attention_rejects_4d_mask():
    with pytest.raises(
        ValueError,
        match=r"padding mask of shape `\(batch_size, length\)`, got the shape \(2, 1, 3, 3\)",
    ):
        linear_attention_forward(AttentionModule(True), *random_states(3), torch.ones(2, 1, 3, 3))


def test_linear_attention_cache_rejects_crop():
    cache = Cache(layer_class_to_replicate=LinearAttentionCacheLayer)
    linear_attention_forward(AttentionModule(True), *random_states(3), None, cache=cache)
    with pytest.raises(ValueError, match="cannot remove tokens from its sums, got -1"):
        cache.crop(-1)
    assert not getattr(cache, "is_croppable", False)  # since 5.24


def test_linear_attn_implementation_with_cache_matches_full_sequence(tiny_config):
    from vanilla_transformer import VanillaTransformerForConditionalGeneration

    model = VanillaTransformerForConditionalGeneration._from_config(
        tiny_config, attn_implementation="linear"
    ).eval()
    source = torch.randint(3, tiny_config.vocab_size, (2, 5))
    source[1, 3:] = tiny_config.pad_token_id
    target = torch.randint(3, tiny_config.vocab_size, (2, 6))
    whole = model(source, decoder_input_ids=target).logits
    cache = None
    for place in range(6):
        step = model(source, decoder_input_ids=target[:, place : place + 1], cache=cache)
        cache = step[CACHE]
        torch.testing.assert_close(step.logits[:, 0], whole[:, place], atol=1e-5, rtol=1e-4)
    assert isinstance(cache.self_attention_cache, DynamicCache)
    shorter = model(source[1:, :3], decoder_input_ids=target[1:]).logits
    torch.testing.assert_close(whole[1:], shorter, atol=1e-5, rtol=1e-4)
