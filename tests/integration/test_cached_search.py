"""For each model and attention, the library's own search finds the same with a cache and without
one.
"""

import inspect
import re
import warnings
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from recurrent_model import RecurrentConfig, RecurrentForConditionalGeneration
from transformers.generation import GenerationMixin

from tests.tiny import (
    tiny_causal_lm,
    tiny_long_causal_lm,
    tiny_long_model,
    tiny_masked_lm,
    tiny_model,
)
from vanilla_transformer.compatibility_vanilla_transformer import CACHE
from vanilla_transformer.configuration_vanilla_transformer_long import LAYER_TYPES

SOURCE = [[5, 6, 7, 8, 9, 2], [10, 11, 2, 0, 0, 0], [12, 13, 14, 15, 2, 0]]
SOURCE = torch.tensor(SOURCE)
PROMPT = torch.tensor([[5, 6, 7, 8], [9, 10, 11, 12]])
LEARNED = {"position_embedding_type": "learned", "max_position_embeddings": 64}


def recurrent_model():
    torch.manual_seed(0)
    sizes = {"encoder_layers": 1, "decoder_layers": 2}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_ffn_dim": 16, f"{side}_attention_heads": 1}
    config = RecurrentConfig(vocab_size=40, d_model=16, **sizes)
    return RecurrentForConditionalGeneration(config).eval()


MODELS = {
    "encoder-decoder, eager": partial(tiny_model, attn_implementation="eager"),
    "encoder-decoder, sdpa": partial(tiny_model, attn_implementation="sdpa"),
    "encoder-decoder, pre-norm, learned positions": partial(
        tiny_model, normalize_before=True, **LEARNED
    ),
    "decoder-only, eager": partial(tiny_causal_lm, attn_implementation="eager"),
    "decoder-only, sdpa": partial(tiny_causal_lm, attn_implementation="sdpa"),
    "recurrent": recurrent_model,
    "long, reversible": partial(tiny_long_model, reversible=True, normalize_before=True),
}
for kind in LAYER_TYPES:
    MODELS[f"long, {kind}"] = partial(tiny_long_model, layer_types=kind)
    MODELS[f"long, {kind}, decoder-only"] = partial(tiny_long_causal_lm, layer_types=kind)
every_model = pytest.mark.parametrize("name", MODELS)


def inputs_of(model):
    return SOURCE if model.config.is_encoder_decoder else PROMPT


def search(model, **options):
    lengths = {"max_new_tokens": 6, "min_new_tokens": 6}
    options = {**lengths, "do_sample": False, "output_logits": True} | options
    return model.generate(inputs_of(model), return_dict_in_generate=True, **options)


@every_model
@pytest.mark.parametrize("beams", [1, 3])
def test_cached_search_equals_uncached_one(name, beams):
    model = MODELS[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        cached = search(model, num_beams=beams, use_cache=True)
        plain = search(model, num_beams=beams, use_cache=False)
    assert torch.equal(cached.sequences, plain.sequences)
    logits, expected = torch.stack(cached.logits), torch.stack(plain.logits)
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-4)
    assert cached.get(CACHE) is not None and plain.get(CACHE) is None


def deprecation(words):
    """Expect a warning, but in releases where `past_key_values` is the name."""
    if CACHE == "cache":
        return pytest.warns(FutureWarning, match=words)
    return nullcontext()


@every_model
def test_cached_step_takes_the_cache_by_its_old_name(name):
    model = MODELS[name]()
    ids = "decoder_input_ids" if model.config.is_encoder_decoder else "input_ids"
    source = {"input_ids": SOURCE} if model.config.is_encoder_decoder else {}
    source[ids] = inputs_of(model)[:, :3]
    caches = [model(**source, use_cache=True)[CACHE] for _ in range(2)]
    step = source | {ids: inputs_of(model)[:, 3:4]}
    expected = model(**step, cache=caches[0]).logits
    with deprecation("`past_key_values` is deprecated .* Use `cache` instead"):
        by_old_name = model(**step, past_key_values=caches[1]).logits
    assert torch.equal(by_old_name, expected)


