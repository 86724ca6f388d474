"""Models for long sequences, encoder-decoder and decoder-only: caches, padding, training, memory
and errors.
"""

import copy
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    DynamicCache,
)

from tests.releases import checkpoint_activations
from tests.sweeps import examples
from vanilla_transformer import (
    VanillaTransformerForCausalLM,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerForMaskedLM,
    VanillaTransformerLongConfig,
    VanillaTransformerLongDecoderConfig,
    VanillaTransformerLongDecoderModel,
    VanillaTransformerLongForCausalLM,
    VanillaTransformerLongForConditionalGeneration,
    VanillaTransformerLongModel,
    create_cache,
    modeling_vanilla_transformer_long,
)
from vanilla_transformer.compatibility_vanilla_transformer import CACHE
from vanilla_transformer.reversible import apply_storing_activations

VOCABULARY, PAD, EOS = 40, 0, 2
LAYER_TYPES = ["full_attention", "linear_attention"]
LAYER_TYPES += ["lsh_attention", "transfo_xl_attention"]
CLASSES = [
    (VanillaTransformerLongModel, AutoModel),
    (VanillaTransformerLongForConditionalGeneration, AutoModelForSeq2SeqLM),
    (VanillaTransformerLongDecoderModel, AutoModel),
    (VanillaTransformerLongForCausalLM, AutoModelForCausalLM),
]
HEADS = [VanillaTransformerLongForConditionalGeneration, VanillaTransformerLongForCausalLM]
GENERATING = [VanillaTransformerForCausalLM, *HEADS]
every_layer_type = pytest.mark.parametrize("layer_type", LAYER_TYPES)
every_head = pytest.mark.parametrize("model_class", HEADS)
assert_near = partial(torch.testing.assert_close, atol=1e-5, rtol=1e-4)


def tiny_config(config_class, **changes):
    sizes = {"vocab_size": VOCABULARY, "d_model": 16, "init_std": 0.3, "dropout": 0.0}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": 2, f"{side}_attention_heads": 2, f"{side}_ffn_dim": 24}
    return config_class(**sizes | changes)


def model_with_memory():
    return tiny_model(
        VanillaTransformerLongForConditionalGeneration,
        layer_types="transfo_xl_attention",
        mem_len=50,
    )


def tiny_model(model_class, seed=0, **changes):
    torch.manual_seed(seed)
    return model_class(tiny_config(model_class.config_class, **changes)).eval()


def tokens(sentences, length):
    return torch.randint(3, VOCABULARY, (sentences, length))


def compute_logits(model, ids, attention_mask=None):
    """Return the logits of `ids`, which an encoder-decoder model takes as `decoder_input_ids`."""
    if not model.config.is_encoder_decoder:
        return model(input_ids=ids, attention_mask=attention_mask).logits
    source = torch.tensor([[5, 6, 7]]).expand(len(ids), 3)
    target = {"decoder_input_ids": ids, "decoder_attention_mask": attention_mask}
    return model(input_ids=source, **target).logits


# --- All layer types ------------------------------------------------------------------------------


@examples(100)
@given(
    seed=st.integers(0, 1000),
    model_class=st.sampled_from(GENERATING),
    layer_type=st.sampled_from(LAYER_TYPES),
    normalize_before=st.booleans(),
    reversible=st.booleans(),
    sentences=st.integers(1, 3),
    length=st.integers(1, 9),
    beams=st.integers(1, 3),
    attention=st.sampled_from(["eager", "sdpa"]),
)
def test_generate_returns_equal_tokens_without_cache(
    seed, model_class, layer_type, normalize_before, reversible, sentences, length, beams, attention
):
    fields = {"normalize_before": normalize_before or reversible}
    if model_class is not VanillaTransformerForCausalLM:
        fields |= {"layer_types": layer_type, "reversible": reversible}
    model = tiny_model(model_class, seed, **fields)
    model.set_attn_implementation(attention)
    prompt = tokens(sentences, length)
    prompt[0, : (length - 1) // 2] = PAD
    decoding = {"max_new_tokens": 6, "num_beams": beams, "do_sample": False}
    decoding |= {"attention_mask": prompt.ne(PAD).long()}
    cached = model.generate(prompt, use_cache=True, **decoding)
    whole_again = model.generate(prompt, use_cache=False, **decoding)
    assert torch.equal(cached, whole_again)


@every_layer_type
@every_head
def test_long_decoder_does_not_see_future_tokens(model_class, layer_type):
    model, ids = tiny_model(model_class, layer_types=layer_type), tokens(2, 8)
    changed = ids.clone()
    changed[:, 5:] = tokens(2, 3)
    before, after = compute_logits(model, ids), compute_logits(model, changed)
    torch.testing.assert_close(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5:], after[:, 5:])


