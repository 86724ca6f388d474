"""Sampling by the engine and the pipeline: exact frequencies, and samples that do not depend on the
batch.
"""

from collections import Counter
from itertools import product

import pytest
import torch

from tests.closeness import LIKELY, close_to, p_value
from tests.sweeps import rare
from tests.tiny import tiny_causal_lm, tiny_model
from tests.tiny_engines import SOURCES, engine_of, graphed
from vanilla_transformer.decoding.engine.engine import Engine
from vanilla_transformer.decoding.engine.requests import DecodeRequest, SentenceSeeds
from vanilla_transformer.decoding.forced_decoding import score_tokens
from vanilla_transformer.decoding.translation_pipeline import TranslationPipeline

EOS = 2


def sampler(slots=2, compile=False, **options):
    return engine_of(1, slots=slots, compile=compile, do_sample=True, **options)


def tokens_of(rows):
    tokens = []
    for hypotheses in rows:
        tokens.append([hypothesis.tokens for hypothesis in hypotheses])
    return tokens


FILTERS = {"plain": {}, "filtered": {"top_k": 9, "temperature": 1.3}}


@pytest.mark.parametrize("slots", [rare(1), 3, 64])
@pytest.mark.parametrize("options", FILTERS.values(), ids=FILTERS.keys())
def test_engine_samples_do_not_depend_on_the_batch(slots, options):
    expected = tokens_of(sampler(**options).decode(SOURCES, 3, seed=5))
    assert len({*map(tuple, sum(expected, []))}) == 12
    engine = sampler(slots, **options)
    assert tokens_of(engine.decode(SOURCES[::-1], 3, seed=5)) == expected[::-1]
    for source, samples in zip(SOURCES, expected, strict=True):
        assert tokens_of(engine.decode([source], 3, seed=5)) == [samples]
    first = [samples[:1] for samples in expected]
    assert tokens_of(engine.decode(SOURCES, 1, seed=5)) == first


def test_engine_gives_repeated_sentences_other_samples():
    engine = sampler()
    sources = [SOURCES[0], SOURCES[0], SOURCES[1]]
    first, second, third = tokens_of(engine.decode(sources, seed=5))
    assert first != second
    assert tokens_of(engine.decode([SOURCES[1], SOURCES[0]], seed=5)) == [third, first]
    assert tokens_of(engine.decode([SOURCES[0]], seed=6)) != [first]


def test_engine_takes_the_seed_of_each_sentence():
    engine, source = sampler(), SOURCES[0]
    requests = [DecodeRequest(source, seed=seed) for seed in (8, 9, 8)]
    samples = tokens_of(engine.decode(requests))
    assert samples[0] == samples[2] != samples[1]
    other = DecodeRequest(SOURCES[2], seed=1)
    (expected,) = tokens_of(engine.decode([other]))
    both = engine.decode([other, DecodeRequest(source, seed=9)])
    assert tokens_of(both) == [expected, samples[1]]


def test_engine_draws_a_seed_from_torch():
    engine = sampler()
    torch.manual_seed(3)
    first, second = (tokens_of(engine.decode(SOURCES)) for _ in range(2))
    torch.manual_seed(3)
    assert first == tokens_of(engine.decode(SOURCES)) != second


FURTHER_FILTERS = [{}, {"temperature": 0.8, "top_k": 3}]


@pytest.mark.parametrize("options", FURTHER_FILTERS, ids=["plain", "filtered"])
def test_engine_samples_have_the_distribution_of_the_model(options):
    model = tiny_model(3, vocab_size=6, init_std=0.7)
    engine = Engine(model, compile=False, do_sample=True, max_new_tokens=2, **options)
    source, draws = [4, 5, EOS], 4000
    (samples,) = engine.decode([source], draws, seed=0)
    pairs = product([0, 1, 3, 4, 5], range(6))
    texts = [(EOS,), *pairs]
    counts = Counter(tuple(sample.tokens) for sample in samples)
    observed = torch.tensor([counts[text] for text in texts])
    assert observed.sum() == draws
    exact = torch.stack([_probability(model, engine, source, text) for text in texts])
    assert p_value(observed, exact * draws) > LIKELY


def _probability(model, engine, source, text):
    """Return the probability of a text, by definition: the product of softmaxes of filtered
    logits.
    """
    probability = torch.tensor(1.0)
    target = [model.generation_config.decoder_start_token_id]
    for token in text:
        inputs = {"decoder_input_ids": torch.tensor([target])}
        logits = model(input_ids=torch.tensor([source]), **inputs).logits[:, -1]
        for apply_filter in engine.options.sampling.filters():
            logits = apply_filter(None, logits.detach())
        probability = probability * logits.softmax(dim=-1)[0, token].detach()
        target = [*target, token]
    return probability


