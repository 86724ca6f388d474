"""Transformer-XL attention: the paper's score term by term, and segments with memory equal to the
full sequence.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.cache_utils import Cache

from vanilla_transformer import (
    VanillaTransformerLongDecoderConfig,
    VanillaTransformerLongDecoderModel,
)
from vanilla_transformer.modeling_vanilla_transformer import sinusoidal_positions
from vanilla_transformer.transfo_xl_attention import (
    TransfoXLCacheLayer,
    VanillaTransformerTransfoXLAttention,
    relative_shift,
    restart_positions,
)

WIDTH, HEADS = 8, 2


def random_attention(mem_len=None, seed=0):
    torch.manual_seed(seed)
    config = VanillaTransformerLongDecoderConfig(
        d_model=WIDTH,
        decoder_attention_heads=HEADS,
        layer_types="transfo_xl_attention",
        mem_len=mem_len,
    )
    attention = VanillaTransformerTransfoXLAttention(config, HEADS, layer_idx=0).double().eval()
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return attention


def reference_attention(attention, queries, states, tokens):
    """
    Compute the score of section 3.3, with its terms (a) to (d), pair by pair.

    The queries are at the last positions of `states`. `tokens` is True for tokens, False for
    padding.
    """
    split = lambda rows: rows.unflatten(-1, (HEADS, -1))  # noqa: E731
    query, key = split(attention.q_proj(queries)), split(attention.k_proj(states))
    value = split(attention.v_proj(states))
    content, position = attention.content_bias[:, 0], attention.position_bias[:, 0]
    before, output = states.shape[1] - queries.shape[1], []
    for row in range(states.shape[0]):
        for index in range(queries.shape[1]):
            seen = [other for other in range(before + index + 1) if tokens[row, other]]
            scores = []
            for other in seen:
                distance = torch.tensor([before + index - other])
                encoded = sinusoidal_positions(distance, WIDTH).double()
                (relative,) = split(attention.r_proj(encoded))
                one, two = query[row, index], key[row, other]
                terms = one * two + one * relative + content * two + position * relative
                scores.append(terms.sum(-1) * attention.scaling)
            weights = torch.stack(scores).softmax(dim=0)  # (seen, H)
            weighted = weights[..., None] * value[row, seen]
            output.append(weighted.sum(dim=0).flatten())
    return attention.out_proj(torch.stack(output).view(*queries.shape))


@settings(max_examples=25, deadline=None)
@given(length=st.integers(1, 7), seed=st.integers(0, 100), earlier=st.integers(0, 6))
def test_transfo_xl_attention_matches_pairwise_reference(length, seed, earlier):
    attention = random_attention(seed=seed)
    states = torch.randn(2, earlier + length, WIDTH, dtype=torch.float64, requires_grad=True)
    memory = Cache(layer_class_to_replicate=TransfoXLCacheLayer)
    before, after = states[:, :earlier].detach(), states[:, earlier:]
    if earlier:
        attention(before, cache=memory)
    tokens = torch.ones(states.shape[:2], dtype=torch.bool)
    context = torch.cat([before, after], dim=1)
    expected = reference_attention(attention, after, context, tokens)
    output, probabilities = attention(after, cache=memory if earlier else None)
    torch.testing.assert_close(output, expected, atol=1e-10, rtol=1e-10)
    assert probabilities.shape == (2, HEADS, length, earlier + length)
    inputs = [states, *attention.parameters()]
    theirs = torch.autograd.grad(expected.sin().sum(), inputs)
    ours = torch.autograd.grad(output.sin().sum(), inputs)
    torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=1e-9)


def test_transfo_xl_memory_receives_no_gradient():
    attention, memory = random_attention(), Cache(layer_class_to_replicate=TransfoXLCacheLayer)
    states = torch.randn(2, 1, 3, WIDTH, dtype=torch.float64, requires_grad=True)
    first, second = states.unbind()
    attention(first, cache=memory)
    output, _ = attention(second, cache=memory)
    assert torch.autograd.grad(output.sum(), [first], allow_unused=True) == (None,)


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("columns", [5, 8])
def test_relative_shift_aligns_distances_with_keys(rows, columns):
    distances = torch.arange(columns - 1, -1, -1).expand(1, 1, rows, columns).double()
    shifted = relative_shift(distances)[0, 0]
    for row in range(rows):
        for key in range(columns - rows + row + 1):
            assert shifted[row, key] == columns - rows + row - key


def test_relative_shift_allocates_at_most_two_copies_of_scores():
    scores = torch.randn(1, 2, 50, 300)
    with torch.profiler.profile(profile_memory=True) as profile:
        relative_shift(scores)
    allocated = sum(max(event.self_cpu_memory_usage, 0) for event in profile.events())
    assert allocated <= 2.1 * scores.numel() * scores.element_size()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.integers(0, 50))
def test_transfo_xl_attention_over_segments_matches_full_sequence(pieces, seed):
    attention = random_attention(mem_len=sum(pieces), seed=seed)
    states = torch.randn(2, sum(pieces), WIDTH, dtype=torch.float64)
    memory = Cache(layer_class_to_replicate=TransfoXLCacheLayer)
    rows = [attention(part, cache=memory)[0] for part in states.split(pieces, dim=1)]
    output = torch.cat(rows, dim=1)
    torch.testing.assert_close(output, attention(states)[0], atol=1e-10, rtol=1e-10)


def test_transfo_xl_memory_keeps_last_mem_len_positions():
    attention = random_attention(mem_len=4)
    memory = Cache(layer_class_to_replicate=TransfoXLCacheLayer)
    states = torch.randn(1, 9, WIDTH, dtype=torch.float64)
    attention(states[:, :6], cache=memory)
    assert torch.equal(memory.layers[0].keys, states[:, 2:6])
    output, _ = attention(states[:, 6:], cache=memory)
    expected = attention(states[:, 2:])[0][:, 4:]
    torch.testing.assert_close(output, expected, atol=1e-12, rtol=1e-12)


def test_transfo_xl_memory_moves_padding_before_tokens():
    attention = random_attention()
    states = torch.randn(1, 7, WIDTH, dtype=torch.float64)
    memory = Cache(layer_class_to_replicate=TransfoXLCacheLayer)
    padding = torch.randn(1, 3, WIDTH, dtype=torch.float64)
    padded = torch.cat([states[:, :4], padding], dim=1)
    attention(padded, torch.tensor([[1, 1, 1, 1, 0, 0, 0]]), cache=memory)
    output, _ = attention(states[:, 4:], cache=memory)
    expected = attention(states)[0][:, 4:]
    torch.testing.assert_close(output, expected, atol=1e-12, rtol=1e-12)


def test_transfo_xl_memory_repeats_reorders_and_resets():
    attention, memory = random_attention(), Cache(layer_class_to_replicate=TransfoXLCacheLayer)
    states = torch.randn(2, 3, WIDTH, dtype=torch.float64)
    attention(states, cache=memory)
    memory.batch_repeat_interleave(2)
    memory.reorder_cache(torch.tensor([3, 0]))
    assert torch.equal(memory.layers[0].keys, states[[1, 0]])
    assert memory.get_seq_length() == 3
    restart_positions(memory)
    assert memory.get_seq_length() == 0 and memory.layers[0].keys.shape[1] == 3
    memory.reset()
    output, _ = attention(states[[1, 0]], cache=memory)
    torch.testing.assert_close(output, attention(states[[1, 0]])[0])


def test_transfo_xl_memory_rejects_crop():
    memory = Cache(layer_class_to_replicate=TransfoXLCacheLayer)
    random_attention()(torch.randn(1, 3, WIDTH, dtype=torch.float64), cache=memory)
    with pytest.raises(ValueError, match="memory cannot remove tokens, got -1"):
        memory.crop(-1)
    assert not getattr(memory, "is_croppable", False)  # since 5.24


def pre_norm_model(reversible=False):
    torch.manual_seed(0)
    config = VanillaTransformerLongDecoderConfig(
        vocab_size=11, d_model=WIDTH, decoder_layers=2, decoder_attention_heads=HEADS, decoder_ffn_dim=12,
        layer_types="transfo_xl_attention", normalize_before=True, reversible=reversible, dropout=0.0,
    )  # fmt: skip
    return VanillaTransformerLongDecoderModel(config).double().eval()


@pytest.mark.parametrize("reversible", [False, True])
def test_transfo_xl_pre_norm_memory_holds_layer_inputs(reversible):
    model = pre_norm_model(reversible)
    memory = Cache(layer_class_to_replicate=TransfoXLCacheLayer)
    tokens = torch.randint(3, 11, (2, 6))
    model(tokens, cache=memory)
    torch.testing.assert_close(memory.layers[0].keys, model.embed_tokens(tokens).detach())


@pytest.mark.parametrize("reversible", [False, True])
def test_transfo_xl_pre_norm_memory_is_normalized_by_current_parameters(reversible):
    """Training has changed the norm since the memory was stored.

    Authors' code, `mem_transformer.py`: `cat = torch.cat([mems, w], 0)`, then
    `self.qkv_net(self.layer_norm(cat))`.
    """
    model = pre_norm_model(reversible)
    memory = Cache(layer_class_to_replicate=TransfoXLCacheLayer)
    tokens = torch.randint(3, 11, (2, 9))
    layer = model.layers[0]  # its inputs are embeddings, which do not depend on the norm
    model(tokens[:, :5], cache=memory)
    with torch.no_grad():
        for parameter in layer.self_attn_layer_norm.parameters():
            parameter.normal_()
    states = model.embed_tokens(tokens).detach()
    normalized = layer.self_attn_layer_norm(states)
    mask = torch.ones(states.shape[:2], dtype=torch.bool)
    expected = reference_attention(layer.self_attn, normalized[:, 5:], normalized, mask)
    outputs = []

    def record(module, inputs, output):
        outputs.append(output[0])

    layer.self_attn.register_forward_hook(record)
    model(tokens[:, 5:], cache=memory)
    (output,) = outputs
    torch.testing.assert_close(output, expected, atol=1e-10, rtol=1e-10)
    # Gradients reach the norm through the memory, too.
    parameters = list(layer.self_attn_layer_norm.parameters())
    theirs = torch.autograd.grad(expected.sin().sum(), parameters)
    ours = torch.autograd.grad(output.sin().sum(), parameters)
    torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=1e-9)
