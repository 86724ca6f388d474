"""The fast search of `generate()`: the tokens of the library, or the library's own search."""

import functools
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.modules.module import register_module_forward_pre_hook
from transformers import (
    DynamicCache,
    EncoderDecoderCache,
    LogitsProcessorList,
    MaxLengthCriteria,
    StoppingCriteriaList,
)
from transformers.generation import LogitsProcessor, StoppingCriteria

from tests.generation_cases import (
    BATCHES,
    SEARCHES,
    SHAPES,
    assert_generate_gives_tokens_of_library,
    generate_by_library,
    model_of,
    sources,
)
from vanilla_transformer.inference.search import beam_search, fast_search
from vanilla_transformer.inference.search.decode_step import IncrementalDecoder
from vanilla_transformer.inference.search.top_k import argmax, top_continuations
from vanilla_transformer.inference.weight_packing import PackedLinear


class Counting:
    """Count the requests that the fast search takes."""

    taken = 0

    def search(self, *args, **kwargs):
        self.taken += 1
        return beam_search.search(*args, **kwargs)


@pytest.fixture
def counting(monkeypatch):
    counter = Counting()
    # The library looks at the names of the arguments of a `custom_generate`.
    counted = functools.wraps(beam_search.search)(lambda *args, **kwargs: counter.search(*args, **kwargs))
    monkeypatch.setattr(fast_search, "search", counted)
    return counter


@settings(max_examples=60, deadline=None)
@given(
    shape=st.fixed_dictionaries(SHAPES),
    batch=st.fixed_dictionaries(BATCHES),
    options=st.fixed_dictionaries(
        SEARCHES,
        optional={
            "max_new_tokens": st.integers(1, 40),
            "min_new_tokens": st.integers(1, 8),
            "no_repeat_ngram_size": st.integers(1, 3),
            "repetition_penalty": st.sampled_from([0.8, 1.3]),
            "suppress_tokens": st.just([5, 6]),
            "bad_words_ids": st.just([[7], [8, 9]]),
            "forced_bos_token_id": st.just(11),
            "forced_eos_token_id": st.just(2),
            "eos_token_id": st.just([2, 4]),
        },
    ),
)
def test_fast_search_gives_tokens_of_library(shape, batch, options):
    assert_generate_gives_tokens_of_library(shape, **batch, options=options)


def test_fast_search_returns_prompt_without_possible_continuation():
    tokens = sources(2, 5)
    everything = {"suppress_tokens": list(range(40))}
    assert model_of().generate(tokens, num_beams=2, max_new_tokens=5, **everything).tolist() == [[1], [1]]


