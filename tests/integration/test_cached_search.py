"""For each model and attention, the library's own search finds the same with a cache and without
one.
"""

import inspect
import warnings
from contextlib import nullcontext

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

SOURCE = torch.tensor([[5, 6, 7, 8, 9, 2], [10, 11, 2, 0, 0, 0], [12, 13, 14, 15, 2, 0]])
PROMPT = torch.tensor([[5, 6, 7, 8], [9, 10, 11, 12]])
MODELS = {
    "encoder-decoder, eager": lambda: tiny_model(attn_implementation="eager"),
    "encoder-decoder, sdpa": lambda: tiny_model(attn_implementation="sdpa"),
    "encoder-decoder, pre-norm, learned positions": lambda: tiny_model(
        normalize_before=True, position_embedding_type="learned", max_position_embeddings=64
    ),
    "decoder-only, eager": lambda: tiny_causal_lm(attn_implementation="eager"),
    "decoder-only, sdpa": lambda: tiny_causal_lm(attn_implementation="sdpa"),
    "recurrent": lambda: recurrent_model(),
    **{
        f"long, {kind}": lambda kind=kind: tiny_long_model(layer_types=kind) for kind in LAYER_TYPES
    },
    **{
        f"long, {kind}, decoder-only": lambda kind=kind: tiny_long_causal_lm(layer_types=kind)
        for kind in LAYER_TYPES
    },
    "long, reversible": lambda: tiny_long_model(reversible=True, normalize_before=True),
}
every_model = pytest.mark.parametrize("name", MODELS)


def recurrent_model():
    torch.manual_seed(0)
    sizes = {
        "d_model": 16,
        "encoder_layers": 1,
        "decoder_layers": 2,
        "encoder_ffn_dim": 16,
        "decoder_ffn_dim": 16,
    }
    heads = {"encoder_attention_heads": 1, "decoder_attention_heads": 1}
    return RecurrentForConditionalGeneration(
        RecurrentConfig(vocab_size=40, **sizes, **heads)
    ).eval()


def inputs_of(model):
    return SOURCE if model.config.is_encoder_decoder else PROMPT


def search(model, **options):
    options = {
        "max_new_tokens": 6,
        "min_new_tokens": 6,
        "do_sample": False,
        "output_logits": True,
    } | options
    return model.generate(inputs_of(model), return_dict_in_generate=True, **options)