def test_engine_gives_samples_their_log_probabilities():
    engine = sampler(top_k=5, temperature=0.5)
    samples = sum(engine.decode(SOURCES, seed=1), [])
    tokens = [sample.tokens for sample in samples]
    forced = score_tokens(engine.model, SOURCES, tokens)
    for sample, values in zip(samples, forced, strict=True):
        assert sample.token_log_probabilities == close_to(values)


def test_engine_samples_continuations_of_prompts():
    options = {"slots": 2, "compile": False, "do_sample": True}
    engine = Engine(tiny_causal_lm(), max_new_tokens=6, **options)
    prompts = [[7, 8], [9], [5] * 6]
    expected = tokens_of(engine.decode(prompts, 2, seed=1))
    assert tokens_of(engine.decode(prompts[:1], 2, seed=1)) == expected[:1]


def test_engine_samples_in_captured_steps():
    engine, recorder = graphed(do_sample=True, slots=3)
    expected = tokens_of(sampler().decode(SOURCES, 2, seed=5))
    assert tokens_of(engine.decode(SOURCES, 2, seed=5)) == expected
    assert recorder.sizes


@pytest.fixture(scope="module")
def translate(tiny_tokenizer):
    return TranslationPipeline(tiny_model(), tiny_tokenizer, compile=False)


SAMPLING = {"do_sample": True, "num_beams": 1, "seed": 3}


def values_of(answer):
    return answer["translation_text"], answer["log_probability"]


def texts_of(answers):
    return [answer["translation_text"] for answer in answers]


def test_pipeline_samples_do_not_depend_on_other_texts(translate):
    texts = ["A man.", "Two dogs run.", "A man."]
    samples = texts_of(translate(texts, **SAMPLING))
    assert samples[0] != samples[2]
    assert texts_of(translate(iter(texts), batch_size=1, **SAMPLING)) == samples
    assert texts_of(translate("Two dogs run.", **SAMPLING)) == samples[1:2]
    assert texts_of(translate("A man.", **SAMPLING | {"seed": 4})) != samples[:1]


def test_pipeline_repeats_no_sample_in_a_stream_of_windows(translate):
    two_windows = iter(["A man."] * 70)
    samples = texts_of(translate(two_windows, batch_size=1, **SAMPLING))
    assert samples[64] != samples[0]


def test_pipeline_samples_with_the_top_k_of_generate(translate):

    def top_k_of_engines():
        engines = translate._engines._engines.values()
        return [engine.options.sampling.top_k for engine in engines]

    translate("A man.", **SAMPLING)
    assert top_k_of_engines() == [50]
    translate("A man.", **SAMPLING, top_k=0)
    assert top_k_of_engines() == [50, 0]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"min_p": 0.1}, "With `seed`, sampling must do without `min_p`"),
        ({"num_beams": 4}, "With `seed`, sampling needs `num_beams=1`, got 4"),
        ({"do_sample": False}, "`seed` needs `do_sample=True`"),
    ],
)
def test_pipeline_names_why_it_does_not_sample(translate, options, text):
    with pytest.raises(ValueError, match=text):
        translate("A man.", **SAMPLING | options)


def test_sentence_seeds_accept_any_text_and_integer():
    seeds = set()
    for seed in (0, -1, 2**70):
        seeds |= {*map(SentenceSeeds(seed), ("", "a\ud800", "ä"))}
    assert len(seeds) == 9


CANDIDATES = {"samples": {"mbr_samples": 6, "seed": 3}, "n-best": {"num_beams": 3}}


@pytest.mark.parametrize("candidates", CANDIDATES.values(), ids=CANDIDATES.keys())
def test_pipeline_returns_a_candidate_of_minimum_bayes_risk(translate, candidates):
    texts = ["A man.", "Two dogs run.", ""]
    answers = translate(texts, mbr="chrf", return_scores=True, **candidates)
    alone = translate(texts, mbr="chrf", **candidates)
    assert texts_of(alone) == texts_of(answers)
    options = {"num_return_sequences": 3, **candidates, "return_scores": True}
    if "seed" in candidates:
        options = SAMPLING | {"num_return_sequences": 6, "return_scores": True}
        options |= {"top_k": 0, "epsilon_cutoff": 0.02}
    for answer, others in zip(answers, translate(texts, **options), strict=True):
        assert values_of(answer) in [values_of(other) for other in others]
    assert 0 <= answers[0]["score"] <= 100
