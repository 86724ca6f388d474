"""The README is true: its commands and its Python run, its links lead to files."""

import re
import shlex
from pathlib import Path

import pytest

from tests.docs_pages import write_parallel_text
from tests.tiny_runs import TINY
from vanilla_transformer.cli import COMMANDS, main
from vanilla_transformer.utils.file_utils import save_model_folder

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
# These need the Hub or run until they are stopped: see the tests of publishing and serving.
ELSEWHERE = {"check-model", "push-to-hub", "serve"}


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands():
    lines = "\n".join(blocks("bash")).replace("\\\n", " ").splitlines()
    return [shlex.split(line)[1:] for line in lines if line.startswith("vanilla-transformer ")]


def test_readme_commands_run_one_after_the_other(tmp_path, monkeypatch, capsys):
    write_parallel_text(tmp_path)
    monkeypatch.chdir(tmp_path)
    tiny_flags = [word for name, value in TINY.items() for word in (f"--{name}", str(value))]
    for words in commands():
        if words[0] not in ELSEWHERE:
            assert main(words + (tiny_flags if words[0] == "train" else [])) == 0, capsys.readouterr().err
    assert (tmp_path / "runs/mine/model.safetensors").exists()


def test_readme_python_runs_one_block_after_the_other(tiny_model, tiny_tokenizer, tmp_path):
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")
    for block in blocks("python"):
        names = {}  # each block imports what it needs
        exec(block.replace("runs/demo", str(folder)), names)
    assert names["outputs"].loss > 0


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
