"""An engine of several models decodes as a textbook search over the mean of their probabilities
does.
"""

from functools import partial

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
    wide = {"d_model": 24, "decoder_layers": 2, "decoder_attention_heads": 4}
    models = [tiny_model(3 * seed, **sizes), tiny_model(3 * seed + 1, **sizes | wide)]
    sizes |= {"d_model": 8, "normalize_before": True}
    models.append(tiny_long_model(3 * seed + 2, **sizes))
    for model in models:
        model.lm_head.bias.data[EOS] = 2.0  # so that hypotheses end
    return models


def ensemble_of(models, weights=None, **options):
    options = {"slots": 2, "compile": False, "max_new_tokens": LIMIT} | options
    return Engine(Ensemble(models, weights), **options)


def tokens_of(hypotheses):
    return [hypothesis.tokens for hypothesis in hypotheses]


def tokens_of_rows(rows):
    return [tokens_of(hypotheses) for hypotheses in rows]


def assert_equal(translations, expected):
    for hypotheses, references in zip(translations, expected, strict=True):
        assert tokens_of(hypotheses) == [tokens for _, tokens in references]
        for hypothesis, (score, tokens) in zip(hypotheses, references, strict=True):
            assert hypothesis.score == close_to(score)
            log_probabilities = hypothesis.token_log_probabilities
            assert len(log_probabilities) == len(tokens)
            assert sum(log_probabilities) == close_to(hypothesis.log_probability)


@pytest.mark.parametrize("seed", sample(range(2), 0))
@pytest.mark.parametrize("weights", [None, [0.5, 0.2, 0.3], [7, 1, 1.5]])
def test_ensemble_is_a_textbook_beam_search(seed, weights):
    """Search over mean probabilities."""
    models = models_of_different_sizes(seed)
    engine = ensemble_of(models, weights, num_beams=3)
    search = partial(beam_search, models, weights or [1, 1, 1])
    expected = [search(source, START, EOS, LIMIT, 3) for source in SOURCES]
    assert_equal(engine.decode(SOURCES, 3), expected)


OPTIONS = [(True, "power", 1.0), (False, "wu", 0.6), (False, "power", 2.0)]


@pytest.mark.parametrize(("early_stopping", "penalty_type", "alpha"), OPTIONS)
def test_ensemble_follows_options_of_the_search(early_stopping, penalty_type, alpha):
    models = models_of_different_sizes(5)[:2]
    options = {"early_stopping": early_stopping, "length_penalty": alpha}
    options["length_penalty_type"] = penalty_type
    engine = ensemble_of(models, [0.7, 0.3], num_beams=4, **options)
    further = (alpha, penalty_type, early_stopping)
    search = partial(beam_search, models, [0.7, 0.3])
    expected = [search(source, START, EOS, LIMIT, 4, *further) for source in SOURCES]
    assert_equal(engine.decode(SOURCES, 4), expected)


def test_ensemble_searches_greedily():
    models = models_of_different_sizes(7)
    search = partial(greedy_search, models, [1, 1, 1])
    expected = [search(source, START, EOS, LIMIT) for source in SOURCES]
    assert_equal(ensemble_of(models, num_beams=1).decode(SOURCES), expected)


def test_ensemble_samples_from_mean_probabilities():
    models = [tiny_model(seed, vocab_size=12, init_std=0.6) for seed in (0, 1)]
    options = {"do_sample": True, "slots": 64, "max_new_tokens": 1}
    engine = ensemble_of(models, [0.9, 0.1], **options)
    (samples,) = engine.decode([SOURCES[0]], 4000, seed=1)
    drawn = torch.tensor([token for (token,) in tokens_of(samples)])
    counts = torch.bincount(drawn, minlength=12) / len(samples)
    expected = torch.zeros(12)
    for weight, model in zip([0.9, 0.1], models, strict=True):
        start = torch.tensor([[START]])
        logits = model(torch.tensor([SOURCES[0]]), decoder_input_ids=start).logits
        expected += weight * logits[0, -1].softmax(-1)
    assert (counts - expected).abs().max() < 0.03


def test_ensemble_of_equal_models_is_the_model():
    model = tiny_model(1, vocab_size=16, init_std=0.6)
    options = {"slots": 2, "num_beams": 3, "compile": False, "max_new_tokens": LIMIT}
    alone = Engine(model, **options).decode(SOURCES, 3)
    together = ensemble_of([model, model, model], [1, 2, 3], num_beams=3)
    assert tokens_of_rows(together.decode(SOURCES, 3)) == tokens_of_rows(alone)


def test_ensemble_needs_no_look_of_the_host():
    """Capture its steps, as a graph of a GPU would."""
    models = models_of_different_sizes(2)
    expected = []
    for hypotheses in ensemble_of(models, num_beams=3).decode(SOURCES, 3):
        pairs = [(hypothesis.score, hypothesis.tokens) for hypothesis in hypotheses]
        expected.append(pairs)
    engine, recorder = ensemble_of(models, num_beams=3), Recorder()
    engine.steps = GraphedSteps(engine.steps.step, "auto", recorder)
    engine._look_every = 8
    assert_equal(engine.decode(SOURCES, 3), expected)
    assert recorder.sizes


def test_ensemble_sets_sentences_aside():
    """Take them back later."""
    models = [tiny_model(seed, vocab_size=40, init_std=0.5) for seed in (0, 1)]
    tokens, sources = [5 + index % 30 for index in range(70)], []
    for length in (3, 70, 2, 4, 1, 60, 5):
        sources.append([*tokens[:length], EOS])
    options = {"num_beams": 2, "max_new_tokens": 20}
    together = ensemble_of(models, slots=2, **options).decode(sources)
    engine = ensemble_of(models, slots=1, **options)
    alone = [engine.decode([source])[0] for source in sources]
    assert tokens_of_rows(together) == tokens_of_rows(alone)


def test_score_tokens_of_an_ensemble_gives_its_log_probabilities():
    models, weights = models_of_different_sizes(4), [3, 1, 2]
    rows = ensemble_of(models, weights, num_beams=3).decode(SOURCES, 3)
    sources, hypotheses = [], []
    for source, row in zip(SOURCES, rows, strict=True):
        sources += [source] * len(row)
        hypotheses += row
    ensemble = Ensemble(models, weights)
    forced = score_tokens(ensemble, sources, tokens_of(hypotheses))
    for hypothesis, log_probabilities in zip(hypotheses, forced, strict=True):
        assert hypothesis.token_log_probabilities == close_to(log_probabilities)


def test_alignments_of_an_ensemble_come_from_its_first_model():
    models = models_of_different_sizes(3)[:2]
    models[0].config.alignment_heads = [[0, 1]]
    options = {"slots": 2, "compile": False, "max_new_tokens": LIMIT}
    options["return_alignments"] = True
    together = Engine(Ensemble(models, [1, 1e-9]), **options).decode(SOURCES)
    expected = Engine(models[0], **options).decode(SOURCES)
    for (ours,), (alone,) in zip(together, expected, strict=True):
        assert ours.tokens == alone.tokens
        attention = torch.tensor(ours.attention)
        torch.testing.assert_close(attention, torch.tensor(alone.attention))