@every_layer_type
def test_long_causal_lm_ignores_left_padding(layer_type):
    model = tiny_model(VanillaTransformerLongForCausalLM, layer_types=layer_type)
    ids = tokens(2, 6)
    padded = nn.functional.pad(ids, (3, 0), value=PAD)
    logits = compute_logits(model, padded, attention_mask=padded.ne(PAD).long())
    assert_near(logits[:, 3:], compute_logits(model, ids))


@every_layer_type
@pytest.mark.parametrize("cross_attention_type", ["full_attention", "linear_attention"])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_long_model_ignores_source_padding(layer_type, cross_attention_type, implementation):
    kinds = {"layer_types": layer_type, "cross_attention_type": cross_attention_type}
    model = tiny_model(VanillaTransformerLongForConditionalGeneration, **kinds)
    model.set_attn_implementation(implementation)
    source, target = tokens(2, 6), tokens(2, 5)
    expected = model(source, decoder_input_ids=target).logits
    padded = nn.functional.pad(source, (0, 3), value=PAD)
    assert_near(model(padded, decoder_input_ids=target).logits, expected)
    shorter = model(source[:, :5], decoder_input_ids=target).logits
    assert not torch.allclose(shorter, expected, atol=1e-3)


@every_layer_type
@every_head
def test_reversible_layers_keep_gradients(model_class, layer_type, monkeypatch):
    fields = {"layer_types": layer_type, "dropout": 0.2}
    fields |= {"reversible": True, "normalize_before": True}
    model, ids = tiny_model(model_class, **fields).double().train(), tokens(2, 9)
    gradients = []
    module = modeling_vanilla_transformer_long
    for run in (module.apply_reversibly, apply_storing_activations):
        monkeypatch.setattr(module, "apply_reversibly", run)
        model.zero_grad()
        torch.manual_seed(3)
        model(input_ids=ids, labels=ids).loss.backward()
        gradients.append({name: weight.grad for name, weight in model.named_parameters()})
    torch.testing.assert_close(*gradients, atol=1e-10, rtol=1e-9)
    assert all(gradient.abs().sum() > 0 for gradient in gradients[0].values())


CHUNKED = [
    (VanillaTransformerForConditionalGeneration, {}),
    (VanillaTransformerForCausalLM, {}),
    (VanillaTransformerForMaskedLM, {}),
    (VanillaTransformerLongForCausalLM, {"reversible": False, "normalize_before": True}),
    (VanillaTransformerLongForCausalLM, {"reversible": True, "normalize_before": True}),
]


@pytest.mark.parametrize(("model_class", "fields"), CHUNKED)
def test_chunk_size_feed_forward_changes_no_gradient(model_class, fields):
    ids, results = tokens(2, 9), []
    for chunk_size in (0, 4):
        model = tiny_model(model_class, chunk_size_feed_forward=chunk_size, **fields)
        model = model.double().train()
        lengths = []
        layer = next(module for module in model.modules() if hasattr(module, "fc1"))

        def record(_, inputs, __, lengths=lengths):
            lengths.append(inputs[0].shape[1])

        layer.fc1.register_forward_hook(record)
        loss = model(input_ids=ids, labels=ids).loss
        assert lengths[0] == (chunk_size or 9)
        loss.backward()
        gradients = [weight.grad for weight in model.parameters()]
        results.append([loss.detach(), *gradients])
    torch.testing.assert_close(*results, atol=1e-11, rtol=1e-10)


LOADED = [(*classes, "lsh_attention") for classes in CLASSES]
LOADED += [(*CLASSES[1], kind) for kind in LAYER_TYPES]


@pytest.mark.parametrize(("model_class", "auto_class", "layer_type"), LOADED)
def test_auto_class_loads_long_model(model_class, auto_class, layer_type, tmp_path):
    model = tiny_model(model_class, layer_types=layer_type)
    model.save_pretrained(tmp_path)
    loaded = auto_class.from_pretrained(tmp_path).eval()
    assert type(loaded) is model_class
    assert type(AutoConfig.from_pretrained(tmp_path)) is model_class.config_class
    inputs = {"input_ids": tokens(2, 5)}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = inputs["input_ids"]
    assert torch.equal(loaded(**inputs)[0], model(**inputs)[0])


