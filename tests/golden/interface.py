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
RECIPES = {
    path.stem: path for path in sorted((Path(__file__).parents[2] / "recipes").glob("*.yaml"))
}


def list_flags(command):
    """Return what `--help_all` says about each flag of a command: the choices and the default, by
    name.
    """
    with redirect_stdout(io.StringIO()) as stdout, suppress(SystemExit):
        main([command, "--help_all"])
    shown = stdout.getvalue().partition("\nrecipes:\n")[0]
    rows = re.findall(r"^  --(\w+)(.*(?:\n {24}.*)*)", shown, re.MULTILINE)
    texts = {name: " ".join(text.split()) for name, text in rows}
    return {
        name: "".join(re.findall(r"^\{.*?\}|\(default: [^)]*\)", text))
        for name, text in texts.items()
    }


def resolve(recipe):
    path = str(RECIPES[recipe])
    named = {"dataset", "train_source", "corpora"} & read_recipe(path).keys()
    files = [] if named else ["--train_source=a", "--train_target=b"]
    return json.loads(json.dumps(flatten(parse_recipe([path, "--output_dir=out", *files]))))


def write_interface():
    recipes = {name: resolve(name) for name in RECIPES}
    defaults = next(iter(recipes.values()))
    changes = {
        name: {n: v for n, v in recipes[name].items() if defaults[n] != v} for name in recipes
    }
    tables = {
        "flags": {name: list_flags(name) for name in COMMANDS},
        "recipes": {"defaults": defaults, **changes},
    }
    lines = [
        f'"{kind}": {{\n'
        + ",\n".join(f'"{name}": {json.dumps(row)}' for name, row in table.items())
        + "\n}"
        for kind, table in tables.items()
    ]
    ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
