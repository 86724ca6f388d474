"""The fast searches behind `generate()`: the library's own tokens, for every request, or the library's own search."""

import warnings
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    DynamicCache,
    EncoderDecoderCache,
    LogitsProcessorList,
    MaxLengthCriteria,
    StoppingCriteriaList,
)
from transformers.generation import LogitsProcessor, StoppingCriteria

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer import generation_vanilla_transformer as generation
from vanilla_transformer import search_vanilla_transformer as search

SIZES = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2}
SIZES |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}


def model_of(seed=0, **changes):
    torch.manual_seed(seed)
    config = VanillaTransformerConfig(**{"vocab_size": 40, "init_std": 0.3} | SIZES | changes)
    return VanillaTransformerForConditionalGeneration(config).eval()


def sources(sentences, length, vocab_size=40, left=False):
    """Random sentences of many lengths, padded to `length`."""
    tokens = torch.randint(3, vocab_size, (sentences, length))
    for row in tokens:
        padding = int(torch.randint(0, length, ()))
        row[:padding] = 0
    return tokens if left else tokens.flip(1)


def plainly(model, *args, **options):
    """What the library's own search gives."""
    with mock.patch.object(generation, "can_search", return_value=False):
        return model.generate(*args, **options)


class Counting:
    """Counts the requests that the searches here take."""

    def __init__(self, monkeypatch):
        self.taken = 0
        for name in ("greedy_search", "beam_search"):
            monkeypatch.setattr(generation, name, self._counted(getattr(search, name)))

    def _counted(self, function):
        def counted(*args, **kwargs):
            self.taken += 1
            return function(*args, **kwargs)

        return counted


@pytest.fixture
def counting(monkeypatch):
    return Counting(monkeypatch)


@settings(max_examples=60, deadline=None)
@given(
    shape=st.fixed_dictionaries(
        {
            "seed": st.integers(0, 10_000),
            "vocab_size": st.sampled_from([13, 40, 300]),
            "init_std": st.sampled_from([0.1, 0.3, 0.6]),
            "normalize_before": st.booleans(),
            "position_embedding_type": st.sampled_from(["sinusoidal", "learned"]),
        }
    ),
    sentences=st.integers(1, 9),
    length=st.integers(1, 30),
    left=st.booleans(),
    taste_for_eos=st.sampled_from([0.0, 2.0, 4.0]),
    options=st.fixed_dictionaries(
        {
            "num_beams": st.integers(1, 6),
            "early_stopping": st.sampled_from([True, False, "never"]),
            "length_penalty": st.sampled_from([-0.5, 0.0, 0.6, 1.0, 2.0]),
            "length_penalty_type": st.sampled_from(["wu", "power"]),
        },
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
def test_tokens_are_those_of_the_library(shape, sentences, length, left, taste_for_eos, options):
    model = model_of(**shape, lm_head_bias=True)
    with torch.no_grad():
        model.lm_head.bias[2] = taste_for_eos
    tokens = sources(sentences, length, shape["vocab_size"], left)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = plainly(model, tokens, **options)
        assert torch.equal(model.generate(tokens, **options), expected)


@settings(max_examples=100, deadline=None)
@given(vocab_size=st.integers(8, 200), beams=st.integers(1, 4), seed=st.integers(0, 1000), suppressed=st.booleans())
def test_the_best_are_found_in_blocks_of_every_vocabulary(vocab_size, beams, seed, suppressed):
    torch.manual_seed(seed)
    scores, running = torch.randn(3, beams, vocab_size), torch.randn(3, beams)
    if suppressed:
        scores[:, :, vocab_size // 2 :] = -torch.inf
    found, parents, tokens = search._best_continuations(scores, running, count=4)
    expected, places = (scores + running[:, :, None]).flatten(1).topk(4)
    assert torch.equal(found, expected)
    assert torch.equal(parents * vocab_size + tokens, places)
    assert torch.equal(search._argmax(scores[:, 0]), scores[:, 0].argmax(dim=-1))


@pytest.mark.parametrize("beams", [1, 4])
def test_a_prompt_and_several_answers_are_the_librarys(beams, counting):
    model = model_of(1)
    tokens, prompt = sources(5, 11), torch.randint(3, 40, (5, 4))
    options = {"decoder_input_ids": prompt, "num_beams": beams, "num_return_sequences": min(beams, 3)}
    assert torch.equal(model.generate(tokens, **options), plainly(model, tokens, **options))
    assert counting.taken == 1


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_each_attention_and_type_of_number_is_searched(attention, beams, dtype, counting):
    model = model_of(2, attn_implementation=attention).to(dtype)
    tokens = sources(6, 12)
    found = model.generate(tokens, num_beams=beams)
    assert counting.taken == 1
    if dtype is torch.float32:
        assert torch.equal(found, plainly(model, tokens, num_beams=beams))


def test_a_sentence_leaves_the_batch_when_it_has_ended(monkeypatch):
    model, sizes = model_of(3, vocab_size=13), []
    step = search._Decoder._step

    def recorded(self, tokens, mask):
        sizes.append(len(tokens))
        return step(self, tokens, mask)

    monkeypatch.setattr(search._Decoder, "_step", recorded)
    model.generate(sources(9, 30, 13), num_beams=2, max_new_tokens_beyond_source=2)
    assert sizes[0] == 9 and sizes == sorted(sizes, reverse=True) and len(set(sizes)) > 2


def test_keys_and_values_of_the_source_are_there_once_for_all_beams(monkeypatch):
    caches = []
    start = search._Decoder.start

    def recorded(self, prompt):
        caches.append(self._cache)
        return start(self, prompt)

    monkeypatch.setattr(search._Decoder, "start", recorded)
    monkeypatch.setattr(search, "_worth_leaving", lambda done: False)
    model_of().generate(sources(5, 7), num_beams=4, max_new_tokens=6, min_new_tokens=6)
    (cache,) = caches
    assert cache.cross_attention_cache.layers[0].keys.shape == (5, 2, 7, 8)
    # The start symbol is common to all beams; each of the five steps after it adds a key for each of four.
    assert cache.self_attention_cache.layers[0].keys.shape == (5, 2, 1 + 5 * 4, 8)


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
def test_every_other_request_goes_to_the_library(options, counting, monkeypatch):
    monkeypatch.setattr(
        torch.distributed, "all_reduce", lambda *args, **kwargs: None
    )  # of one process, for synced_gpus
    model = model_of(4)
    found = model.generate(sources(1, 6), max_new_tokens=8, **options)
    assert counting.taken == 0 and len(found) > 0


def test_a_model_in_training_and_one_with_hooks_go_to_the_library(counting):
    model = model_of()
    model.train().generate(sources(2, 5), max_new_tokens=3)
    model.eval().forward = model.forward
    model.generate(sources(2, 5), max_new_tokens=3)
    assert counting.taken == 0


def test_a_criterion_of_the_librarys_that_is_passed_again_is_honoured(counting):
    model = model_of(5)
    found = model.generate(sources(3, 6), num_beams=2, stopping_criteria=StoppingCriteriaList([MaxLengthCriteria(5)]))
    assert counting.taken == 1 and found.shape[1] <= 5