# --- Full attention -------------------------------------------------------------------------------


def test_long_model_with_full_attention_matches_base_model():
    long_class = VanillaTransformerLongForConditionalGeneration
    papers_class = VanillaTransformerForConditionalGeneration
    model = tiny_model(long_class, layer_types="full_attention")
    papers = papers_class(tiny_config(papers_class.config_class)).eval()
    papers.load_state_dict(model.state_dict())
    source, target = tokens(2, 6), tokens(2, 5)
    source[1, 4:] = PAD
    expected = papers(source, decoder_input_ids=target).logits
    assert torch.equal(model(source, decoder_input_ids=target).logits, expected)


# --- Linear attention -----------------------------------------------------------------------------


def test_linear_attention_cache_has_constant_size():
    model_class = VanillaTransformerLongForCausalLM
    model = tiny_model(model_class, layer_types="linear_attention")
    sizes = []
    for length in (1, 700):
        layers = model(tokens(1, length), use_cache=True)[CACHE].layers
        sizes.append(sum(layer.keys.numel() + layer.values.numel() for layer in layers))
    assert sizes[0] == sizes[1]


# --- Transformer-XL memory ------------------------------------------------------------------------


def test_transfo_xl_segments_with_memory_match_full_sequence():
    fields = {"layer_types": "transfo_xl_attention", "mem_len": 12}
    model = tiny_model(VanillaTransformerLongForCausalLM, **fields)
    ids, memory = tokens(2, 12), create_cache(model.config)
    parts = [model(part, cache=memory).logits for part in ids.split(4, dim=1)]
    assert_near(torch.cat(parts, dim=1), model(ids).logits)


def test_transfo_xl_memory_carries_earlier_sentences():
    model = model_with_memory()
    source, target, memory = tokens(2, 5), tokens(2, 4), create_cache(model.config)
    alone = model(source, decoder_input_ids=target).logits
    before = model(source, decoder_input_ids=target, cache=memory).logits
    torch.testing.assert_close(before, alone)
    after = model(source, decoder_input_ids=target, cache=memory).logits
    assert not torch.allclose(after, alone, atol=1e-3)
    assert memory.layers[0].keys.shape[1] == 8


@pytest.mark.parametrize("beams", [1, 3])
def test_generate_reads_transfo_xl_memory_without_changing_it(beams):
    model = model_with_memory()
    source, memory = tokens(2, 5), create_cache(model.config)

    def first_logits(**options):
        decoding = {"max_new_tokens": 3, "num_beams": beams, "do_sample": False}
        decoding |= {"output_logits": True, "return_dict_in_generate": True}
        return model.generate(source, **decoding, **options).logits[0]

    alone = first_logits()
    model(source, decoder_input_ids=tokens(2, 9), cache=memory)
    kept = copy.deepcopy(memory)
    logits = first_logits(cache=memory)
    assert torch.equal(logits, first_logits(cache=memory))
    assert not torch.allclose(logits, alone, atol=1e-2)
    assert torch.equal(memory.layers[0].keys, kept.layers[0].keys)


COPIES = [{}, {"num_beams": 3}, {"num_beams": 4, "num_return_sequences": 2}]


@pytest.mark.parametrize("layer_type", [None, *LAYER_TYPES])
@pytest.mark.parametrize("copies", COPIES)
def test_causal_lm_continues_text_from_cache(layer_type, copies):
    if layer_type is None:
        model = tiny_model(VanillaTransformerForCausalLM)
    else:
        model = tiny_model(VanillaTransformerLongForCausalLM, layer_types=layer_type)
    text, memory = tokens(2, 9), model.model.create_cache()
    model(text[:, :6], cache=memory, use_cache=True)
    decoding = {"max_new_tokens": 4, "do_sample": False, **copies}
    expected = model.generate(text, **decoding)
    assert torch.equal(model.generate(text, cache=memory, **decoding), expected)


def test_transfo_xl_memory_ignores_padding_of_earlier_sentences():
    model = model_with_memory()
    source, first, second = tokens(2, 5), tokens(2, 6), tokens(2, 4)
    first[1, 4:] = PAD
    memories = create_cache(model.config), create_cache(model.config)
    model(source, decoder_input_ids=first, cache=memories[0])
    model(source[1:], decoder_input_ids=first[1:, :4], cache=memories[1])
    together = model(source, decoder_input_ids=second, cache=memories[0]).logits[1:]
    alone = model(source[1:], decoder_input_ids=second[1:], cache=memories[1]).logits
    assert_near(together, alone)


