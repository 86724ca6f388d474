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
    options = {"generator": torch.Generator().manual_seed(seed), "dtype": torch.float64}
    shape = (sentences, 3, length, 4)
    return [torch.randn(shape, **options) for _ in range(3)]


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
    states = [state.requires_grad_() for state in random_states(length, seed)]
    mask = padding_mask(length) if padded and length > 1 else None
    expected = quadratic_attention(*states, mask, is_causal)
    output = linear_attention_forward(AttentionModule(is_causal), *states, mask)[0]
    torch.testing.assert_close(output, expected, atol=1e-10, rtol=1e-10)
    weights = torch.randn(expected.shape, dtype=torch.float64)
    theirs = torch.autograd.grad((expected * weights).sum(), states)
    ours = torch.autograd.grad((output * weights).sum(), states)
    torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("chunk", [1, 3, 8, 64])
def test_causal_sums_match_loop_over_positions(chunk):
    query, key, value = random_states(20)
    before = torch.randn((2, 3, 4, 4), dtype=torch.float64)
    state, rows = before.clone(), []
    for index in range(20):  # equations 16 to 20
        product = key[:, :, index, :, None] * value[:, :, index, None, :]
        state = state + product
        row = query[:, :, index, None, :] @ state
        rows.append(row.squeeze(2))
    output = causal_sums(query, key, value, before, chunk)
    torch.testing.assert_close(output, torch.stack(rows, dim=2), atol=1e-12, rtol=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=5), st.integers(0, 100))
def test_linear_attention_with_cache_matches_full_sequence(pieces, seed):
    states, module = random_states(sum(pieces), seed), AttentionModule(True)
    cache = Cache(layer_class_to_replicate=LinearAttentionCacheLayer)
    parts = zip(*(state.split(pieces, dim=2) for state in states), strict=True)
    rows = [linear_attention_forward(module, *part, None, cache=cache)[0] for part in parts]
    output = torch.cat(rows, dim=1)
    expected = linear_attention_forward(module, *states, None)[0]
    torch.testing.assert_close(output, expected, atol=1e-10, rtol=1e-10)
    assert cache.get_seq_length() == sum(pieces)


def test_linear_attention_cache_size_is_constant():
    cache = Cache(layer_class_to_replicate=LinearAttentionCacheLayer)
    module = AttentionModule(True)
    sizes = []
    for length in (1, 500, 1):
        linear_attention_forward(module, *random_states(length), None, cache=cache)
        sizes.append(cache.layers[0].keys.numel() + cache.layers[0].values.numel())
    assert sizes == [2 * 3 * 4 * 5] * 3


def test_linear_attention_sees_keys_before_first_query():
    query, key, value = random_states(9)
    module = AttentionModule(True)
    output, _ = linear_attention_forward(module, query[:, :, 6:], key, value, None)
    expected = quadratic_attention(query, key, value, None, True)[:, 6:]
    torch.testing.assert_close(output, expected)


def test_linear_attention_cache_repeats_and_reorders_rows():
    cache = Cache(layer_class_to_replicate=LinearAttentionCacheLayer)
    module = AttentionModule(True)
    states = random_states(5)
    linear_attention_forward(module, *states, None, cache=cache)
    before = cache.layers[0].values
    cache.batch_repeat_interleave(2)
    assert torch.equal(cache.layers[0].values, before.repeat_interleave(2, dim=0))
    cache.reorder_cache(torch.tensor([3, 0]))
    assert torch.equal(cache.layers[0].values, before[[1, 0]])
    cache.reset()
    linear_attention_forward(module, *states, None, cache=cache)
    assert cache.get_seq_length() == 5
    assert torch.equal(cache.layers[0].values, before)


def test_linear_attention_sums_in_float32_for_bfloat16_inputs():
    states = [state.to(torch.bfloat16) for state in random_states(600)]
    output = linear_attention_forward(AttentionModule(True), *states, None)[0]
    exact = [state.double() for state in states]
    expected = quadratic_attention(*exact, None, True).to(torch.bfloat16)
    assert output.dtype == torch.bfloat16
    assert (output == expected).float().mean() > 0.999  # 0.4 with sums in bfloat16


def test_linear_attention_returns_zeros_for_row_of_padding():
    mask = torch.tensor([[1, 1, 1], [0, 0, 0]])
    output = linear_attention_forward(AttentionModule(False), *random_states(3), mask)[0]
    assert not output[1].any()


def test_linear_attention_rejects_4d_mask():
    message = r"padding mask of shape `\(batch_size, length\)`, got the shape \(2, 1, 3, 3\)"
    mask = torch.ones(2, 1, 3, 3)
    with pytest.raises(ValueError, match=message):
        linear_attention_forward(AttentionModule(True), *random_states(3), mask)


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
    for position in range(6):
        token = target[:, position : position + 1]
        step = model(source, decoder_input_ids=token, cache=cache)
        cache = step[CACHE]
        expected = whole[:, position]
        torch.testing.assert_close(step.logits[:, 0], expected, atol=1e-5, rtol=1e-4)
    assert isinstance(cache.self_attention_cache, DynamicCache)
    shorter = model(source[1:, :3], decoder_input_ids=target[1:]).logits
    torch.testing.assert_close(whole[1:], shorter, atol=1e-5, rtol=1e-4)
