"""
The model matches the paper's equations and other implementations with the same weights. Padding,
batching, caches, compilation, saving and loading do not change its output.
"""

import copy
import itertools
import math
import re

import pytest
import torch
import transformers
from accelerate import FullyShardedDataParallelPlugin
from packaging.version import Version
from safetensors import safe_open
from torch import nn
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    DynamicCache,
    EncoderDecoderCache,
    MarianConfig,
    MarianMTModel,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    StaticCache,
)

from tests.releases import checkpoint_activations, needs_transformers
from tests.sweeps import rare
from tests.tiny import (
    tiny_causal_lm,
    tiny_long_causal_lm,
    tiny_long_model,
    tiny_masked_lm,
    tiny_model,
)
from tests.uneven_models import (
    PAD,
    SEPARATE,
    SHALLOW,
    VOCABULARY,
    assert_same_gradients,
    assert_training_step_compiles_to_one_graph,
    gradients,
    loss_and_gradients,
    padded_batch,
    randomize,
    tokens,
    uneven_config,
    uneven_model,
)
from vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerModel,
)
from vanilla_transformer.modeling_vanilla_transformer import (
    VanillaTransformerAttention,
    VanillaTransformerEmbedding,
    eager_attention_forward,
    shift_tokens_right,
    sinusoidal_positions,
)

START, EOS = 1, 2
LAYOUTS = {
    "shared and tied": {},
    "separate vocabularies": SEPARATE,
    "untied": {"tie_word_embeddings": False},
    "separate and untied": {**SEPARATE, "tie_word_embeddings": False},
}
every_layout = pytest.mark.parametrize("changes", LAYOUTS.values(), ids=LAYOUTS.keys())


# --------------------------------------------------------------------------------------------
# positions (section 3.5)