# --- Invalid arguments ----------------------------------------------------------------------------


def attention(kind, **fields):
    return {"layer_types": kind, **fields}


NO_BUCKETS = '`num_buckets` needs `layer_types="lsh_attention"`.*=8 and .*linear_attention'
NO_MEMORY = '`mem_len` needs `layer_types="transfo_xl_attention"`.*9 and .*lsh_attention'
LEARNED = {"position_embedding_type": "learned"}
NO_NORM = "`reversible` needs `normalize_before=True`.*got normalize_before=False"
INVALID = [
    ({"num_hashes": 0}, "`num_hashes` must be at least 1, got 0"),
    ({"lsh_attn_chunk_length": 0}, "`lsh_attn_chunk_length` must be at least 1, got 0"),
    ({"num_buckets": 7}, "`num_buckets` must be even, or 1 for no hashing, got 7"),
    (attention("linear_attention", num_buckets=8), NO_BUCKETS),
    ({"chunk_size_feed_forward": -1}, "`chunk_size_feed_forward` must be at least 0, got -1"),
    (
        attention("transfo_xl_attention", mem_len=0),
        "`mem_len` must be at least 1, or None .*, got 0",
    ),
    (attention("lsh_attention", mem_len=9), NO_MEMORY),
    (attention("transfo_xl_attention", **LEARNED), "an even `d_model` and .*'learned'"),
    (attention("lsh"), "`layer_types` must be one of full_attention, .*, got .*lsh"),
    (attention(LAYER_TYPES[:2]), "the same for all layers, got .*linear_attention"),
    (attention(["full_attention"] * 3), "one entry for each of `decoder_layers`=2, got 3"),
    ({"reversible": True}, NO_NORM),
    (
        attention("linear_attention", attention_dropout=0.1),
        "`attention_dropout` must be 0 for linear.*got 0.1",
    ),
]
CONFIGS = [VanillaTransformerLongConfig, VanillaTransformerLongDecoderConfig]


@pytest.mark.parametrize(("changes", "message"), INVALID)
@pytest.mark.parametrize("config_class", CONFIGS)
def test_long_config_rejects_invalid_values(config_class, changes, message):
    with pytest.raises(ValueError, match=message):
        tiny_config(config_class, **changes)


def call_after_memory(model, length, **options):
    text, memory = tokens(2, 9), create_cache(model.config)
    model(text, cache=memory)
    if options:
        model(text[:, :length], cache=memory, **options)
    else:
        model.generate(text, cache=memory)


def call_with_checkpointing(model):
    checkpoint_activations(model.train())
    model(tokens(1, 3), cache=create_cache(model.config))


def call_with_cache(cache):
    return lambda model: model(tokens(1, 3), cache=cache)


LSH_CACHE = create_cache(
    tiny_config(VanillaTransformerLongDecoderConfig, layer_types="lsh_attention")
)
OTHER_CACHE = "must have layers of .*as `create_cache"
LEFT_PADDED = {"attention_mask": torch.tensor([[0, 1, 1]] * 2)}
ALL_SEEN = r"Got 9 .* cache holds 9\. Pass the whole text"
WRONG_MASK = r"must be a padding mask .* \(1, 1, 3, 3\)"
STATIC = {"cache_implementation": "static"}
REFUSED_CALLS = [
    ("transfo_xl_attention", lambda model: call_after_memory(model, 9), ALL_SEEN),
    (
        "transfo_xl_attention",
        lambda model: call_after_memory(model, 3, **LEFT_PADDED),
        "must not begin with padding",
    ),
    ("transfo_xl_attention", call_with_checkpointing, "Turn activation checkpointing off"),
    ("full_attention", call_with_cache(LSH_CACHE), OTHER_CACHE),
]
for kind in LAYER_TYPES[1:]:
    REFUSED_CALLS += [
        (kind, call_with_cache(DynamicCache()), OTHER_CACHE),
        (kind, lambda model: model(tokens(1, 3), torch.ones(1, 1, 3, 3)), WRONG_MASK),
        (kind, lambda model: model.generate(tokens(1, 3), **STATIC), f'"dynamic" .*"{kind}"'),
    ]


@pytest.mark.parametrize(("layer_type", "call", "words"), REFUSED_CALLS)
def test_long_model_refuses_invalid_calls(layer_type, call, words):
    with pytest.raises(ValueError, match=words):
        call(tiny_model(VanillaTransformerLongForCausalLM, layer_types=layer_type))