def test_cache_that_is_filled_is_used_beside_an_old_name():
    model = tiny_causal_lm()
    caches = []
    for ids in (PROMPT, PROMPT, PROMPT.flip(1)):
        caches.append(model(ids, use_cache=True)[CACHE])
    expected = model(PROMPT[:, :1], cache=caches[0]).logits
    with deprecation("Both `past_key_values` and `cache` are set"):
        both = {"cache": caches[1], "past_key_values": caches[2]}
        assert torch.equal(model(PROMPT[:, :1], **both).logits, expected)


# --- Arguments of `forward` ---

# What `generate()` hands to `forward` by name, besides the inputs of a model: seen in its source,
# see the last test.
PASSED_BY_GENERATE = {"attention_mask", "decoder_attention_mask", "decoder_input_ids"}
PASSED_BY_GENERATE |= {"decoder_position_ids", "encoder_outputs", "input_ids"}
PASSED_BY_GENERATE |= {"inputs_embeds", "logits_to_keep", "position_ids", "use_cache"}
PASSED_BY_GENERATE |= {CACHE, "output_attentions", "output_hidden_states"}
PASSED_BY_GENERATE |= {"return_dict"}
OF_OTHER_MODELS = {"token_type_ids", "mm_token_type_ids", "moe_mm_token_type_ids"}
OF_OTHER_MODELS |= {"cache_position", "mm_encoder_outputs", "block_sequence_ids"}
OF_OTHER_MODELS |= {"cross_attn_head_mask", "head_mask", "pixel_values"}
OF_OTHER_MODELS |= {"output_router_logits"}
UNUSED = ["past", "cu_seq_lens_q", "is_causal", *sorted(OF_OTHER_MODELS)]
REFUSED = [(name, "invented") for name in MODELS]
REFUSED += [("encoder-decoder, sdpa", argument) for argument in UNUSED]


@pytest.mark.parametrize(("name", "argument"), REFUSED)
def test_forward_refuses_arguments_that_it_does_not_use(name, argument):
    model = MODELS[name]()
    ids = {"decoder_input_ids": SOURCE} if model.config.is_encoder_decoder else {}
    message = rf"forward` must get arguments that it uses, got {argument}\. Leave"
    with pytest.raises(TypeError, match=message):
        model(inputs_of(model), **ids, **{argument: torch.ones(1)})


NONE = ["position_ids", "encoder_hidden_states", "invented"]


@pytest.mark.parametrize("argument", NONE)
def test_forward_leaves_out_arguments_that_are_none(argument):
    model, ids = tiny_model(), {"input_ids": SOURCE, "decoder_input_ids": SOURCE}
    expected = model(**ids, labels=SOURCE)
    output = model(**ids, labels=SOURCE, **{argument: None})
    assert torch.equal(output.logits, expected.logits) and output.loss == expected.loss


def test_forward_of_every_part_refuses_unused_arguments():
    model, states = tiny_model(), torch.zeros(3, 6, 16)
    parts = [partial(model.model, SOURCE, decoder_input_ids=SOURCE)]
    parts.append(partial(model.model.encoder, SOURCE))
    parts.append(partial(model.model.decoder, SOURCE, encoder_hidden_states=states))
    parts.append(partial(tiny_causal_lm().model, PROMPT))
    parts.append(partial(tiny_masked_lm(), PROMPT))
    for part in parts:
        part(invented=None)
        with pytest.raises(TypeError, match="got invented, other"):
            part(invented=1, other=2)


