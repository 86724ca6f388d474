"""Sampling by the engine and the pipeline: exact frequencies, and samples that do not depend on the
batch.
"""

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


def tokens_of(found):
    return [[each.tokens for each in hypotheses] for hypotheses in found]


@pytest.mark.parametrize("slots", [rare(1), 3, 64])
@pytest.mark.parametrize(
    "options", [{}, {"top_k": 9, "temperature": 1.3}], ids=["plain", "filtered"]
)
def test_engine_samples_do_not_depend_on_the_batch(slots, options):
    expected = tokens_of(sampler(**options).decode(SOURCES, 3, seed=5))
    assert len({tuple(sample) for samples in expected for sample in samples}) == 12
    engine = sampler(slots, **options)
    assert tokens_of(engine.decode(SOURCES[::-1], 3, seed=5)) == expected[::-1]
    alone = [engine.decode([source], 3, seed=5) for source in SOURCES]
    assert [samples for (samples,) in map(tokens_of, alone)] == expected
    assert tokens_of(engine.decode(SOURCES, 1, seed=5)) == [samples[:1] for samples in expected]


def test_engine_gives_repeated_sentences_other_samples():
    engine = sampler()
    first, second, third = tokens_of(engine.decode([SOURCES[0]] * 2 + [SOURCES[1]], seed=5))
    assert first != second
    assert tokens_of(engine.decode([SOURCES[1], SOURCES[0]], seed=5)) == [third, first]
    assert tokens_of(engine.decode([SOURCES[0]], seed=6)) != [first]


def test_engine_takes_the_seed_of_each_sentence():
    engine, source = sampler(), SOURCES[0]
    samples = tokens_of(engine.decode([DecodeRequest(source, seed=seed) for seed in (8, 9, 8)]))
    assert samples[0] == samples[2] != samples[1]
    other = DecodeRequest(SOURCES[2], seed=1)
    assert tokens_of(engine.decode([other, DecodeRequest(source, seed=9)])) == [
        *tokens_of(engine.decode([other])),
        samples[1],
    ]


def test_engine_draws_a_seed_from_torch():
    engine = sampler()
    torch.manual_seed(3)
    first, second = (tokens_of(engine.decode(SOURCES)) for _ in range(2))
    torch.manual_seed(3)
    assert first == tokens_of(engine.decode(SOURCES)) != second


@pytest.mark.parametrize(
    "options", [{}, {"temperature": 0.8, "top_k": 3}], ids=["plain", "filtered"]
)
def test_engine_samples_have_the_distribution_of_the_model(options):
    model = tiny_model(3, vocab_size=6, init_std=0.7)
    engine = Engine(model, compile=False, do_sample=True, max_new_tokens=2, **options)
    source, draws = [4, 5, EOS], 4000
    (samples,) = engine.decode([source], draws, seed=0)
    texts = [[EOS], *(list(pair) for pair in product([0, 1, 3, 4, 5], range(6)))]
    observed = torch.tensor([sum(each.tokens == text for each in samples) for text in texts])
    assert observed.sum() == draws
    exact = torch.stack([_probability(model, engine, source, text) for text in texts])
    assert p_value(observed, exact * draws) > LIKELY


def _probability(model, engine, source, text):
    """Return the probability of a text, by definition: the product of softmaxes of filtered
    logits.
    """
    probability, target = torch.tensor(1.0), [model.generation_config.decoder_start_token_id]
    for token in text:
        logits = model(
            input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([target])
        ).logits[:, -1]
        for each in engine.options.sampling.filters():
            logits = each(None, logits.detach())
        probability = probability * logits.softmax(dim=-1)[0, token].detach()
        target = [*target, token]
    return probability


def test_engine_gives_samples_their_log_probabilities():
    engine = sampler(top_k=5, temperature=0.5)
    found = [samples[0] for samples in engine.decode(SOURCES, seed=1)]
    forced = score_tokens(engine.model, SOURCES, [each.tokens for each in found])
    for each, values in zip(found, forced, strict=True):
        assert each.token_log_probabilities == close_to(values)


def test_engine_samples_continuations_of_prompts():
    engine = Engine(tiny_causal_lm(), slots=2, compile=False, do_sample=True, max_new_tokens=6)
    prompts = [[7, 8], [9], [5] * 6]
    expected = tokens_of(engine.decode(prompts, 2, seed=1))
    assert tokens_of(engine.decode(prompts[:1], 2, seed=1)) == expected[:1]


def test_engine_samples_in_captured_steps():
    engine, recorder = graphed(do_sample=True, slots=3)
    assert tokens_of(engine.decode(SOURCES, 2, seed=5)) == tokens_of(
        sampler().decode(SOURCES, 2, seed=5)
    )
    assert recorder.sizes


@pytest.fixture(scope="module")
def translate(tiny_tokenizer):
    return TranslationPipeline(tiny_model(), tiny_tokenizer, compile=False)


SAMPLING = {"do_sample": True, "num_beams": 1, "seed": 3}


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
    samples = texts_of(translate(iter(["A man."] * 70), batch_size=1, **SAMPLING))  # two windows
    assert samples[64] != samples[0]


def test_pipeline_samples_with_the_top_k_of_generate(translate):
    translate("A man.", **SAMPLING)
    found = [engine.options.sampling.top_k for engine in translate._engines._engines.values()]
    assert found == [50]
    translate("A man.", **SAMPLING, top_k=0)
    assert [engine.options.sampling.top_k for engine in translate._engines._engines.values()] == [
        50,
        0,
    ]


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
    seeds = {SentenceSeeds(seed)(text) for seed in (0, -1, 2**70) for text in ("", "a\ud800", "ä")}
    assert len(seeds) == 9


@pytest.mark.parametrize(
    "candidates", [{"mbr_samples": 6, "seed": 3}, {"num_beams": 3}], ids=["samples", "n-best"]
)
def test_pipeline_returns_a_candidate_of_minimum_bayes_risk(translate, candidates):
    texts = ["A man.", "Two dogs run.", ""]
    answers = translate(texts, mbr="chrf", return_scores=True, **candidates)
    assert translate(texts, mbr="chrf", **candidates) == [
        {"translation_text": text} for text in texts_of(answers)
    ]
    options = {"num_return_sequences": 3, **candidates, "return_scores": True}
    if "seed" in candidates:
        options = SAMPLING | {
            "num_return_sequences": 6,
            "top_k": 0,
            "epsilon_cutoff": 0.02,
            "return_scores": True,
        }
    for answer, found in zip(answers, translate(texts, **options), strict=True):
        pairs = [(each["translation_text"], each["log_probability"]) for each in found]
        assert (answer["translation_text"], answer["log_probability"]) in pairs
    assert 0 <= answers[0]["score"] <= 100
