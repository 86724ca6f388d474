"""The headers and keys of shipped recipes."""

from pathlib import Path

import pytest

from vanilla_transformer.training.recipe import read_recipe

RECIPES = Path(__file__).parents[3] / "recipes"
PAPER_STEPS = {"base": 100_000, "big": 300_000}


@pytest.mark.parametrize("name", ["small", "base", "finetune_opus_mt"])
def test_recipes_to_start_from_leave_their_length_to_the_corpus(name):
    recipe = read_recipe(RECIPES / f"{name}.yaml")
    assert not {"max_steps", "warmup_steps", "max_minutes", "train_source"} & recipe.keys()


@pytest.mark.parametrize("name", ["small", "base", "student", "finetune_opus_mt", "multilingual"])
def test_recipes_to_start_from_say_what_to_expect(name):
    text = (RECIPES / f"{name}.yaml").read_text()
    header = text[: text.index("\n", text.rindex("\n#") + 1)]
    assert all(words in header for words in ("What to expect", "pairs", "here"))


@pytest.mark.parametrize("path", sorted(RECIPES.glob("wmt14*.yaml")), ids=lambda path: path.stem)
def test_recipes_of_the_paper_give_its_schedule(path):
    recipe = read_recipe(path)
    assert (recipe["warmup_steps"], recipe["max_steps"]) == (4000, PAPER_STEPS[path.stem.rpartition("_")[2]])