@settings(max_examples=100, deadline=None)
@given(vocab_size=st.integers(8, 200), beams=st.integers(1, 4), seed=st.integers(0, 1000), suppressed=st.booleans())
def test_top_continuations_match_topk_for_every_vocabulary_size(vocab_size, beams, seed, suppressed):
    torch.manual_seed(seed)
    scores, running = torch.randn(3, beams, vocab_size), torch.randn(3, beams)
    if suppressed:
        scores[:, :, vocab_size // 2 :] = -torch.inf
    found, parents, tokens = top_continuations(scores, running, count=4)
    expected, places = (scores + running[:, :, None]).flatten(1).topk(4)
    assert torch.equal(found, expected)
    assert torch.equal(parents * vocab_size + tokens, places)
    assert torch.equal(argmax(scores[:, 0]), scores[:, 0].argmax(dim=-1))


@pytest.mark.parametrize("beams", [1, 4])
def test_fast_search_continues_prompts_and_returns_several_sequences(beams, counting):
    model = model_of(1)
    tokens, prompt = sources(5, 11), torch.randint(3, 40, (5, 4))
    options = {"decoder_input_ids": prompt, "num_beams": beams, "num_return_sequences": min(beams, 3)}
    assert torch.equal(model.generate(tokens, **options), generate_by_library(model, tokens, **options))
    assert counting.taken == 1


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fast_search_runs_every_attention_and_dtype(attention, beams, dtype, counting):
    model = model_of(2, attn_implementation=attention).to(dtype)
    tokens = sources(6, 12)
    found = model.generate(tokens, num_beams=beams)
    assert counting.taken == 1
    if dtype is torch.float32:
        assert torch.equal(found, generate_by_library(model, tokens, num_beams=beams))


def test_fast_search_removes_finished_sentences_from_batch(monkeypatch):
    model, sizes = model_of(3, vocab_size=13), []
    run = IncrementalDecoder._run

    def recorded(self, tokens, positions, mask):
        sizes.append(len(tokens))
        return run(self, tokens, positions, mask)

    monkeypatch.setattr(IncrementalDecoder, "_run", recorded)
    model.generate(sources(9, 30, 13), num_beams=2, max_new_tokens_beyond_source=2)
    assert sizes[0] == 9 and sizes == sorted(sizes, reverse=True) and len(set(sizes)) > 2


def test_incremental_decoder_keeps_source_keys_once_for_all_beams(monkeypatch):
    decoders = []
    start = IncrementalDecoder.start

    def recorded(self, prompt):
        decoders.append(self)
        return start(self, prompt)

    monkeypatch.setattr(IncrementalDecoder, "start", recorded)
    monkeypatch.setattr(beam_search, "_worth_leaving", lambda done: False)
    model_of().generate(sources(5, 7), num_beams=4, max_new_tokens=6, min_new_tokens=6)
    (decoder,) = decoders
    layer = decoder._layers[0]
    assert layer._source_keys.shape == (5, 2, 7, 8)
    # The start symbol is common to all beams; each of the five steps after it adds a key for each of four.
    assert layer._length == 1 + 5 * 4


class Halving(LogitsProcessor):
    def __call__(self, input_ids, scores):
        return scores / 2


class AfterFour(StoppingCriteria):
    def __call__(self, input_ids, scores, **kwargs):
        return torch.full((len(input_ids),), input_ids.shape[1] >= 4)


@pytest.mark.parametrize(
    "options",
    [
        {"do_sample": True, "num_beams": 1, "top_k": 1},
        {"return_dict_in_generate": True, "num_beams": 2},
        {"output_scores": True, "return_dict_in_generate": True, "num_beams": 1},
        {"use_cache": False, "num_beams": 2},
        {"cache_implementation": "static", "num_beams": 1},
        {"past_key_values": EncoderDecoderCache(DynamicCache(), DynamicCache()), "num_beams": 1},
        {"logits_processor": LogitsProcessorList([Halving()]), "num_beams": 2},
        {"stopping_criteria": StoppingCriteriaList([AfterFour()]), "num_beams": 2},
        {"prefix_allowed_tokens_fn": lambda batch, ids: [2, 5, 6], "num_beams": 2},
        {"encoder_no_repeat_ngram_size": 2, "num_beams": 2},
        {"prompt_lookup_num_tokens": 2, "num_beams": 1},
        {"renormalize_logits": True, "num_beams": 2},
        {"decoder_attention_mask": torch.ones(1, 1, dtype=torch.long), "num_beams": 1},
        {"synced_gpus": True, "num_beams": 1},
    ],
    ids=lambda options: next(iter(options)),
)
def test_fast_search_leaves_other_requests_to_library(options, counting, monkeypatch):
    monkeypatch.setattr(
        torch.distributed, "all_reduce", lambda *args, **kwargs: None
    )  # of one process, for synced_gpus
    model = model_of(4)
    found = model.generate(sources(1, 6), max_new_tokens=8, **options)
    assert counting.taken == 0 and len(found) > 0


def test_fast_search_leaves_models_in_training_or_with_hooks_to_library(counting):
    model = model_of()
    model.train().generate(sources(2, 5), max_new_tokens=3)
    model.eval().forward = model.forward
    model.generate(sources(2, 5), max_new_tokens=3)
    del model.forward
    hook = model.model.decoder.layers[0].register_forward_hook(lambda *_: None)
    model.generate(sources(2, 5), max_new_tokens=3)
    assert counting.taken == 0
    hook.remove()
    model.generate(sources(2, 5), max_new_tokens=3, output_hidden_states=True, return_dict_in_generate=True)
    assert counting.taken == 0
    model.generate(sources(2, 5), max_new_tokens=3)  # the library has left its recording hooks
    assert counting.taken == 1


MODULES = ["", "model", "model.decoder", "lm_head", "model.decoder.embed_tokens", "model.decoder.embed_positions"]
MODULES += ["model.decoder.dropout", "model.decoder.layers.0.fc1", "model.decoder.layers.0.self_attn_layer_norm"]
MODULES += ["model.decoder.layers.0.self_attn.k_proj", "model.decoder.layers.0.encoder_attn.q_proj"]
MODULES += ["model.decoder.layers.0.activation_fn", "model.decoder.layers.0.dropout"]


@pytest.mark.parametrize("name", MODULES)
def test_generate_fires_hooks_at_each_step(name):
    model, calls = model_of(), []
    hook = model.get_submodule(name).register_forward_pre_hook(lambda *_: calls.append(1))
    found = model.generate(sources(2, 5), max_new_tokens=4, min_new_tokens=4, num_beams=1)
    hook.remove()
    assert len(calls) % 4 == 0 and len(calls) >= 4 and found.shape[1] == 5


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
    assert not any(isinstance(module, PackedLinear) for module in model.modules())


def test_fast_search_obeys_passed_max_length_criterion(counting):
    model = model_of(5)
    found = model.generate(sources(3, 6), num_beams=2, stopping_criteria=StoppingCriteriaList([MaxLengthCriteria(5)]))
    assert counting.taken == 1 and found.shape[1] <= 5
