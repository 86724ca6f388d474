"""The decoding engine gives the hypotheses of the library's own search with the attentions for long
sequences.
"""

import pytest
import torch

from tests.engine_cases import (
    EOS,
    Case,
    assert_engine_gives_hypotheses_of_library,
    random_long_case,
    random_long_prompt_case,
)
from tests.sweeps import sample
from tests.tiny import tiny_long_causal_lm, tiny_long_model
from vanilla_transformer.decoding.engine.engine import Engine

SOURCES = [[7, 8, EOS], [9, EOS]]
SIZES = {"vocab_size": 40, "init_std": 0.4, "lm_head_bias": True}


@pytest.mark.filterwarnings("ignore:Unfeasible length")
@pytest.mark.parametrize("first", sample([*range(0, 40, 5), *range(1000, 1150, 5)], 0))
@pytest.mark.parametrize("draw", [random_long_case, random_long_prompt_case])
def test_engine_gives_hypotheses_of_library_for_long_models(draw, first):
    for seed in range(first, first + 5):
        assert_engine_gives_hypotheses_of_library(draw(seed))


@pytest.mark.parametrize("layer_types", ["linear_attention", "lsh_attention", "full_attention"])
@pytest.mark.parametrize("build", [tiny_long_model, tiny_long_causal_lm])
def test_engine_runs_long_models_while_room_grows_and_shrinks(build, layer_types):
    torch.manual_seed(0)
    model = build(layer_types=layer_types, decoder_layers=2, **SIZES)
    sources = [torch.randint(5, 40, (length,)).tolist() + [EOS] for length in (9, 70, 20, 5)]
    options = {"num_beams": 3, "max_new_tokens": 10, "min_new_tokens": 5}
    assert_engine_gives_hypotheses_of_library(Case(model, sources, 2, options, 1))


def test_engine_decodes_long_models_in_slots_used_before():
    model = tiny_long_model(**SIZES)
    options = {"slots": 1, "compile": False, "num_beams": 2, "max_new_tokens": 5}
    alone = [Engine(model, **options).decode([source])[0] for source in SOURCES]
    assert Engine(model, **options).decode(SOURCES) == alone
