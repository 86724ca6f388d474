"""Flags and their defaults, and the values of recipes: stored by
`python -m tests.golden.write interface`.
"""

import io
import json
import re
from contextlib import redirect_stdout, suppress
from pathlib import Path

from vanilla_transformer.cli import COMMANDS, main
from vanilla_transformer.training.recipe import parse_recipe, read_recipe
from vanilla_transformer.training.run_arguments import flatten

ANSWERS = Path(__file__).with_name("interface.json")
_PATHS = sorted((Path(__file__).parents[2] / "recipes").glob("*.yaml"))
RECIPES = {path.stem: path for path in _PATHS}


def list_flags(command):
    """Return what `--help_all` says about each flag of a command: the choices and the default, by
    name.
    """
    with redirect_stdout(io.StringIO()) as stdout, suppress(SystemExit):
        main([command, "--help_all"])
    shown = stdout.getvalue().partition("\nrecipes:\n")[0]
    rows = re.findall(r"^  --(\w+)(.*(?:\n {24}.*)*)", shown, re.MULTILINE)
    flags = {}
    for name, text in rows:
        parts = re.findall(r"^\{.*?\}|\(default: [^)]*\)", " ".join(text.split()))
        flags[name] = "".join(parts)
    return flags


def resolve(recipe):
    path = str(RECIPES[recipe])
    named = {"dataset", "train_source", "corpora"} & read_recipe(path).keys()
    files = [] if named else ["--train_source=a", "--train_target=b"]
    values = flatten(parse_recipe([path, "--output_dir=out", *files]))
    return json.loads(json.dumps(values))


def write_interface():
    recipes = {name: resolve(name) for name in RECIPES}
    defaults = next(iter(recipes.values()))
    rows = {"defaults": defaults}
    for name, values in recipes.items():
        rows[name] = {key: value for key, value in values.items() if defaults[key] != value}
    flags = {name: list_flags(name) for name in COMMANDS}
    text = _in_lines({"flags": _table(flags), "recipes": _table(rows)})
    ANSWERS.write_text(f"{text}\n", encoding="utf-8")


def _table(rows):
    return _in_lines({name: json.dumps(row) for name, row in rows.items()})


def _in_lines(entries):
    """Return an object of JSON with a line for each entry, whose value is written already."""
    lines = ",\n".join(f'"{name}": {value}' for name, value in entries.items())
    return f"{{\n{lines}\n}}"