def reference_positions(length, d_model):
    """Compute PE of section 3.5, entry by entry, `(length, d_model)`."""
    table = torch.zeros(length, d_model, dtype=torch.float64)
    for pos in range(length):
        for i in range(d_model // 2):
            table[pos, 2 * i] = math.sin(pos / 10000 ** (2 * i / d_model))
            table[pos, 2 * i + 1] = math.cos(pos / 10000 ** (2 * i / d_model))
    return table


@pytest.mark.parametrize("d_model", [2, 6, 16, 512])
def test_sinusoidal_positions_match_equation_of_section_3_5(d_model):
    torch.testing.assert_close(
        sinusoidal_positions(torch.arange(40), d_model).double(),
        reference_positions(40, d_model),
        atol=1e-7,
        rtol=0,
    )


@pytest.mark.parametrize("position", [5_000, 100_000, 1_000_000])
def test_sinusoidal_positions_are_precise_at_large_positions(position):
    expected = [
        function(position / 10000 ** (2 * i / 512))
        for i in range(256)
        for function in (math.sin, math.cos)
    ]
    encoding = sinusoidal_positions(torch.tensor([position]), 512)[0].double()
    torch.testing.assert_close(
        encoding, torch.tensor(expected, dtype=torch.float64), atol=1e-6, rtol=0
    )


def test_sinusoidal_positions_in_halves_reorder_interleaved_layout():
    interleaved = sinusoidal_positions(torch.arange(9), 16)
    halves = sinusoidal_positions(torch.arange(9), 16, layout="halves")
    torch.testing.assert_close(
        halves, torch.cat([interleaved[:, 0::2], interleaved[:, 1::2]], dim=-1), atol=0, rtol=0
    )


@pytest.mark.parametrize("d_model", [2, 4, 64])
def test_sinusoidal_positions_of_tensor2tensor_have_wavelengths_from_2_pi_to_10000_times_that(
    d_model,
):
    half = d_model // 2
    periods = [10000 ** (i / max(half - 1, 1)) for i in range(half)]
    angles = torch.tensor(
        [[position / period for period in periods] for position in range(2000)], dtype=torch.float64
    )
    found = sinusoidal_positions(torch.arange(2000), d_model, layout="tensor2tensor")
    torch.testing.assert_close(
        found.double(), torch.cat([angles.sin(), angles.cos()], dim=-1), atol=1e-7, rtol=0
    )


@pytest.mark.parametrize("side", ["source", "target"])
def test_model_trains_beyond_max_position_embeddings(side):
    model = uneven_model(max_position_embeddings=8)
    source, labels = (
        tokens(2, 50 if side == "source" else 5),
        tokens(2, 50 if side == "target" else 5),
    )
    model(input_ids=source, labels=labels).loss.backward()
    assert all(gradient.isfinite().all() for gradient in gradients(model).values())


def test_states_of_permuted_source_are_permuted_only_without_positions():
    source, order = tokens(1, 6), torch.tensor([3, 0, 5, 1, 4, 2])
    for kind in ("none", "sinusoidal", "learned"):
        encoder = uneven_model(position_embedding_type=kind).get_encoder()
        states, permuted = (encoder(ids).last_hidden_state for ids in (source, source[:, order]))
        is_permuted = torch.allclose(permuted, states[:, order], atol=1e-5)
        assert is_permuted == (kind == "none"), kind


# --- agreement with -------------------------------------------------------------------------------
# other implementations


def copy_attention_to_torch(ours, theirs):
    """Copy attention to `nn.MultiheadAttention`, which stacks the input projections and always has
    biases.
    """
    projections = (ours.q_proj, ours.k_proj, ours.v_proj)
    theirs.in_proj_weight.copy_(torch.cat([projection.weight for projection in projections]))
    theirs.out_proj.weight.copy_(ours.out_proj.weight)
    if ours.q_proj.bias is None:
        theirs.in_proj_bias.zero_(), theirs.out_proj.bias.zero_()
    else:
        theirs.in_proj_bias.copy_(torch.cat([projection.bias for projection in projections]))
        theirs.out_proj.bias.copy_(ours.out_proj.bias)


def copy_layer_to_torch(ours, theirs, norms):
    for our_name, their_name in {"fc1": "linear1", "fc2": "linear2", **norms}.items():
        getattr(theirs, their_name).load_state_dict(getattr(ours, our_name).state_dict())
    copy_attention_to_torch(ours.self_attn, theirs.self_attn)
    if hasattr(ours, "encoder_attn"):
        copy_attention_to_torch(ours.encoder_attn, theirs.multihead_attn)


def torch_transformer(model):
    """Return an `nn.Transformer` with the weights of `model`."""
    config = model.config
    torch_model = nn.Transformer(
        config.d_model,
        config.encoder_attention_heads,
        config.encoder_layers,
        config.decoder_layers,
        config.encoder_ffn_dim,
        dropout=0.0,
        layer_norm_eps=config.layer_norm_eps,
        batch_first=True,
        norm_first=config.normalize_before,
    )
    encoder_norms = {"self_attn_layer_norm": "norm1", "final_layer_norm": "norm2"}
    decoder_norms = {
        "self_attn_layer_norm": "norm1",
        "encoder_attn_layer_norm": "norm2",
        "final_layer_norm": "norm3",
    }
    with torch.no_grad():
        for name, norms in {"encoder": encoder_norms, "decoder": decoder_norms}.items():
            ours, theirs = getattr(model.model, name), getattr(torch_model, name)
            for our_layer, their_layer in zip(ours.layers, theirs.layers, strict=True):
                copy_layer_to_torch(our_layer, their_layer, norms)
            if config.normalize_before:
                theirs.norm.load_state_dict(ours.layer_norm.state_dict())
            else:
                theirs.norm = (
                    None  # nn.Transformer normalizes once more after each stack; the paper does not
                )
    return torch_model


def reference_embeddings(model, ids):
    positions = reference_positions(ids.shape[1], model.config.d_model).float()
    return model.lm_head.weight[ids] * model.config.d_model**0.5 + positions


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("normalize_before", [False, True])
def test_model_logits_match_torch_nn_transformer(normalize_before, bias):
    same_on_both_sides = {"decoder_attention_heads": 2, "decoder_ffn_dim": 24}
    model = uneven_model(
        normalize_before=normalize_before, attention_bias=bias, **same_on_both_sides
    )
    rows = [tokens(1, 7, seed=1)[0], tokens(1, 4, seed=2)[0]]
    source, mask = padded_batch(rows)
    target = tokens(2, 6, seed=3)
    theirs = torch_transformer(model)(
        reference_embeddings(model, source),
        reference_embeddings(model, target),
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(6).isinf(),
        src_key_padding_mask=mask == 0,
        memory_key_padding_mask=mask == 0,
    )
    ours = model(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits
    torch.testing.assert_close(ours, model.lm_head(theirs))


def softmax_attention_of_one_query(attention, states, query_index):
    """Compute section 3.2.2 in loops over heads and positions, `(1, S, D)` to `(D,)`."""
    heads = []
    key_width, value_width = attention.head_dim, attention.value_dim
    for head in range(attention.out_proj.in_features // value_width):
        keys, values = (
            slice(head * width, (head + 1) * width) for width in (key_width, value_width)
        )
        query = attention.q_proj.weight[keys] @ states[0, query_index]
        scores = [
            query @ (attention.k_proj.weight[keys] @ state) / key_width**0.5 for state in states[0]
        ]
        weights = torch.stack(scores).softmax(dim=0)
        heads.append(
            sum(
                w * (attention.v_proj.weight[values] @ s)
                for w, s in zip(weights, states[0], strict=True)
            )
        )
    return attention.out_proj.weight @ torch.cat(heads)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize(
    ("key_dim", "value_dim", "heads"), [(5, 3, 2), (4, None, 4), (None, 7, 2), (6, 6, 3)]
)
def test_head_widths_follow_section_3_2_2(key_dim, value_dim, heads, implementation):
    config = uneven_config(
        attention_key_dim=key_dim,
        attention_value_dim=value_dim,
        encoder_attention_heads=heads,
        attn_implementation=implementation,
    )
    attention = randomize(VanillaTransformerAttention(config, heads, 0)).eval()
    states = torch.randn(1, 5, config.d_model, generator=torch.Generator().manual_seed(0))
    expected = [softmax_attention_of_one_query(attention, states, index) for index in range(5)]
    torch.testing.assert_close(attention(states)[0][0], torch.stack(expected))


def test_softmax_saturates_for_wide_keys_without_scaling_by_square_root_of_d_k():
    """Section 3.2.1: products of wide queries and keys grow, and the softmax has almost no gradient
    there.
    """
    generator = torch.Generator().manual_seed(0)
    largest, slopes = {}, {}
    for width in (4, 64, 1024):
        query, key = torch.randn(2, 1, 1, 64, width, generator=generator)
        for scaling in (1.0, width**-0.5):
            scored = query.clone().requires_grad_()
            value = torch.eye(64)[None, None]
            output, probabilities = eager_attention_forward(
                nn.Module(), scored, key, value, None, scaling
            )
            output[..., 0].sum().backward()
            case = width, scaling == 1.0
            largest[case] = probabilities.amax(dim=-1).mean().item()
            slopes[case] = scored.grad.norm().item() / (
                scaling * width**0.5
            )  # by the product, not by its factor
    assert largest[1024, True] > 0.95 and largest[1024, False] < 0.2
    assert slopes[1024, True] < 0.5 * slopes[4, True]
    assert slopes[1024, False] == pytest.approx(slopes[64, False], rel=0.5)


def marian_and_copy(**changes):
    """Return a `MarianMTModel` with random weights and our model with the same weights, whose names
    are equal.
    """
    torch.manual_seed(0)
    shape = uneven_config(**{"activation_function": "swish", **changes})
    common = {
        field: getattr(shape, field)
        for field in MarianConfig.__annotations__
        if hasattr(shape, field)
    }
    marian_config = MarianConfig(**{**common, "init_std": 0.02, "forced_eos_token_id": None})
    marian = randomize(MarianMTModel(marian_config)).eval()
    marian.final_logits_bias.normal_()
    config = copy.deepcopy(shape)
    for field, value in {
        "sinusoid_layout": "halves",
        "attention_bias": True,
        "lm_head_bias": True,
        "layer_norm_eps": 1e-5,
    }.items():
        setattr(config, field, value)
    ours = VanillaTransformerForConditionalGeneration(config).eval()
    weights = {**marian.state_dict(), "lm_head.bias": marian.final_logits_bias[0]}
    missing, _ = ours.load_state_dict({name: weights[name] for name in ours.state_dict()})
    assert not missing
    return marian, ours


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"activation_function": "relu"},
        {"activation_function": "gelu"},
        {"scale_embedding": False},
        SEPARATE,
        {"tie_word_embeddings": False},
    ],
    ids=str,
)
def test_model_logits_match_marian(changes):
    marian, ours = marian_and_copy(**changes)
    source, mask = padded_batch([tokens(1, 7, seed=1)[0], tokens(1, 4, seed=2)[0]])
    inputs = {
        "input_ids": source,
        "attention_mask": mask,
        "decoder_input_ids": tokens(2, 6, vocabulary=30, seed=3),
    }
    torch.testing.assert_close(ours(**inputs).logits, marian(**inputs).logits)


