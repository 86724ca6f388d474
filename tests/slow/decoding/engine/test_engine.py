"""The decoding engine gives the hypotheses of the library's own search: many random models."""

import pytest

from tests.engine_cases import assert_engine_gives_hypotheses_of_library, random_case
from tests.long_engine_cases import random_long_case, random_long_prompt_case, random_prompt_case


@pytest.mark.filterwarnings("ignore:Unfeasible length")
@pytest.mark.parametrize("first", range(1000, 1600, 50))
def test_engine_gives_hypotheses_of_library(first):
    for seed in range(first, first + 50):
        assert_engine_gives_hypotheses_of_library(random_case(seed))


@pytest.mark.filterwarnings("ignore:Unfeasible length")
@pytest.mark.parametrize("draw", [random_prompt_case, random_long_case, random_long_prompt_case])
def test_engine_gives_hypotheses_of_library_for_prompts_and_long_models(draw):
    for seed in range(1000, 1150):
        assert_engine_gives_hypotheses_of_library(draw(seed))
