"""Biased prefixes, the coverage penalty and groups of beams in the engine: equal to a textbook search."""

import random

import pytest

from tests.engine_cases import EOS, random_case
from tests.textbook_search import (
    Textbook,
    assert_same_hypotheses,
    coverage_bonus,
    force,
    prefer,
    search_in_groups,
)
from tests.tiny import tiny_causal_lm, tiny_long_model, tiny_model
from tests.tiny_engines import SOURCES, Recorder
from vanilla_transformer.inference.engine.engine import Engine
from vanilla_transformer.inference.engine.graphed_steps import GraphedSteps

SEEDS = [0, 4]  # the first cases of a few; there are more among the slow tests


def engine_of(case, **options):
    return Engine(case.model, slots=case.slots, compile=False, **case.options | options)


def search_with_bias(seed):
    case, draw = random_case(seed), random.Random(seed)
    bias = draw.choice([0.1, 0.5, 0.9])
    plain = [best.tokens for (best,) in engine_of(case).translate_tokens(case.sources)]
    prefixes = [[token for token in tokens[:5] if token not in (EOS, 4)] for tokens in plain]
    prefixes = [[*prefix[:-1], 7] if draw.random() < 0.5 else prefix for prefix in prefixes]
    limits = [Textbook(case.model, source, case.options).limit for source in case.sources]
    prefixes = [prefix[: limit - 1] for prefix, limit in zip(prefixes, limits, strict=True)]
    engine = engine_of(case, prefixed=True, prefix_bias=bias)
    found = engine.translate_tokens(case.sources, case.num_return_sequences, prefixes=prefixes)
    for source, prefix, ours in zip(case.sources, prefixes, found, strict=True):
        textbook = Textbook(case.model, source, case.options, prefer(prefix, bias))
        assert_same_hypotheses(ours, textbook.search(case.options["num_beams"]))


def search_with_coverage(seed):
    case, weight = random_case(seed), random.Random(seed).choice([0.05, 0.3, 2.0])
    found = engine_of(case, coverage_penalty=weight).translate_tokens(case.sources, case.num_return_sequences)
    for source, ours in zip(case.sources, found, strict=True):
        textbook = Textbook(case.model, source, case.options)
        textbook.bonus = coverage_bonus(textbook, weight)
        assert_same_hypotheses(ours, textbook.search(case.options["num_beams"]))


def search_with_groups(seed):
    case, draw = random_case(seed), random.Random(seed)
    groups, size, penalty = draw.choice([2, 3]), draw.choice([1, 2]), draw.choice([0.1, 0.7, 3.0])
    beams = groups * size
    prefixes = [[7, 9][: draw.randrange(3)] for _ in case.sources] if draw.random() < 0.5 else None
    case.options["num_beams"] = beams
    if prefixes is not None:
        limits = [Textbook(case.model, source, case.options).limit for source in case.sources]
        prefixes = [prefix[: limit - 1] for prefix, limit in zip(prefixes, limits, strict=True)]
    options = {"num_beam_groups": groups, "diversity_penalty": penalty, "prefixed": prefixes is not None}
    found = engine_of(case, **options).translate_tokens(case.sources, beams, prefixes=prefixes)
    for source, prefix, ours in zip(case.sources, prefixes or [[]] * len(found), found, strict=True):
        textbook = Textbook(case.model, source, case.options, force(prefix))
        assert_same_hypotheses(ours, search_in_groups(textbook, beams, groups, penalty))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("search", [search_with_bias, search_with_coverage, search_with_groups])
def test_engine_searches_as_a_textbook_does(search, seed):
    search(seed)


def test_engine_searches_in_captured_steps():
    options = {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.5, "coverage_penalty": 0.2}
    options |= {"prefixed": True, "prefix_bias": 0.5, "max_new_tokens": 8}
    engines = [Engine(tiny_model(vocab_size=40, decoder_layers=2), slots=2, **options) for _ in range(2)]
    engines[1].steps = GraphedSteps(engines[1].steps.step, "auto", Recorder())
    prefixes = [[7, 9], [11], [], [5, 5, 5]]
    eager, captured = (
        [[each.tokens for each in found] for found in engine.translate_tokens(SOURCES, 2, prefixes=prefixes)]
        for engine in engines
    )
    assert captured == eager


def test_engine_keeps_log_probabilities_of_the_model_beside_other_scores():
    model = tiny_model(vocab_size=40, decoder_layers=2)
    options = {"num_beams": 2, "num_beam_groups": 2, "diversity_penalty": 1.5, "max_new_tokens": 6}
    (found,) = Engine(model, compile=False, **options).translate_tokens([[5, 6, EOS]], 2)
    for each in found:
        textbook = Textbook(model, [5, 6, EOS], options)
        rows = [textbook.log_probabilities([each.tokens[:place]])[0] for place in range(len(each.tokens))]
        expected = [row[token].item() for row, token in zip(rows, each.tokens, strict=True)]
        assert each.token_log_probabilities == pytest.approx(expected, abs=1e-4)
        assert each.log_probability == pytest.approx(sum(expected), abs=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_beams": 4, "num_beam_groups": 3, "diversity_penalty": 0.5}, "that divides `num_beams`, got 3 with"),
        ({"num_beams": 4, "num_beam_groups": 0}, "that divides `num_beams`, got 0 with `num_beams=4`"),
        ({"num_beams": 4, "num_beam_groups": 2}, "need each other, got 2 and 0.0"),
        ({"num_beams": 4, "diversity_penalty": 0.5}, "need each other, got 1 and 0.5"),
        ({"num_beams": 4, "diversity_penalty": -1.0}, "`diversity_penalty` must be a number of 0 or more, got -1.0"),
        ({"coverage_penalty": -0.1}, "`coverage_penalty` must be a number of 0 or more, got -0.1"),
        ({"prefix_bias": 0.5}, "`prefix_bias` needs target prefixes"),
        ({"prefixed": True, "prefix_bias": 1.5}, "`prefix_bias` must be a number between 0 and 1, got 1.5"),
        ({"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 1.0, "constraint_tokens": 4}, "Leave out `num_"),
    ],
)
def test_engine_names_wrong_options_of_searches(options, message):
    with pytest.raises(ValueError) as error:
        Engine(tiny_model(), compile=False, max_new_tokens=8, **options)
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "model", [tiny_causal_lm(), tiny_long_model(cross_attention_type="linear_attention")], ids=["decoder", "linear"]
)
def test_engine_refuses_coverage_of_models_without_weights_of_the_source(model):
    with pytest.raises(ValueError, match="`coverage_penalty` must be 0 for this model. Alignments need .* got "):
        Engine(model, compile=False, max_new_tokens=8, coverage_penalty=0.2)
