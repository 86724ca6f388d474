"""The decoding engine continues prompts as the library's own search does."""

import pytest
import torch

from tests.closeness import close_to
from tests.engine_cases import (
    EOS,
    Case,
    assert_engine_gives_hypotheses_of_library,
    random_prompt_case,
)
from tests.sweeps import rare, sample
from tests.tiny import tiny_causal_lm
from vanilla_transformer.decoding.engine.engine import Engine

OPTIONS = {"num_beams": 2, "max_new_tokens": 6}


def model_of(**changes):
    return tiny_causal_lm(**{"vocab_size": 40, "init_std": 0.4, "lm_head_bias": True} | changes)


def engine_of(model=None, **options):
    return Engine(model or model_of(), slots=2, compile=False, **OPTIONS | options)


@pytest.mark.filterwarnings("ignore:Unfeasible length")
@pytest.mark.parametrize("first", sample([*range(0, 40, 5), *range(1000, 1150, 5)], 0))
def test_engine_gives_hypotheses_of_library_for_prompts(first):
    for seed in range(first, first + 5):
        assert_engine_gives_hypotheses_of_library(random_prompt_case(seed))


@pytest.mark.parametrize("beams", [rare(1), 3])
def test_engine_continues_prompts_while_room_grows_and_shrinks(beams):
    torch.manual_seed(0)
    lengths = [9, 3, 100, 5, 40, 2]
    prompts = [torch.randint(5, 40, (length,)).tolist() for length in lengths]
    options = {"num_beams": beams, "max_new_tokens": 20, "min_new_tokens": 10}
    for slots in (1, 3):
        assert_engine_gives_hypotheses_of_library(Case(model_of(), prompts, slots, options, 1))


def test_engine_forgets_long_prompts_that_have_left():
    model, prompts = model_of(), [[7, 8] * 30, [7, 8, 9], [9, 8, 7]]
    model.lm_head.bias.data[
        EOS
    ] = -100.0  # short prompts are continued long after the long one has left
    assert_engine_gives_hypotheses_of_library(
        Case(model, prompts, 3, {"num_beams": 1, "max_length": 62}, 1)
    )


def test_engine_does_not_read_eos_at_the_end_of_prompts():
    engine = engine_of()
    with_eos, without, lone = engine.decode([[7, 8, EOS], [7, 8], [EOS]])
    assert with_eos == without
    assert lone != without


def test_engine_stops_prompts_at_the_last_learned_position():
    model = model_of(position_embedding_type="learned", max_position_embeddings=12)
    model.lm_head.bias.data[EOS] = -100.0
    rows = engine_of(model, max_new_tokens=30).decode([[7] * 10, [7] * 12])
    assert [len(hypotheses[0].tokens) for hypotheses in rows] == [3, 1]
    assert_engine_gives_hypotheses_of_library(
        Case(model, [[7] * 10], 2, OPTIONS | {"max_new_tokens": 3}, 1)
    )


def test_engine_gives_scores_of_the_penalty_of_wu_for_new_tokens_only():
    model, prompt = model_of(), [7, 8, 9, 10, 11]
    model.lm_head.bias.data[EOS] = -100.0
    scores = [
        engine_of(model, length_penalty_type=kind, length_penalty=1.0).decode([prompt])[0][0].score
        for kind in ("wu", "power")
    ]
    assert scores[0] * (5 + 6) / 6 == close_to(scores[1] * 6)
