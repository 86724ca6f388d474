"""`generate()` by the engine: the tokens of the library's own search, and which requests the engine takes."""

import copy
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.modules.module import register_module_forward_pre_hook
from transformers import LogitsProcessorList, MaxLengthCriteria
from transformers.generation import EosTokenCriteria, StoppingCriteria

from tests.generation_cases import (
    BATCHES,
    SEARCHES,
    SHAPES,
    assert_generate_gives_tokens_of_library,
    generate_by_library,
    model_of,
    sources,
)
from tests.sweeps import examples
from tests.tiny import tiny_long_model
from tests.tiny_engines import eager_steps_for_compiled_ones
from vanilla_transformer.decoding.engine.engine import Engine


@pytest.fixture
def decoded(monkeypatch):
    """Let eager steps stand for compiled ones, and record the numbers of sentences that engines decode."""
    numbers, translate = [], Engine.translate_encoded

    def recorded(engine, states, *arguments):
        numbers.append(len(states))
        return translate(engine, states, *arguments)

    monkeypatch.setattr(Engine, "translate_encoded", recorded)
    with eager_steps_for_compiled_ones():
        yield numbers


@examples(60)
@given(
    shape=st.fixed_dictionaries(SHAPES | {"source_eos": st.booleans()}),
    batch=st.fixed_dictionaries(
        BATCHES | {"sentences": st.integers(1, 12), "left": st.sampled_from([False, False, True])}
    ),
    options=st.fixed_dictionaries(
        SEARCHES,
        optional={
            "max_new_tokens": st.integers(1, 40),
            "max_new_tokens_beyond_source": st.integers(0, 9),
            "min_new_tokens": st.integers(1, 8),
            "eos_token_id": st.just([2, 4]),
            "pad_token_id": st.sampled_from([0, 3]),
        },
    ),
)
def test_generate_by_the_engine_gives_tokens_of_library(shape, batch, options):
    assert_generate_gives_tokens_of_library(shape, **batch, options=options, search=eager_steps_for_compiled_ones)


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_generate_by_the_engine_returns_several_sequences(decoded, beams, dtype):
    model, tokens = model_of(1).to(dtype), sources(5, 11)
    options = {"num_beams": beams, "num_return_sequences": min(beams, 3)}
    found = model.generate(tokens, **options)
    if dtype == torch.float32:
        assert torch.equal(found, generate_by_library(model, tokens, **options))
    assert len(found) == 5 * min(beams, 3) and decoded == [5]


@examples(60)
@given(
    shape=st.fixed_dictionaries(SHAPES),
    batch=st.fixed_dictionaries(BATCHES | {"left": st.just(False)}),
    options=st.fixed_dictionaries(
        SEARCHES | {"num_beams": st.integers(1, 4), "no_repeat_ngram_size": st.integers(1, 4)},
        optional={
            "max_new_tokens": st.integers(1, 40),
            "min_new_tokens": st.integers(1, 8),
            "eos_token_id": st.just([2, 4]),
            "decoder_start_token_id": st.sampled_from([2, 5]),
            "forced_bos_token_id": st.sampled_from([1, 5]),
        },
    ),
)
def test_generate_by_the_engine_repeats_no_ngrams_as_the_library(shape, batch, options):
    assert_generate_gives_tokens_of_library(shape, **batch, options=options, search=eager_steps_for_compiled_ones)


@pytest.mark.parametrize("beams", [1, 4])
def test_generate_takes_the_size_of_ngrams_from_the_call_and_the_model(decoded, beams):
    model, tokens = model_of(1), sources(5, 11)
    expected = generate_by_library(model, tokens, num_beams=beams, no_repeat_ngram_size=2)
    assert not torch.equal(model.generate(tokens, num_beams=beams), expected)
    assert torch.equal(model.generate(tokens, num_beams=beams, no_repeat_ngram_size=2), expected)
    model.generation_config.no_repeat_ngram_size = 2
    assert torch.equal(model.generate(tokens, num_beams=beams), expected)
    assert decoded == [5, 5, 5]


