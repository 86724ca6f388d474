"""An engine of several models decodes as a textbook search over the mean of their probabilities
does.
"""

import pytest
import torch

from tests.closeness import close_to
from tests.sweeps import sample
from tests.textbook_search import beam_search, greedy_search
from tests.tiny import tiny_long_model, tiny_model
from tests.tiny_engines import Recorder
from vanilla_transformer.decoding.engine.engine import Engine
from vanilla_transformer.decoding.engine.graphed_steps import GraphedSteps
from vanilla_transformer.decoding.ensemble import Ensemble
from vanilla_transformer.decoding.forced_decoding import score_tokens

START, EOS = 1, 2
SOURCES = [[7, 8, 2], [9, 2], [5, 11, 6, 13, 2]]
LIMIT = 6


def models_of_different_sizes(seed=0):
    sizes = {"vocab_size": 16, "init_std": 0.6, "lm_head_bias": True}
    models = [
        tiny_model(3 * seed, **sizes),
        tiny_model(3 * seed + 1, d_model=24, decoder_layers=2, decoder_attention_heads=4, **sizes),
        tiny_long_model(3 * seed + 2, d_model=8, normalize_before=True, **sizes),
    ]
    for model in models:
        model.lm_head.bias.data[EOS] = 2.0  # so that hypotheses end
    return models


def ensemble_of(models, weights=None, **options):
    options = {"slots": 2, "compile": False, "max_new_tokens": LIMIT} | options
    return Engine(Ensemble(models, weights), **options)


def assert_equal(found, expected):
    for hypotheses, references in zip(found, expected, strict=True):
        assert [each.tokens for each in hypotheses] == [tokens for _, tokens in references]
        for hypothesis, (score, tokens) in zip(hypotheses, references, strict=True):
            assert hypothesis.score == close_to(score)
            assert len(hypothesis.token_log_probabilities) == len(tokens)
            assert sum(hypothesis.token_log_probabilities) == close_to(hypothesis.log_probability)


@pytest.mark.parametrize("seed", sample(range(2), 0))
@pytest.mark.parametrize("weights", [None, [0.5, 0.2, 0.3], [7, 1, 1.5]])
def test_ensemble_is_a_textbook_beam_search_over_mean_probabilities(seed, weights):
    models = models_of_different_sizes(seed)
    engine = ensemble_of(models, weights, num_beams=3)
    expected = [
        beam_search(models, weights or [1, 1, 1], each, START, EOS, LIMIT, 3) for each in SOURCES
    ]
    assert_equal(engine.decode(SOURCES, 3), expected)


@pytest.mark.parametrize(
    ("early_stopping", "penalty_type", "alpha"),
    [(True, "power", 1.0), (False, "wu", 0.6), (False, "power", 2.0)],
)
def test_ensemble_follows_options_of_the_search(early_stopping, penalty_type, alpha):
    models = models_of_different_sizes(5)[:2]
    options = {
        "early_stopping": early_stopping,
        "length_penalty_type": penalty_type,
        "length_penalty": alpha,
    }
    engine = ensemble_of(models, [0.7, 0.3], num_beams=4, **options)
    expected = [
        beam_search(
            models, [0.7, 0.3], each, START, EOS, LIMIT, 4, alpha, penalty_type, early_stopping
        )
        for each in SOURCES
    ]
    assert_equal(engine.decode(SOURCES, 4), expected)


def test_ensemble_searches_greedily():
    models = models_of_different_sizes(7)
    expected = [greedy_search(models, [1, 1, 1], each, START, EOS, LIMIT) for each in SOURCES]
    assert_equal(ensemble_of(models, num_beams=1).decode(SOURCES), expected)


def test_ensemble_samples_from_mean_probabilities():
    models = [tiny_model(seed, vocab_size=12, init_std=0.6) for seed in (0, 1)]
    engine = ensemble_of(models, [0.9, 0.1], do_sample=True, slots=64, max_new_tokens=1)
    samples = engine.decode([SOURCES[0]], 4000, seed=1)[0]
    counts = torch.bincount(torch.tensor([each.tokens[0] for each in samples]), minlength=12) / len(
        samples
    )
    expected = sum(
        weight
        * model(torch.tensor([SOURCES[0]]), decoder_input_ids=torch.tensor([[START]]))
        .logits[0, -1]
        .softmax(-1)
        for weight, model in zip([0.9, 0.1], models, strict=True)
    )
    assert (counts - expected).abs().max() < 0.03


def test_ensemble_of_equal_models_is_the_model():
    model = tiny_model(1, vocab_size=16, init_std=0.6)
    alone = Engine(model, slots=2, num_beams=3, compile=False, max_new_tokens=LIMIT).decode(
        SOURCES, 3
    )
    together = ensemble_of([model, model, model], [1, 2, 3], num_beams=3).decode(SOURCES, 3)
    assert [[each.tokens for each in row] for row in together] == [
        [each.tokens for each in row] for row in alone
    ]


def test_ensemble_needs_no_look_of_the_host_and_can_be_captured():
    models = models_of_different_sizes(2)
    expected = ensemble_of(models, num_beams=3).decode(SOURCES, 3)
    engine, recorder = ensemble_of(models, num_beams=3), Recorder()
    engine.steps = GraphedSteps(engine.steps.step, "auto", recorder)
    engine._look_every = 8
    found = engine.decode(SOURCES, 3)
    assert_equal(
        found, [[(each.score, each.tokens) for each in hypotheses] for hypotheses in expected]
    )
    assert recorder.sizes


def test_ensemble_sets_sentences_aside_and_takes_them_back():
    models = [tiny_model(seed, vocab_size=40, init_std=0.5) for seed in (0, 1)]
    sources = [[5 + i % 30 for i in range(length)] + [2] for length in (3, 70, 2, 4, 1, 60, 5)]
    together = ensemble_of(models, slots=2, num_beams=2, max_new_tokens=20).decode(sources)
    engine = ensemble_of(models, slots=1, num_beams=2, max_new_tokens=20)
    alone = [engine.decode([source])[0] for source in sources]
    assert [[each.tokens for each in row] for row in together] == [
        [each.tokens for each in row] for row in alone
    ]


def test_score_tokens_of_an_ensemble_gives_log_probabilities_of_decoding():
    models, weights = models_of_different_sizes(4), [3, 1, 2]
    found = ensemble_of(models, weights, num_beams=3).decode(SOURCES, 3)
    pairs = [(source, each) for source, row in zip(SOURCES, found, strict=True) for each in row]
    forced = score_tokens(
        Ensemble(models, weights), [each for each, _ in pairs], [each.tokens for _, each in pairs]
    )
    for (_, hypothesis), log_probabilities in zip(pairs, forced, strict=True):
        assert hypothesis.token_log_probabilities == close_to(log_probabilities)


def test_alignments_of_an_ensemble_come_from_its_first_model():
    models = models_of_different_sizes(3)[:2]
    models[0].config.alignment_heads = [[0, 1]]
    options = {"slots": 2, "compile": False, "max_new_tokens": LIMIT, "return_alignments": True}
    together = Engine(Ensemble(models, [1, 1e-9]), **options).decode(SOURCES)
    for (ours,), (alone,) in zip(
        together, Engine(models[0], **options).decode(SOURCES), strict=True
    ):
        assert ours.tokens == alone.tokens
        torch.testing.assert_close(torch.tensor(ours.attention), torch.tensor(alone.attention))
