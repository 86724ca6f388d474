"""The README is true: its commands and its Python run, its links lead to files."""

import re
import shlex
from pathlib import Path

import pytest

from vanilla_transformer.cli import COMMANDS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands():
    lines = "\n".join(blocks("bash")).replace("\\\n", " ").splitlines()
    return [shlex.split(line)[1:] for line in lines if line.startswith("vanilla-transformer ")]


def test_readme_begins_with_the_command_that_makes_its_model():
    for page in ("README.md", "docs/index.md", "docs/quickstart.md"):
        text = (ROOT / page).read_text()
        assert text.index("vanilla-transformer demo") < text.index("pipeline("), page


def test_readme_names_existing_commands_and_targets():
    assert {words[0] for words in commands()} <= COMMANDS.keys()
    assert set(re.findall(r"`vanilla-transformer ([\w-]+)", README)) <= COMMANDS.keys()
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {"demo", "test", *re.findall(r"make ([a-z-]+)", README)} <= {*targets}


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"])
def test_readme_links_lead_to_files(page):
    links = re.findall(r"\]\((?!http)([^)#]+)\)", (ROOT / page).read_text())
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_readme_is_short():
    assert README.count("\n") <= 150


def test_readme_shows_where_each_part_is():
    table = README[README.index("## Where things are") :]
    for word in ("modeling, configuration, tokenization", "scripts", "tests", "recipes, model_card"):
        assert f"| {word} " in table
