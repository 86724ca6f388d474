"""The task pages hold: their commands and recipes are accepted as they stand, their links lead somewhere."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from vanilla_transformer.commands import COMMANDS
from vanilla_transformer.training.arguments import parse_recipe

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))


def commands():
    for page in PAGES:
        for block in re.findall(r"```bash\n(.*?)```", page.read_text(), re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                yield pytest.param(shlex.split(line), id=f"{page.stem}: {' '.join(line.split()[:4])}")


def recipes():
    for page in PAGES:
        for number, block in enumerate(re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)):
            yield pytest.param(block, id=f"{page.stem} {number}")


@pytest.mark.parametrize("words", commands())
def test_every_command_of_the_pages_is_accepted(words):
    if "scripts/train.py" in words:
        recipe, *flags = words[words.index("scripts/train.py") + 1 :]
        parse_recipe([str(ROOT / recipe), *flags])
    else:
        assert words[0] == "vanilla-transformer" and words[1] in COMMANDS


@pytest.mark.parametrize("text", recipes())
def test_every_recipe_of_the_pages_is_accepted(text, tmp_path):
    recipe = yaml.safe_load(text)
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    files = [] if "corpora" in recipe else ["--train_source", "a.en", "--train_target", "a.de"]
    parse_recipe([str(path), *files, "--output_dir", "out"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_choices_in_the_tables_are_recipe_keys(page, tmp_path):
    for line in re.findall(r"^\| .*`(\w+): ([\w.-]+)`.*$", page.read_text(), re.MULTILINE):
        assert f"--{line[0]}" in _help()


def _help():
    import contextlib
    import io

    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), pytest.raises(SystemExit):
        parse_recipe(["--help"])
    return shown.getvalue()