@pytest.mark.parametrize("changes", [{}, SEPARATE], ids=str)
@pytest.mark.parametrize("beams", [1, 3])
def test_model_generation_matches_marian(beams, changes):
    marian, ours = marian_and_copy(**changes)
    source, mask = padded_batch([tokens(1, 7, seed=1)[0], tokens(1, 4, seed=2)[0]])
    settings = {
        "attention_mask": mask,
        "num_beams": beams,
        "max_new_tokens": 12,
        "do_sample": False,
    }
    if changes == SEPARATE and beams > 1 and Version(transformers.__version__) < Version("5.20"):
        pytest.skip(
            "before 5.20, beam search takes the size of the source's vocabulary, and Marian's fails"
        )
    assert (
        ours.generate(source, **settings).tolist() == marian.generate(source, **settings).tolist()
    )


# --- size -----------------------------------------------------------------------------------------
# and initialization


@pytest.mark.parametrize(
    ("d_model", "heads", "expected"), [(512, 8, 63_045_632), (1024, 16, 214_171_648)]
)
def test_model_parameter_count_matches_paper(d_model, heads, expected):
    d_ff, norm = 4 * d_model, 2 * d_model
    attention, feed_forward = (
        4 * d_model * d_model,
        2 * d_model * d_ff + d_ff + d_model,
    )  # only the latter has biases
    counted = 37000 * d_model + 6 * (
        attention + feed_forward + 2 * norm + 2 * attention + feed_forward + 3 * norm
    )
    sizes = {
        f"{side}_{name}": size
        for side in ("encoder", "decoder")
        for name, size in (("ffn_dim", d_ff), ("attention_heads", heads))
    }
    with torch.device("meta"):
        model = VanillaTransformerForConditionalGeneration(
            VanillaTransformerConfig(d_model=d_model, **sizes)
        )
    assert sum(parameter.numel() for parameter in model.parameters()) == counted == expected


def test_init_weights_are_glorot_uniform_or_normal_by_init_std():
    model = VanillaTransformerModel(uneven_config(d_model=64, encoder_ffn_dim=256, vocab_size=500))
    embeddings = model.encoder.embed_tokens.weight
    assert embeddings[PAD].abs().sum() == 0
    assert embeddings[3:].std().item() == pytest.approx(64**-0.5, rel=0.05)
    layer = model.encoder.layers[0]
    bound = math.sqrt(6 / (64 + 256))
    assert 0.99 * bound < layer.fc1.weight.abs().max() <= bound
    assert layer.fc1.bias.abs().sum() == 0 and layer.final_layer_norm.weight.eq(1).all()
    normal = VanillaTransformerModel(
        uneven_config(d_model=64, encoder_ffn_dim=256, vocab_size=500, init_std=0.3)
    )
    for weight in (normal.encoder.embed_tokens.weight[3:], normal.encoder.layers[0].fc1.weight):
        assert weight.std().item() == pytest.approx(0.3, rel=0.05)


# --------------------------------------------------------------------------------------------------
# masks and padding


def test_decoder_does_not_see_future_tokens():
    model = uneven_model()
    source, target = tokens(2, 5), tokens(2, 8, seed=1)
    before = model(input_ids=source, decoder_input_ids=target).logits
    for position in range(1, 8):
        changed = target.clone()
        changed[:, position:] = (changed[:, position:] - 3 + 1) % (VOCABULARY - 3) + 3
        after = model(input_ids=source, decoder_input_ids=changed).logits
        torch.testing.assert_close(after[:, :position], before[:, :position], atol=1e-5, rtol=1e-5)
        assert not torch.allclose(after[:, position], before[:, position], atol=1e-3)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("target_side", ["left", "right"])