@pytest.mark.parametrize("layer_types", ["linear_attention", "lsh_attention", "full_attention"])
@pytest.mark.parametrize("beams", [1, 4])
def test_generate_of_long_models_by_the_engine_gives_tokens_of_library(decoded, layer_types, beams):
    model = tiny_long_model(layer_types=layer_types, vocab_size=40, decoder_layers=2)
    tokens, options = sources(5, 11), {"num_beams": beams, "num_return_sequences": min(beams, 3)}
    assert torch.equal(model.generate(tokens, **options), generate_by_library(model, tokens, **options))
    assert decoded == [5]


def test_generate_of_long_models_leaves_other_requests_to_the_library(decoded):
    model, tokens = tiny_long_model(vocab_size=40), sources(5, 11)
    late = sources(5, 11, left=True)
    assert torch.equal(model.generate(late), generate_by_library(model, late))
    cache = model.get_decoder().create_cache()
    assert torch.equal(model.generate(tokens, cache=cache), generate_by_library(model, tokens))
    assert decoded == [] and cache.get_seq_length() > 0


def test_generate_leaves_limits_beyond_learned_positions_to_the_library(decoded):
    model = model_of(1, position_embedding_type="learned", max_position_embeddings=12, lm_head_bias=True)
    model.lm_head.bias.data[2] = -100.0
    for generate in (model.generate, partial(generate_by_library, model)):
        with pytest.raises(ValueError, match="longer than `max_position_embeddings`"):
            generate(sources(3, 7), max_new_tokens=30)
    assert decoded == []


class Never(StoppingCriteria):
    def __call__(self, input_ids, scores, **kwargs):
        return torch.zeros(len(input_ids), dtype=torch.bool)


