"""Commands have the flags, choices and defaults of the stored answers, and recipes the values."""

import json

import pytest

from vanilla_transformer.cli import COMMANDS

from .interface import ANSWERS, RECIPES, list_flags, resolve

STORED = json.loads(ANSWERS.read_text(encoding="utf-8"))


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_have_their_flags_and_defaults(command):
    assert list_flags(command) == STORED["flags"][command]


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes_have_their_values(recipe):
    assert resolve(recipe) == STORED["recipes"]["defaults"] | STORED["recipes"][recipe]


def test_stored_commands_and_recipes_exist():
    assert STORED["flags"].keys() == COMMANDS.keys()
    assert STORED["recipes"].keys() == {"defaults", *RECIPES}