@pytest.mark.parametrize("source_side", ["left", "right"])
def test_model_logits_do_not_depend_on_padding_or_batch(source_side, target_side, implementation):
    model = uneven_model(attn_implementation=implementation)
    sources = [tokens(1, length, seed=length)[0] for length in (7, 3, 5)]
    targets = [tokens(1, length, seed=9 + length)[0] for length in (2, 6, 4)]
    source, source_mask = padded_batch(sources, source_side)
    target, target_mask = padded_batch(targets, target_side)
    inputs = {"input_ids": source, "attention_mask": source_mask, "decoder_input_ids": target}
    logits = model(**inputs, decoder_attention_mask=target_mask).logits
    assert logits.isfinite().all()
    for row, (source_row, target_row) in enumerate(zip(sources, targets, strict=True)):
        alone = model(input_ids=source_row[None], decoder_input_ids=target_row[None]).logits[0]
        torch.testing.assert_close(logits[row][target_mask[row] == 1], alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_model_derives_source_mask_from_padding_tokens(side):
    model = uneven_model()
    source, mask = padded_batch([tokens(1, 7)[0], tokens(1, 3)[0]], side)
    target = tokens(2, 4)
    given = model(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits
    derived = model(input_ids=source, decoder_input_ids=target).logits
    torch.testing.assert_close(derived, given, atol=0, rtol=0)
    seen = model(
        input_ids=source, attention_mask=torch.ones_like(mask), decoder_input_ids=target
    ).logits
    assert not torch.allclose(seen[1], given[1], atol=1e-3), (
        "this source would look different without a mask"
    )
    known = model.model.encoder(source)  # encoder outputs do not show the padding, `input_ids` do
    reused = model(input_ids=source, encoder_outputs=known, decoder_input_ids=target).logits
    torch.testing.assert_close(reused, given, atol=0, rtol=0)


# --- invalid inputs -------------------------------------------------------------------------------


IDS = tokens(1, 3)
LEARNED = {"position_embedding_type": "learned", "max_position_embeddings": 8}
TOO_FAR = r"`position_ids` must be from 0 to 7, got 8\. .*`max_position_embeddings`=8"


def call_with(**inputs):
    return lambda model: model(**{"input_ids": IDS, "decoder_input_ids": IDS} | inputs)


REFUSALS = [
    (
        SEPARATE,
        call_with(input_ids=torch.tensor([[3, VOCABULARY]])),
        rf"`input_ids`.*got {VOCABULARY}\.",
    ),
    (SEPARATE, call_with(input_ids=torch.tensor([[3, -1]])), r"`input_ids`.*got -1\."),
    (
        SEPARATE,
        call_with(decoder_input_ids=torch.tensor([[3, 30]])),
        r"`decoder_input_ids`.*got 30\.",
    ),
    (
        SEPARATE,
        call_with(decoder_input_ids=torch.tensor([[3, -7]])),
        r"`decoder_input_ids`.*got -7\.",
    ),
    (
        {},
        call_with(inputs_embeds=torch.zeros(1, 3, 16)),
        "`input_ids` and `inputs_embeds`, got both",
    ),
    ({}, call_with(input_ids=None), "`input_ids` and `inputs_embeds`, got neither"),
    (
        {},
        call_with(decoder_input_ids=None),
        "`decoder_input_ids` and `decoder_inputs_embeds`, got neither",
    ),
    ({}, lambda model: model.model.decoder(input_ids=IDS), "`encoder_hidden_states`"),
    ({}, lambda model: model.resize_decoder_token_embeddings(50), "Call `resize_token_embeddings`"),
    (LEARNED, call_with(input_ids=tokens(1, 9)), TOO_FAR),
    (LEARNED, call_with(decoder_input_ids=tokens(1, 9)), TOO_FAR),
    (
        LEARNED,
        lambda model: model.generate(IDS, min_new_tokens=9, max_new_tokens=9, num_beams=1),
        TOO_FAR,
    ),
]


@pytest.mark.parametrize(("changes", "call", "words"), REFUSALS)
def test_model_refuses_invalid_inputs(changes, call, words):
    with pytest.raises(ValueError, match=words):
        call(uneven_model(**changes))


# --------------------------------------------------------------------------------------------------
# continuous inputs


def test_inputs_embeds_of_token_embeddings_match_input_ids():
    model = uneven_model()
    source, target = tokens(2, 5), tokens(2, 4)
    embed = model.get_input_embeddings()
    by_ids = model(input_ids=source, decoder_input_ids=target).logits
    by_embeddings = model(inputs_embeds=embed(source), decoder_inputs_embeds=embed(target)).logits
    torch.testing.assert_close(by_embeddings, by_ids)


@pytest.mark.parametrize("beams", [1, 2])
def test_generate_reads_inputs_embeds_with_mask(beams):
    model, series, mask = uneven_model(), torch.randn(2, 9, 16), torch.ones(2, 9, dtype=torch.long)
    mask[1, 6:] = 0
    settings = {"num_beams": beams, "max_new_tokens": 6, "min_new_tokens": 6}
    together = model.generate(inputs_embeds=series, attention_mask=mask, **settings)
    assert (
        together[1].tolist() == model.generate(inputs_embeds=series[1:, :6], **settings)[0].tolist()
    )


# ------------------------------------------------------------------------------------------
# attention implementations


@pytest.mark.parametrize("side", ["left", "right"])
def test_eager_attention_matches_sdpa_in_logits_and_gradients(side):
    model = uneven_model()
    source, source_mask = padded_batch([tokens(1, 7)[0], tokens(1, 3)[0]], side)
    target, target_mask = padded_batch([tokens(1, 5)[0], tokens(1, 2)[0]], side)
    labels = target.masked_fill(target_mask == 0, -100)
    inputs = {"input_ids": source, "attention_mask": source_mask, "decoder_input_ids": target}
    inputs |= {"decoder_attention_mask": target_mask, "labels": labels}
    results = {}
    for implementation in ("eager", "sdpa"):
        model.set_attn_implementation(implementation)
        results[implementation] = loss_and_gradients(model, **inputs)
    logits = [result[0][target_mask == 1] for result in results.values()]
    torch.testing.assert_close(*logits, atol=1e-5, rtol=1e-5)
    assert_same_gradients(results["eager"][1], results["sdpa"][1], atol=1e-5, rtol=1e-4)


def test_flash_attention_is_refused_by_models_with_cross_attention_only():
    with pytest.raises(
        ValueError,
        match="VanillaTransformerForConditionalGeneration does not support Flash Attention",
    ):
        tiny_model().set_attn_implementation("flash_attention_2")
    for model in (tiny_causal_lm(), tiny_masked_lm()):
        assert model._supports_flash_attn and model.model._supports_flash_attn


def test_is_causal_only_in_decoder_self_attention():
    """Check `is_causal`, on which flash attention relies: without padding it receives no mask."""
    causal = {
        name
        for name, module in uneven_model().named_modules()
        if getattr(module, "is_causal", False)
    }
    assert causal == {f"model.decoder.layers.{layer}.self_attn" for layer in range(3)}


# -------------------------------------------------------------------------------------------------
# compile and export


@pytest.mark.parametrize("implementation", [rare("sdpa"), rare("eager")])
def test_torch_compile_takes_training_step_as_one_graph(implementation):
    assert_training_step_compiles_to_one_graph(implementation, "aot_eager")


@pytest.mark.sweep
def test_torch_compile_needs_two_graphs_for_any_lengths():
    torch.compiler.reset()
    model, graphs = uneven_model(**SHALLOW), []
    compiled = torch.compile(
        model, fullgraph=True, backend=lambda graph, _: graphs.append(graph) or graph.forward
    )
    for source_length, target_length in ((5, 4), (7, 6), (11, 3), (30, 20)):
        inputs = {
            "input_ids": tokens(2, source_length),
            "decoder_input_ids": tokens(2, target_length),
        }
        torch.testing.assert_close(compiled(**inputs).logits, model(**inputs).logits)
    assert len(graphs) == 2, "the first lengths as constants, then all others"


def test_torch_compile_takes_static_cache_step_as_one_graph():
    torch.compiler.reset()
    model = uneven_model(**SHALLOW)
    source, target = tokens(2, 6), tokens(2, 5, seed=1)
    encoded = model.model.encoder(source)
    expected = model(encoder_outputs=encoded, decoder_input_ids=target).logits
    cache, graphs = static_cache(model, target_length=8, source_length=6), []
    step = torch.compile(
        model, fullgraph=True, backend=lambda graph, _: graphs.append(graph) or graph.forward
    )
    with torch.no_grad():
        model(encoder_outputs=encoded, decoder_input_ids=target[:, :1], cache=cache)
        for t in range(1, 5):
            logits = step(
                encoder_outputs=encoded, decoder_input_ids=target[:, t : t + 1], cache=cache
            ).logits
            torch.testing.assert_close(logits[:, 0], expected[:, t], atol=1e-5, rtol=1e-5)
    assert len(graphs) == 1, "no step is compiled again"


class LogitsModule(nn.Module):
    """Model from tensors to one tensor, as `torch.export` and ONNX need it."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, decoder_input_ids):
        inputs = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "decoder_input_ids": decoder_input_ids,
        }
        return self.model(**inputs, use_cache=False).logits


@pytest.mark.parametrize("implementation", ["sdpa", rare("eager")])
def test_torch_export_allows_dynamic_batch_source_and_target_sizes(implementation):
    batch, source, target = (
        torch.export.Dim(name, min=2, max=64) for name in ("batch", "source", "target")
    )
    wrapped = LogitsModule(uneven_model(attn_implementation=implementation, **SHALLOW)).eval()
    sizes = {"input_ids": {0: batch, 1: source}, "attention_mask": {0: batch, 1: source}}
    example = (tokens(2, 5), torch.ones(2, 5, dtype=torch.long), tokens(2, 4))
    exported = torch.export.export(
        wrapped, example, dynamic_shapes={**sizes, "decoder_input_ids": {0: batch, 1: target}}
    )
    for batch_size, source_length, target_length in ((3, 9, 2), (5, 2, 30)):
        ids, mask = padded_batch(
            [tokens(1, max(source_length - i, 1), seed=i)[0] for i in range(batch_size)]
        )
        inputs = (ids, mask, tokens(batch_size, target_length))
        torch.testing.assert_close(
            exported.module()(*inputs), wrapped(*inputs), atol=1e-5, rtol=1e-5
        )


# --- files ----------------------------------------------------------------------------------------


def stored_names(folder):
    """Return the tensor names in all safetensors files of a checkpoint, with duplicates."""
    names = []
    for file in folder.glob("*.safetensors"):
        with safe_open(file, framework="pt") as tensors:
            names += list(tensors.keys())
    return names


@pytest.mark.parametrize("shard_size", ["5GB", "4KB"])
@pytest.mark.parametrize("dtype", [torch.float32, rare(torch.bfloat16), rare(torch.float16)])
@every_layout
def test_save_pretrained_stores_tied_weights_once(tmp_path, changes, dtype, shard_size):
    model = uneven_model(**changes).to(dtype)
    model.save_pretrained(tmp_path, max_shard_size=shard_size)
    names = stored_names(tmp_path)
    assert (len(list(tmp_path.glob("*.safetensors"))) > 1) == (shard_size == "4KB")
    distinct = dict(model.named_parameters())  # lists a tied weight once
    assert len(names) == len(set(names)) == len(distinct)
    loaded = VanillaTransformerForConditionalGeneration.from_pretrained(tmp_path)
    assert loaded.dtype == dtype
    expected = model.state_dict()
    assert all(torch.equal(weight, expected[name]) for name, weight in loaded.state_dict().items())
    assert [name for name, _ in loaded.named_parameters()] == list(distinct)
    encoder, decoder, head = embedding_matrices(loaded)
    assert (encoder is decoder) == (changes == {})
    assert (decoder is head) == ("tie_word_embeddings" not in changes)
    inputs = {"input_ids": tokens(1, 5, 30), "decoder_input_ids": tokens(1, 4, 30)}
    torch.testing.assert_close(loaded(**inputs).logits, model(**inputs).logits, atol=0, rtol=0)


def embedding_matrices(model):
    return (
        model.model.encoder.embed_tokens.weight,
        model.model.decoder.embed_tokens.weight,
        model.lm_head.weight,
    )


TIED = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")


@pytest.mark.parametrize(
    "kept", [names for count in range(4) for names in itertools.combinations(TIED, count)]
)
def test_load_state_dict_reports_the_missing_and_unexpected_keys_of_bart(kept):
    bart = BartForConditionalGeneration(
        BartConfig(vocab_size=30, d_model=16, encoder_layers=1, decoder_layers=1)
    )
    reports = []
    for model in (tiny_model(), bart):
        names = [
            name for name in model.state_dict() if not name.endswith(TIED) or name.endswith(kept)
        ]
        state = {name: model.state_dict()[name] for name in names} | {"foreign": torch.ones(1)}
        state.pop("model.shared.weight", None)
        missing, unexpected = model.load_state_dict(state, strict=False)
        reports.append(({*missing} - {"model.shared.weight"}, unexpected))
    assert reports[0] == reports[1]


@pytest.mark.parametrize(
    "build", [tiny_model, tiny_long_model, tiny_causal_lm, tiny_long_causal_lm, tiny_masked_lm]
)
def test_fsdp_wraps_the_layers_of_each_family(build):
    model = build()
    plugin = FullyShardedDataParallelPlugin(auto_wrap_policy="transformer_based_wrap")
    plugin.set_auto_wrap_policy(model)
    wrapped = plugin.auto_wrap_policy.keywords["transformer_layer_cls"]
    assert wrapped == {
        type(stack.layers[0]) for stack in model.modules() if hasattr(stack, "layers")
    }


@pytest.mark.parametrize("build", [tiny_model, tiny_causal_lm, tiny_masked_lm])
def test_loss_and_generation_of_a_class_do_not_depend_on_its_name(build):
    model, ids = build(), tokens(2, 5)
    other = type("Mine", (type(model),), {})(model.config).eval()
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(ids, labels=ids).loss, model(ids, labels=ids).loss)
    assert type(other).can_generate() == type(model).can_generate()


def test_from_pretrained_ties_weights_of_base_checkpoint(tmp_path):
    base = uneven_model().model
    base.save_pretrained(tmp_path)
    whole = VanillaTransformerForConditionalGeneration.from_pretrained(tmp_path)
    encoder, decoder, head = embedding_matrices(whole)
    assert encoder is decoder is head and torch.equal(head, base.encoder.embed_tokens.weight)


@pytest.mark.parametrize("damage", ["truncated", "header"])
def test_from_pretrained_rejects_corrupt_checkpoint(tmp_path, damage):
    uneven_model().save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes(
        content[: len(content) // 2] if damage == "truncated" else b"\xff" * 64 + content[64:]
    )
    with pytest.raises(
        OSError, match=f"Cannot load the weights of {tmp_path}: .*truncated or corrupt"
    ):
        VanillaTransformerForConditionalGeneration.from_pretrained(tmp_path)


# --- training -------------------------------------------------------------------------------------


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_gradient_checkpointing_keeps_gradients_and_runs_layers_twice(use_reentrant):
    model = uneven_model(dropout=0.1).train()
    inputs = {"input_ids": tokens(2, 6), "labels": tokens(2, 5)}
    runs = {}
    for layer in (*model.model.encoder.layers, *model.model.decoder.layers):
        layer.fc1.register_forward_hook(
            lambda module, *_: runs.update({module: runs.get(module, 0) + 1})
        )
    torch.manual_seed(1)
    _, expected = loss_and_gradients(model, **inputs)
    assert set(runs.values()) == {1} and len(runs) == 5
    runs.clear()
    checkpoint_activations(model, {"use_reentrant": use_reentrant})
    torch.manual_seed(1)
    _, checkpointed = loss_and_gradients(model, **inputs)
    assert set(runs.values()) == {2} and len(runs) == 5
    assert_same_gradients(checkpointed, expected)
    assert checkpointed["model.encoder.layers.0.fc1.weight"].abs().sum() > 0


def test_num_items_in_batch_makes_half_batches_match_full_batch():
    """Use halves with different numbers of labels, for which the mean of two means is a different
    loss.
    """
    model = uneven_model()
    sources, labels = tokens(4, 6), tokens(4, 9, seed=1)
    labels[:2, 3:] = -100
    whole_loss = model(input_ids=sources, labels=labels).loss
    whole_loss.backward()
    expected = gradients(model)
    model.zero_grad()
    counted = (labels != -100).sum()
    halves = [(sources[:2], labels[:2, :3]), (sources[2:], labels[2:])]
    losses = [
        model(input_ids=ids, labels=part, num_items_in_batch=counted).loss for ids, part in halves
    ]
    for loss in losses:
        loss.backward()
    torch.testing.assert_close(sum(losses), whole_loss)
    assert_same_gradients(gradients(model), expected, atol=1e-6, rtol=1e-5)


def test_loss_is_mean_cross_entropy_over_labels():
    model = uneven_model()
    source, labels = tokens(2, 6), tokens(2, 5)
    labels[1, 3:] = -100
    decoder_inputs = torch.tensor([[START, *labels[0, :4]], [START, *labels[1, :3], PAD]])
    logits = model(input_ids=source, decoder_input_ids=decoder_inputs).logits
    expected = nn.functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), ignore_index=-100
    )
    torch.testing.assert_close(model(input_ids=source, labels=labels).loss, expected)


def test_decoder_input_ids_are_shifted_labels():
    labels = torch.tensor([[5, 6, EOS, -100], [7, 8, 9, EOS]])
    expected = [[START, 5, 6, EOS], [START, 7, 8, 9]]
    assert uneven_model().prepare_decoder_input_ids_from_labels(labels).tolist() == expected
    assert shift_tokens_right(torch.tensor([[5, -100, 6]]), PAD, START).tolist() == [
        [START, 5, PAD]
    ]
    assert labels[0, -1] == -100, "the labels themselves stay as they are"


@pytest.mark.parametrize("name", ["decoder_input_ids", "decoder_inputs_embeds"])
def test_decoder_inputs_of_the_caller_replace_shifted_labels(name):
    model, source = uneven_model(), tokens(2, 6)
    ids, labels = tokens(2, 5, seed=1), tokens(2, 5)
    inputs = {name: ids if name == "decoder_input_ids" else model.get_input_embeddings()(ids)}
    expected = model(input_ids=source, **inputs).logits
    assert torch.equal(model(input_ids=source, labels=labels, **inputs).logits, expected)


def test_seq2seq_trainer_trains_with_label_smoothing(tmp_path):
    model = uneven_model()
    source, labels = tokens(2, 6), tokens(2, 5)
    labels[1, 3:] = -100
    batch = {"input_ids": source, "labels": labels}
    batch["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(labels)
    before = copy.deepcopy(model.state_dict())
    arguments = Seq2SeqTrainingArguments(
        tmp_path,
        max_steps=1,
        label_smoothing_factor=0.1,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        learning_rate=0.1,
    )
    trainer = Seq2SeqTrainer(
        model, arguments, train_dataset=[0], data_collator=lambda _: dict(batch)
    )
    expected = nn.functional.cross_entropy(
        model(**batch).logits.flatten(0, 1), labels.flatten(), label_smoothing=0.1
    )
    assert trainer.train().training_loss == pytest.approx(expected.item(), rel=1e-5)
    assert not torch.equal(model.lm_head.weight, before["lm_head.weight"])


# --- parallelism ----------------------------------------------------------------------------------


def with_layer_wildcards(name):
    return re.sub(r"\.\d+(?=\.|$)", ".*", name)


@needs_transformers("5.17", "the library drops the plans of classes")
@every_layout
def test_tp_plan_covers_every_projection(changes):
    model = uneven_model(**changes)
    assert model.supports_tp_plan
    generic = {with_layer_wildcards(name): module for name, module in model.named_modules()}
    # Up to version 5.22, transformers adds `model.embed_tokens` even without such a module.
    planned = set(model.tp_plan) - {"model.embed_tokens"}
    assert planned <= set(generic)
    projections = {
        name
        for name, module in generic.items()
        if isinstance(module, nn.Linear | VanillaTransformerEmbedding)
    }
    assert projections == planned


@needs_transformers("5.17", "the library drops the plans of classes")
def test_pp_and_fsdp_plans_name_existing_modules():
    model = uneven_model()
    generic = {with_layer_wildcards(name) for name, _ in model.named_modules()}
    assert (
        model.supports_pp_plan
        and set(model.pp_plan) == {"model.encoder", "model.decoder", "lm_head"} <= generic
    )
    assert set(model.fsdp_plan) == {"model.encoder.layers.*", "model.decoder.layers.*"} <= generic


# --- cached decoding ------------------------------------------------------------------------------


def dynamic_cache(model, target_length, source_length):
    return EncoderDecoderCache(DynamicCache(), DynamicCache())


def static_cache(model, target_length, source_length):
    config = model.config.get_text_config(decoder=True)
    lengths = (target_length, source_length)
    return EncoderDecoderCache(
        *(StaticCache(config=config, max_cache_len=length) for length in lengths)
    )


@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"encoder_layers": 2, "decoder_layers": 4},
        {"encoder_layers": 3, "decoder_layers": 1},
        {"attention_key_dim": 5, "attention_value_dim": 3, "position_embedding_type": "none"},
    ],
)
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("padding", [False, True], ids=["plain", "left-padded"])
@pytest.mark.parametrize("make_cache", [dynamic_cache, static_cache])
def test_cached_decoding_matches_logits_of_full_target(make_cache, padding, implementation, sizes):
    model = uneven_model(attn_implementation=implementation, **sizes)
    source, source_mask = padded_batch([tokens(1, 6)[0], tokens(1, 4)[0]])
    lengths = (7, 4) if padding else (7, 7)
    target, mask = padded_batch(
        [tokens(1, length, seed=length)[0] for length in lengths], side="left"
    )
    encoder_side = {"encoder_outputs": model.model.encoder(source), "attention_mask": source_mask}
    whole = model(
        **encoder_side, decoder_input_ids=target, decoder_attention_mask=mask if padding else None
    ).logits
    cache = make_cache(model, target_length=9, source_length=6)
    steps = []
    for start, end in (
        (0, 3),
        (3, 4),
        (4, 5),
        (5, 7),
    ):  # a prompt, single tokens, and several at once
        seen = mask[:, :end] if padding else None
        ids = target[:, start:end]
        output = model(
            **encoder_side, decoder_input_ids=ids, decoder_attention_mask=seen, cache=cache
        )
        steps.append(output.logits)
    torch.testing.assert_close(
        torch.cat(steps, dim=1)[mask == 1], whole[mask == 1], atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("cache", [None, "static"])
def test_search_with_cache_matches_without_for_left_padded_prompts(cache, beams):
    model = uneven_model()
    prompts, mask = padded_batch(
        [torch.tensor([START, 7, 9, 8]), torch.tensor([START, 5])], side="left"
    )
    settings = {
        "num_beams": beams,
        "max_new_tokens": 8,
        "min_new_tokens": 8,
        "disable_compile": True,
    }
    settings |= {"return_dict_in_generate": True, "output_logits": True, "output_scores": True}

    def search(rows=slice(None), **further):
        return model.generate(tokens(2, 6)[rows], **settings, **further)

    padded = {"decoder_input_ids": prompts, "decoder_attention_mask": mask}
    cached, plain = search(**padded, cache_implementation=cache), search(**padded, use_cache=False)
    alone = search(slice(1, None), decoder_input_ids=torch.tensor([[START, 5]]))
    assert cached.sequences.tolist() == plain.sequences.tolist()
    assert cached.sequences[1, 4:].tolist() == alone.sequences[0, 2:].tolist()
    if beams > 1:
        torch.testing.assert_close(
            cached.sequences_scores, plain.sequences_scores, atol=1e-5, rtol=1e-5
        )
    else:
        torch.testing.assert_close(
            torch.stack(cached.logits), torch.stack(plain.logits), atol=1e-5, rtol=1e-5
        )


def test_generate_projects_source_keys_once():
    model, calls = uneven_model(), []
    model.model.decoder.layers[0].encoder_attn.k_proj.register_forward_hook(
        lambda *_: calls.append(1)
    )
    model.generate(tokens(2, 6), num_beams=2, min_new_tokens=8, max_new_tokens=8)
    assert len(calls) == 1


# -----------------------------------------------------------------------------------------------
# resized vocabularies


def assert_vocabulary_sizes(model, source, target):
    encoder, decoder = model.model.encoder.embed_tokens, model.model.decoder.embed_tokens
    assert type(encoder) is type(decoder) is VanillaTransformerEmbedding
    assert (
        encoder.embed_scale == decoder.embed_scale == 4.0
        and encoder.padding_idx == decoder.padding_idx == PAD
    )
    assert (encoder.weight.shape[0], encoder.num_embeddings) == (source, source)
    assert (decoder.weight.shape[0], decoder.num_embeddings) == (target, target)
    assert (model.lm_head.weight.shape[0], model.lm_head.out_features) == (target, target)
    if model.lm_head.bias is not None:
        assert model.lm_head.bias.shape[0] == target
    assert (model.config.vocab_size, model.config.decoder_vocab_size) == (source, target)


def tied_matrices(model):
    encoder, decoder, head = embedding_matrices(model)
    return encoder is decoder, decoder is head


@pytest.mark.parametrize("bias", [rare(False), True])
@pytest.mark.parametrize("new_size", [VOCABULARY + 5, VOCABULARY - 5])
@every_layout
def test_resize_token_embeddings_resizes_every_source_weight(tmp_path, changes, new_size, bias):
    model = uneven_model(lm_head_bias=bias, **changes)
    before = copy.deepcopy(model.state_dict())
    tied = (changes == {}, "tie_word_embeddings" not in changes)
    returned = model.resize_token_embeddings(new_size)
    assert returned is model.get_input_embeddings()
    target = 30 if "decoder_vocab_size" in changes else new_size
    assert_vocabulary_sizes(model, new_size, target)
    assert tied_matrices(model) == tied
    for name, weight in model.state_dict().items():
        rows = min(len(weight), len(before[name]))
        torch.testing.assert_close(weight[:rows], before[name][:rows], atol=0, rtol=0)
    source = torch.full((1, 3), new_size - 1)
    output = model(input_ids=source, labels=torch.full((1, 4), target - 1))
    assert output.logits.shape == (1, 4, target)
    model.save_pretrained(tmp_path)
    loaded = VanillaTransformerForConditionalGeneration.from_pretrained(tmp_path)
    assert_vocabulary_sizes(loaded, new_size, target)
    assert tied_matrices(loaded) == tied


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("new_size", [35, 25])
@pytest.mark.parametrize("tied", [True, False])
def test_resize_decoder_token_embeddings_keeps_source_vocabulary(tied, new_size, bias):
    model = uneven_model(**SEPARATE, tie_word_embeddings=tied, lm_head_bias=bias)
    before = copy.deepcopy(model.state_dict())
    assert model.resize_decoder_token_embeddings(new_size) is model.model.decoder.embed_tokens
    assert_vocabulary_sizes(model, VOCABULARY, new_size)
    assert tied_matrices(model) == (False, tied)
    for name, weight in model.state_dict().items():
        rows = min(len(weight), len(before[name]))
        torch.testing.assert_close(weight[:rows], before[name][:rows], atol=0, rtol=0)
    assert model(input_ids=tokens(1, 3), labels=torch.full((1, 4), new_size - 1)).logits.shape == (
        1,
        4,
        new_size,
    )


def test_resize_token_embeddings_pads_to_multiple_and_resizes_base_model():
    model = uneven_model()
    model.resize_token_embeddings(VOCABULARY + 1, pad_to_multiple_of=8)
    assert_vocabulary_sizes(model, 48, 48)
    base = model.model
    base.resize_token_embeddings(50)
    assert base.encoder.embed_tokens.weight is base.decoder.embed_tokens.weight
    assert (
        base.config.vocab_size
        == base.config.decoder_vocab_size
        == len(base.encoder.embed_tokens.weight)
        == 50
    )


def test_model_without_positions_may_have_an_odd_width():
    model = tiny_model(
        position_embedding_type="none",
        d_model=9,
        encoder_attention_heads=3,
        decoder_attention_heads=3,
    )
    assert model(input_ids=torch.tensor([[5, 2]]), labels=torch.tensor([[6, 2]])).loss.isfinite()