@every_model
def test_forward_takes_each_argument_that_generate_passes(name):
    """Record what reaches `forward` under many options of `generate()`: it is known, and changes
    what it should.
    """
    model, seen = MODELS[name](), {}
    forward = type(model).forward

    def recording(*args, **kwargs):
        seen.update(kwargs)
        return forward(model, *args, **kwargs)

    model.forward = recording
    model.forward.__signature__ = inspect.signature(forward)
    short = {"max_new_tokens": 2, "min_new_tokens": 2}
    outputs = {"output_attentions": True, "output_hidden_states": True}
    for options in ({}, {"num_beams": 2}, outputs):
        search(model, **short, **options)
    search(model, **short, attention_mask=torch.ones_like(inputs_of(model)))
    if model.config.is_encoder_decoder:
        decoder = {"decoder_input_ids": torch.tensor([[1, 7], [1, 8], [1, 9]])}
        mask = torch.ones(3, 2, dtype=torch.long)
        search(model, **short, **decoder, decoder_attention_mask=mask)
    del model.forward
    assert seen.keys() <= PASSED_BY_GENERATE


def test_generate_passes_no_argument_that_this_file_does_not_know():
    prepare = inspect.getsource(GenerationMixin.prepare_inputs_for_generation)
    names = re.findall(r'^\s*model_inputs\["([^"]*)"', prepare, re.MULTILINE)
    assert {*names} <= PASSED_BY_GENERATE | OF_OTHER_MODELS


# --- Options of `generate()` ---


OF_THE_PIPELINE = {"return_scores": True, "glossary": {"a": "b"}, "mbr": "chrf"}
OF_THE_PIPELINE["invented"] = 1


def test_arguments_of_the_pipeline_alone_are_refused(tiny_model):
    for name, value in OF_THE_PIPELINE.items():
        with pytest.raises((ValueError, TypeError), match=name):
            tiny_model.generate(SOURCE, **{name: value})


CONSTRAINTS = [{"force_words_ids": [[7]]}, {"constraints": [object()]}]


@pytest.mark.parametrize("option", CONSTRAINTS, ids=["words", "objects"])
@pytest.mark.parametrize("beams", [1, 4])
def test_constraints_are_refused_in_one_line(option, beams, tiny_model):
    with pytest.raises((ValueError, OSError)) as raised:
        tiny_model.generate(SOURCE, **option, num_beams=beams)
    assert "\n" not in str(raised.value) and "constrain" in str(raised.value).lower()


@pytest.mark.parametrize("shape", [(0, 4), (2, 0)])
@pytest.mark.parametrize("model", [tiny_model, tiny_causal_lm])
def test_empty_batches_are_refused_in_one_line(model, shape):
    message = "must have at least one row of tokens, got the shape"
    with pytest.raises(ValueError, match=message):
        model().generate(torch.empty(shape, dtype=torch.long))


@pytest.mark.parametrize("shape", [(3, 2), (3, 9), (1, 6)])
def test_masks_of_another_shape_are_refused_in_one_line(shape, tiny_model):
    message = r"`attention_mask` must have the shape of `input_ids`, \(3, 6\), got \("
    mask = torch.ones(shape, dtype=torch.long)
    with pytest.raises(ValueError, match=message):
        tiny_model.generate(SOURCE, attention_mask=mask)


@pytest.mark.parametrize("token", [-1, 300])
def test_tokens_that_the_model_lacks_are_refused(token, tiny_model):
    message = f"`input_ids` must be from 0 to 299, got {token}. Does the tokenizer fit"
    with pytest.raises(ValueError, match=message):
        tiny_model.generate(torch.tensor([[5, token, 2]]))


def test_start_tokens_of_each_sentence_are_followed(tiny_model):
    starts = [1, 7, 9]
    options = {"decoder_start_token_id": starts, "max_new_tokens": 4}
    tokens = tiny_model.generate(SOURCE, **options)
    assert tokens[:, 0].tolist() == starts
    for row, start in enumerate(starts):
        source, options["decoder_start_token_id"] = SOURCE[row : row + 1], start
        (alone,) = tiny_model.generate(source, **options).tolist()
        assert tokens[row, : len(alone)].tolist() == alone
