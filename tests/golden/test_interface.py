"""Flags, defaults and recipes are what they were when `python -m tests.golden.test_interface` stored them."""

import json
import re
from pathlib import Path

import pytest

from vanilla_transformer.cli import COMMANDS, main
from vanilla_transformer.training.recipe import parse_recipe, read_recipe
from vanilla_transformer.training.run_arguments import flatten

ANSWERS = Path(__file__).with_name("interface.json")
RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.yaml"))
STORED = json.loads(ANSWERS.read_text(encoding="utf-8")) if ANSWERS.exists() else {"flags": {}, "recipes": {}}
# Flags and keys that were removed, each with a line in the changelog.
REMOVED: set[str] = {"student_num_beams", "student_precision", "compile_steps"}


def list_flags(command, capture):
    """Return what `--help_all` says about each flag of a command: the choices and the default, by name."""
    with pytest.raises(SystemExit):
        main([command, "--help_all"])
    shown = capture.readouterr().out.partition("\nrecipes:\n")[0]
    rows = re.findall(r"^  --(\w+)(.*(?:\n {24}.*)*)", shown, re.MULTILINE)
    texts = {name: " ".join(text.split()) for name, text in rows}
    return {name: "".join(re.findall(r"^\{.*?\}|\(default: [^)]*\)", text)) for name, text in texts.items()}


def resolve(path):
    named = {"dataset", "train_source", "corpora"} & read_recipe(path).keys()
    files = [] if named else ["--train_source=a", "--train_target=b"]
    return json.loads(json.dumps(flatten(parse_recipe([str(path), "--output_dir=out", *files]))))


@pytest.mark.parametrize("command", sorted(STORED["flags"].keys() & COMMANDS.keys()))
def test_commands_have_their_flags_and_defaults(command, capsys):
    found, stored = list_flags(command, capsys), STORED["flags"][command]
    assert stored.keys() - found.keys() <= REMOVED and not found.keys() - stored.keys()
    assert found == {name: stored[name] for name in found}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipes_have_their_values(path):
    values = resolve(path)
    stored = STORED["recipes"]["defaults"] | STORED["recipes"][path.stem]
    assert stored.keys() - values.keys() <= REMOVED
    assert values == {name: stored[name] for name in values}


def test_store_the_answers_of_today(capsys):
    """Write the file where there is none; delete it to store other answers, if they are meant to change."""
    if ANSWERS.exists():
        return
    defaults = resolve(RECIPES[0])
    recipes = {path.stem: {n: v for n, v in resolve(path).items() if defaults[n] != v} for path in RECIPES}
    flags = {command: list_flags(command, capsys) for command in COMMANDS}
    lines = [
        f'"{kind}": {{\n' + ",\n".join(f'"{n}": {json.dumps(v)}' for n, v in table.items()) + "\n}"
        for kind, table in (("flags", flags), ("recipes", {"defaults": defaults, **recipes}))
    ]
    ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