@pytest.mark.parametrize(
    "options",
    [
        {"do_sample": True},
        {"repetition_penalty": 1.3},
        {"decoder_input_ids": torch.full((3, 2), 5)},
        {"stopping_criteria": [Never()]},
        {"logits_processor": LogitsProcessorList([lambda ids, scores: scores])},
        {"return_dict_in_generate": True},
    ],
    ids=lambda options: ", ".join(options),
)
def test_generate_leaves_other_requests_to_the_library(decoded, options):
    model, tokens = model_of(1), sources(3, 7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        found = model.generate(tokens, **options)
        torch.manual_seed(0)
        expected = generate_by_library(model, tokens, **options)
    assert torch.equal(getattr(found, "sequences", found), getattr(expected, "sequences", expected))
    assert decoded == []


@pytest.mark.parametrize("beams", [1, 3])
def test_generate_by_the_engine_obeys_passed_criteria(decoded, beams):
    model, tokens = model_of(1), sources(3, 7)
    (first,) = {int(row[1]) for row in model.generate(tokens[:1], num_beams=beams)}
    for criterion in (EosTokenCriteria(torch.tensor([first])), MaxLengthCriteria(4)):
        options = {"stopping_criteria": [criterion], "num_beams": beams}
        assert torch.equal(model.generate(tokens, **options), generate_by_library(model, tokens, **options))


def test_generate_leaves_masks_of_other_values_to_the_library(decoded):
    model, tokens = model_of(1), sources(3, 7)
    mask = tokens.ne(0).long() * 2
    assert torch.equal(
        model.generate(tokens, attention_mask=mask), generate_by_library(model, tokens, attention_mask=mask)
    )
    assert decoded == []


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_generate_takes_masks_of_other_types(decoded, dtype):
    model, tokens = model_of(1), sources(3, 7)
    assert torch.equal(model.generate(tokens, attention_mask=tokens.ne(0).to(dtype)), model.generate(tokens))
    assert decoded == [3, 3]


def test_generate_leaves_masks_of_more_dimensions_to_the_library(decoded):
    with pytest.raises(ValueError, match="`attention_mask` passed to `generate` must be 2D"):
        model_of().generate(sources(2, 5), attention_mask=torch.ones(2, 1, 1, 5))
    assert decoded == []


def test_generate_leaves_sources_that_begin_late_to_the_library(decoded):
    model, tokens = model_of(1), torch.tensor([[0, 0, 7, 2], [9, 7, 8, 2]])
    assert torch.equal(model.generate(tokens), generate_by_library(model, tokens))
    assert decoded == []


MODULES = ["", "model", "lm_head", "model.decoder.embed_positions", "model.decoder.layers.0.self_attn.k_proj"]
MODULES += ["model.decoder.layers.0.activation_fn"]


@pytest.mark.parametrize("name", MODULES)
def test_generate_fires_hooks_at_each_step(name):
    model, calls = model_of(), []
    hook = model.get_submodule(name).register_forward_pre_hook(lambda *_: calls.append(1))
    found = model.generate(sources(2, 5), max_new_tokens=4, min_new_tokens=4, num_beams=1)
    hook.remove()
    assert len(calls) % 4 == 0 and len(calls) >= 4 and found.shape[1] == 5


@pytest.mark.parametrize("name", ["model.encoder", "model.encoder.layers.0.fc1", "model.encoder.embed_tokens"])
def test_generate_fires_hooks_of_the_encoder_once(decoded, name):
    model, tokens, calls = model_of(), sources(2, 5), []
    expected = model.generate(tokens)
    hook = model.get_submodule(name).register_forward_pre_hook(lambda *_: calls.append(1))
    assert torch.equal(model.generate(tokens), expected)
    hook.remove()
    assert calls == [1] and decoded == [2, 2]


def test_generate_takes_given_outputs_of_the_encoder(decoded):
    model, tokens = model_of(1), sources(3, 7)
    mask = tokens.ne(0).long()
    other = model.get_encoder()(tokens.flip(0), mask.flip(0))
    found = model.generate(tokens, attention_mask=mask.flip(0), encoder_outputs=other)
    assert torch.equal(found, model.generate(tokens.flip(0))) and decoded == [3, 3]


def test_generate_fires_global_hooks_at_each_step():
    model, calls = model_of(), []
    hook = register_module_forward_pre_hook(lambda module, _: calls.append(module is model))
    try:
        model.generate(sources(2, 5), max_new_tokens=4, min_new_tokens=4, num_beams=1)
    finally:
        hook.remove()
    assert sum(calls) == 4


def test_generate_in_threads_gives_tokens_of_one_thread():
    model = model_of()
    requests = [(sources(8, 9), {"num_beams": 4}), (sources(2, 5), {}), (sources(16, 7), {"output_scores": True})]
    requests += [(sources(9, 8), {"length_penalty": 2.0, "num_beams": 3}), (sources(1, 3), {"num_beams": 2})]

    def generate(request):
        return model.generate(request[0], max_new_tokens=12, **request[1]).tolist()

    expected = [generate(request) for request in requests]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(generate, requests * 6)) == expected * 6


def test_generate_leaves_models_in_training_or_with_hooks_to_library(decoded):
    model = model_of()
    model.train().generate(sources(2, 5), max_new_tokens=3)
    model.eval().forward = model.forward
    model.generate(sources(2, 5), max_new_tokens=3)
    del model.forward
    hook = model.model.decoder.layers[0].register_forward_hook(lambda *_: None)
    model.generate(sources(2, 5), max_new_tokens=3)
    hook.remove()
    model.generate(sources(2, 5), max_new_tokens=3, output_hidden_states=True, return_dict_in_generate=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model.generate(sources(2, 5), max_new_tokens=3)
    assert decoded == []
    model.generate(sources(2, 5), max_new_tokens=3)  # the library has left its recording hooks
    assert decoded == [2]


def test_generate_by_the_engine_follows_weights_that_change(decoded):
    model, other, tokens = model_of(1), model_of(2), sources(3, 7)
    before = model.generate(tokens)
    model.load_state_dict(other.state_dict())
    assert torch.equal(model.generate(tokens), other.generate(tokens)) and len(decoded) == 3
    assert not torch.equal(before, model.generate(tokens))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_of_a_model_have_separate_engines(decoded, duplicate):
    model, tokens = model_of(1), sources(3, 7)
    expected = model.generate(tokens)
    same = duplicate(model)
    with torch.no_grad():
        same.lm_head.weight.neg_()
    assert torch.equal(same.generate(tokens), generate_by_library(same, tokens))
    assert torch.equal(model.generate(tokens), expected)
