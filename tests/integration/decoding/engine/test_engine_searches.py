"""Biased prefixes, the coverage penalty and groups of beams in the engine: equal to a textbook search."""

import pytest

from tests.engine_cases import EOS
from tests.rounding import close_to
from tests.search_cases import SEARCHES
from tests.sweeps import rare
from tests.textbook_search import Textbook
from tests.tiny import tiny_causal_lm, tiny_long_model, tiny_model
from tests.tiny_engines import assert_captured_steps_agree
from vanilla_transformer.decoding.engine.engine import Engine

SEEDS = [rare(0), rare(1), 4]  # there are more among the slow tests


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("search", SEARCHES)
def test_engine_searches_as_a_textbook_does(search, seed):
    search(seed)


def test_engine_searches_in_captured_steps():
    options = {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.5, "coverage_penalty": 0.2}
    options |= {"prefixed": True, "prefix_bias": 0.5, "max_new_tokens": 8}
    engines = [Engine(tiny_model(vocab_size=40, decoder_layers=2), slots=2, **options) for _ in range(2)]
    assert_captured_steps_agree(engines, 2, prefixes=[[7, 9], [11], [], [5, 5, 5]])


def test_engine_keeps_log_probabilities_of_the_model_beside_other_scores():
    model = tiny_model(vocab_size=40, decoder_layers=2)
    options = {"num_beams": 2, "num_beam_groups": 2, "diversity_penalty": 1.5, "max_new_tokens": 6}
    (found,) = Engine(model, compile=False, **options).translate_tokens([[5, 6, EOS]], 2)
    for each in found:
        textbook = Textbook(model, [5, 6, EOS], options)
        rows = [textbook.log_probabilities([each.tokens[:place]])[0] for place in range(len(each.tokens))]
        expected = [row[token].item() for row, token in zip(rows, each.tokens, strict=True)]
        assert each.token_log_probabilities == close_to(expected)
        assert each.log_probability == close_to(sum(expected))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_beams": 4, "num_beam_groups": 3, "diversity_penalty": 0.5}, "that divides `num_beams`, got 3 with"),
        ({"num_beams": 4, "num_beam_groups": 2}, "need each other, got 2 and 0.0"),
        ({"num_beams": 4, "diversity_penalty": 0.5}, "need each other, got 1 and 0.5"),
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
