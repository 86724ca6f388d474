"""Linear attention: the chunked sums, the recurrence and the quadratic formula are the same."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers import DynamicCache
from transformers.cache_utils import Cache

from vanilla_transformer.linear_attention import (
    LinearAttentionCacheLayer,
    causal_sums,
    feature_map,
    linear_attention_forward,
)


class Attending(nn.Module):
    """Attributes of the module that an attention function reads."""

    def __init__(self, is_causal):
        super().__init__()
        self.is_causal, self.layer_idx = is_causal, 0


def quadratic(query, key, value, mask, is_causal):
    """Compute the formula with its full matrix, `(B, H, T, S)`; T queries belong to the last keys."""
    weights = feature_map(query) @ feature_map(key).transpose(-1, -2)
    if mask is not None:
        weights = weights * mask[:, None, None, :]
    if is_causal:
        weights = weights.tril(key.shape[2] - query.shape[2])
    return (weights / weights.sum(dim=-1, keepdim=True) @ value).transpose(1, 2)


def some_states(length, seed=0, sentences=2):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn((sentences, 3, length, 4), generator=generator, dtype=torch.float64) for _ in range(3)]


def padding(length, sentences=2):
    """One row whole, the others with padding before and after."""
    mask = torch.ones((sentences, length), dtype=torch.long)
    mask[1, -1:] = 0
    return mask


@settings(max_examples=40, deadline=None)
@given(length=st.integers(1, 150), seed=st.integers(0, 100), is_causal=st.booleans(), padded=st.booleans())
def test_it_is_the_quadratic_formula_and_so_are_its_gradients(length, seed, is_causal, padded):
    states = [each.requires_grad_() for each in some_states(length, seed)]
    mask = padding(length) if padded and length > 1 else None
    expected = quadratic(*states, mask, is_causal)
    found = linear_attention_forward(Attending(is_causal), *states, mask)[0]
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)
    weights = torch.randn(expected.shape, dtype=torch.float64)
    theirs = torch.autograd.grad((expected * weights).sum(), states)
    ours = torch.autograd.grad((found * weights).sum(), states)
    torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("chunk", [1, 3, 8, 64])
def test_chunks_of_any_size_add_up_to_the_loop_over_positions(chunk):
    query, key, value = some_states(20)
    before = torch.randn((2, 3, 4, 4), dtype=torch.float64)
    state, rows = before.clone(), []
    for place in range(20):  # equations 16 to 20
        state = state + key[:, :, place, :, None] * value[:, :, place, None, :]
        rows.append((query[:, :, place, None, :] @ state).squeeze(2))
    found = causal_sums(query, key, value, before, chunk)
    torch.testing.assert_close(found, torch.stack(rows, dim=2), atol=1e-12, rtol=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=5), st.integers(0, 100))
def test_a_text_read_in_pieces_is_the_text_read_at_once(pieces, seed):
    states, module = some_states(sum(pieces), seed), Attending(True)
    cache = Cache(layer_class_to_replicate=LinearAttentionCacheLayer)
    rows = [
        linear_attention_forward(module, *parts, None, cache=cache)[0]
        for parts in zip(*(each.split(pieces, dim=2) for each in states), strict=True)
    ]
    expected = linear_attention_forward(module, *states, None)[0]
    torch.testing.assert_close(torch.cat(rows, dim=1), expected, atol=1e-10, rtol=1e-10)
    assert cache.get_seq_length() == sum(pieces)


def test_linear_attention_state_does_not_grow():
    cache, module = Cache(layer_class_to_replicate=LinearAttentionCacheLayer), Attending(True)
    sizes = []
    for length in (1, 500, 1):
        linear_attention_forward(module, *some_states(length), None, cache=cache)
        sizes.append(cache.layers[0].keys.numel() + cache.layers[0].values.numel())
    assert sizes == [2 * 3 * 4 * 5] * 3


def test_keys_that_a_cache_of_keys_has_are_seen():
    query, key, value = some_states(9)
    found = linear_attention_forward(Attending(True), query[:, :, 6:], key, value, None)[0]
    torch.testing.assert_close(found, quadratic(query, key, value, None, True)[:, 6:])


def test_rows_are_reordered_repeated_and_chosen_for_beams():
    cache, module = Cache(layer_class_to_replicate=LinearAttentionCacheLayer), Attending(True)
    states = some_states(5)
    linear_attention_forward(module, *states, None, cache=cache)
    before = cache.layers[0].values
    cache.batch_repeat_interleave(2)
    assert torch.equal(cache.layers[0].values, before.repeat_interleave(2, dim=0))
    cache.reorder_cache(torch.tensor([3, 0]))
    assert torch.equal(cache.layers[0].values, before[[1, 0]])
    cache.reset()
    linear_attention_forward(module, *states, None, cache=cache)
    assert cache.get_seq_length() == 5 and torch.equal(cache.layers[0].values, before)


def test_sums_are_exact_in_bfloat16():
    states = [each.to(torch.bfloat16) for each in some_states(3000)]
    found = linear_attention_forward(Attending(True), *states, None)[0]
    expected = quadratic(*(each.double() for each in states), None, True)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), expected, atol=2e-2, rtol=2e-2)


def test_a_row_of_padding_gives_zeros():
    mask = torch.tensor([[1, 1, 1], [0, 0, 0]])
    assert not linear_attention_forward(Attending(False), *some_states(3), mask)[0][1].any()


def test_a_mask_that_is_not_of_padding_is_refused():
    with pytest.raises(
        ValueError, match=r"padding mask of shape `\(batch_size, length\)`, got the shape \(2, 1, 3, 3\)"
    ):
        linear_attention_forward(Attending(True), *some_states(3), torch.ones(2, 1, 3, 3))


def test_a_sum_cannot_be_taken_back():
    cache = Cache(layer_class_to_replicate=LinearAttentionCacheLayer)
    linear_attention_forward(Attending(True), *some_states(3), None, cache=cache)
    with pytest.raises(ValueError, match="cannot remove tokens from its sums, got -1"):
        cache.crop(-1)
    assert not cache.is_croppable


def test_the_papers_model_can_be_given_it_by_its_name(tiny_config):
    from vanilla_transformer import VanillaTransformerForConditionalGeneration

    model = VanillaTransformerForConditionalGeneration._from_config(tiny_config, attn_implementation="linear").eval()
    source = torch.randint(3, tiny_config.vocab_size, (2, 5))
    source[1, 3:] = tiny_config.pad_token_id
    target = torch.randint(3, tiny_config.vocab_size, (2, 6))
    whole = model(source, decoder_input_ids=target).logits
    cache = None
    for place in range(6):
        step = model(source, decoder_input_ids=target[:, place : place + 1], past_key_values=cache)
        cache = step.past_key_values
        torch.testing.assert_close(step.logits[:, 0], whole[:, place], atol=1e-5, rtol=1e-4)
    assert isinstance(cache.self_attention_cache, DynamicCache)
    shorter = model(source[1:, :3], decoder_input_ids=target[1:]).logits
    torch.testing.assert_close(whole[1:], shorter, atol=1e-5, rtol=1e-4)