@every_model
@pytest.mark.parametrize("beams", [1, 3])
def test_cached_search_equals_uncached_one(name, beams):
    model = MODELS[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        cached, plain = (
            search(model, num_beams=beams, use_cache=use_cache) for use_cache in (True, False)
        )
    assert torch.equal(cached.sequences, plain.sequences)
    torch.testing.assert_close(
        torch.stack(cached.logits), torch.stack(plain.logits), atol=1e-5, rtol=1e-4
    )
    assert cached.get(CACHE) is not None and plain.get(CACHE) is None


def deprecation(words):
    """Expect a warning, but in releases where `past_key_values` is the name."""
    return pytest.warns(FutureWarning, match=words) if CACHE == "cache" else nullcontext()


@every_model
def test_cached_step_takes_the_cache_by_its_old_name_with_a_warning(name):
    model = MODELS[name]()
    ids = "decoder_input_ids" if model.config.is_encoder_decoder else "input_ids"
    source = {"input_ids": SOURCE} if model.config.is_encoder_decoder else {}
    caches = [
        model(**source, **{ids: inputs_of(model)[:, :3]}, use_cache=True)[CACHE] for _ in range(2)
    ]
    step = source | {ids: inputs_of(model)[:, 3:4]}
    expected = model(**step, cache=caches[0]).logits
    with deprecation("`past_key_values` is deprecated .* Use `cache` instead"):
        found = model(**step, past_key_values=caches[1]).logits
    assert torch.equal(found, expected)


def test_cache_that_is_filled_is_used_beside_an_old_name():
    model = tiny_causal_lm()
    caches = [model(ids, use_cache=True)[CACHE] for ids in (PROMPT, PROMPT, PROMPT.flip(1))]
    expected = model(PROMPT[:, :1], cache=caches[0]).logits
    with deprecation("Both `past_key_values` and `cache` are set"):
        assert torch.equal(
            model(PROMPT[:, :1], cache=caches[1], past_key_values=caches[2]).logits, expected
        )


# --- Arguments of `forward` ---

# What `generate()` hands to `forward` by name, besides the inputs of a model: seen in its source,
# see the last test.
PASSED_BY_GENERATE = {
    "attention_mask",
    "decoder_attention_mask",
    "decoder_input_ids",
    "decoder_position_ids",
}
PASSED_BY_GENERATE |= {
    "encoder_outputs",
    "input_ids",
    "inputs_embeds",
    "logits_to_keep",
    "position_ids",
    "use_cache",
}
PASSED_BY_GENERATE |= {CACHE, "output_attentions", "output_hidden_states", "return_dict"}
OF_OTHER_MODELS = {
    "token_type_ids",
    "mm_token_type_ids",
    "moe_mm_token_type_ids",
    "cache_position",
    "mm_encoder_outputs",
}
OF_OTHER_MODELS |= {
    "block_sequence_ids",
    "cross_attn_head_mask",
    "head_mask",
    "pixel_values",
    "output_router_logits",
}


@pytest.mark.parametrize(
    ("name", "argument"),
    [(name, "invented") for name in MODELS]
    + [
        ("encoder-decoder, sdpa", each)
        for each in ("past", "cu_seq_lens_q", "is_causal", *sorted(OF_OTHER_MODELS))
    ],
)
def test_forward_refuses_arguments_that_it_does_not_use(name, argument):
    model = MODELS[name]()
    ids = {"decoder_input_ids": SOURCE} if model.config.is_encoder_decoder else {}
    with pytest.raises(
        TypeError, match=rf"forward` must get arguments that it uses, got {argument}\. Leave"
    ):
        model(inputs_of(model), **ids, **{argument: torch.ones(1)})


@pytest.mark.parametrize("argument", ["position_ids", "encoder_hidden_states", "invented"])
def test_forward_leaves_out_arguments_that_are_none(argument):
    model, ids = tiny_model(), {"input_ids": SOURCE, "decoder_input_ids": SOURCE}
    expected = model(**ids, labels=SOURCE)
    found = model(**ids, labels=SOURCE, **{argument: None})
    assert torch.equal(found.logits, expected.logits) and found.loss == expected.loss


def test_forward_of_every_part_refuses_arguments_that_it_does_not_use():
    model, states = tiny_model(), torch.zeros(3, 6, 16)
    parts = [lambda **further: model.model(SOURCE, decoder_input_ids=SOURCE, **further)]
    parts.append(lambda **further: model.model.encoder(SOURCE, **further))
    parts.append(
        lambda **further: model.model.decoder(SOURCE, encoder_hidden_states=states, **further)
    )
    parts.append(lambda **further: tiny_causal_lm().model(PROMPT, **further))
    parts.append(lambda **further: tiny_masked_lm()(PROMPT, **further))
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
    for options in (
        {},
        {"num_beams": 2},
        {"output_attentions": True, "output_hidden_states": True},
    ):
        search(model, **short, **options)
    search(model, **short, attention_mask=torch.ones_like(inputs_of(model)))
    if model.config.is_encoder_decoder:
        decoder = {"decoder_input_ids": torch.tensor([[1, 7], [1, 8], [1, 9]])}
        search(model, **short, **decoder, decoder_attention_mask=torch.ones(3, 2, dtype=torch.long))
    del model.forward
    assert seen.keys() <= PASSED_BY_GENERATE


def test_generate_passes_no_argument_that_this_file_does_not_know():
    prepare = inspect.getsource(GenerationMixin.prepare_inputs_for_generation)
    named = {
        line.split('"')[1]
        for line in prepare.splitlines()
        if line.strip().startswith('model_inputs["')
    }
    assert named <= PASSED_BY_GENERATE | OF_OTHER_MODELS


# --- Options of `generate()` ---


def test_arguments_that_only_the_pipeline_follows_are_refused(tiny_model):
    for name, value in {
        "return_scores": True,
        "glossary": {"a": "b"},
        "mbr": "chrf",
        "invented": 1,
    }.items():
        with pytest.raises((ValueError, TypeError), match=name):
            tiny_model.generate(SOURCE, **{name: value})


@pytest.mark.parametrize(
    "option", [{"force_words_ids": [[7]]}, {"constraints": [object()]}], ids=["words", "objects"]
)
@pytest.mark.parametrize("beams", [1, 4])
def test_constraints_are_refused_in_one_line(option, beams, tiny_model):
    with pytest.raises((ValueError, OSError)) as raised:
        tiny_model.generate(SOURCE, **option, num_beams=beams)
    assert "\n" not in str(raised.value) and "constrain" in str(raised.value).lower()


@pytest.mark.parametrize("shape", [(0, 4), (2, 0)])
@pytest.mark.parametrize("model", [tiny_model, tiny_causal_lm])
def test_empty_batches_are_refused_in_one_line(model, shape):
    with pytest.raises(ValueError, match="must have at least one row of tokens, got the shape"):
        model().generate(torch.empty(shape, dtype=torch.long))


@pytest.mark.parametrize("shape", [(3, 2), (3, 9), (1, 6)])
def test_masks_of_another_shape_are_refused_in_one_line(shape, tiny_model):
    with pytest.raises(
        ValueError, match=r"`attention_mask` must have the shape of `input_ids`, \(3, 6\), got \("
    ):
        tiny_model.generate(SOURCE, attention_mask=torch.ones(shape, dtype=torch.long))


@pytest.mark.parametrize("token", [-1, 300])
def test_tokens_that_the_model_lacks_are_refused_as_by_forward(token, tiny_model):
    with pytest.raises(
        ValueError, match=f"`input_ids` must be from 0 to 299, got {token}. Does the tokenizer fit"
    ):
        tiny_model.generate(torch.tensor([[5, token, 2]]))


def test_start_tokens_of_each_sentence_are_followed(tiny_model):
    starts = [1, 7, 9]
    tokens = tiny_model.generate(SOURCE, decoder_start_token_id=starts, max_new_tokens=4)
    assert tokens[:, 0].tolist() == starts
    for row, start in enumerate(starts):
        alone = tiny_model.generate(
            SOURCE[row : row + 1], decoder_start_token_id=start, max_new_tokens=4
        )
        assert tokens[row, : alone.shape[1]].tolist() == alone[0].tolist()
