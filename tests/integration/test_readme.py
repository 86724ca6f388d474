"""The README's words hold: its code runs, its files and flags exist."""

import re
from pathlib import Path

import pytest

from vanilla_transformer.cli import COMMANDS
from vanilla_transformer.training.arguments import parse_recipe
from vanilla_transformer.training.checkpoint import save_model_folder

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_python_examples_run_one_after_the_other(tiny_model, tiny_tokenizer, tmp_path):
    folder = save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model")
    names = {}
    for block in blocks("python"):
        exec(block.replace("runs/demo", str(folder)), names)
    assert names["outputs"].loss > 0


def test_the_training_command_is_accepted():
    (command,) = [block for block in blocks("bash") if "--train_source" in block]
    words = command.replace("\\\n", " ").split()
    recipe = parse_recipe([str(ROOT / words[3]), *words[4:]])
    assert recipe.data.train_source == "train.en" and recipe.output.output_dir == "runs/mine"


def test_every_command_and_target_that_is_named_exists():
    shell = "\n".join(blocks("bash"))
    assert set(re.findall(r"^vanilla-transformer ([\w-]+)", shell, re.MULTILINE)) <= COMMANDS.keys()
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {"demo", "test", *re.findall(r"make ([a-z-]+)", README)} <= {*targets}


@pytest.mark.parametrize("place", sorted(set(re.findall(r"\]\((?!http)([^)#]+)\)", README))))
def test_every_link_leads_to_a_file(place):
    assert (ROOT / place).exists()


def test_each_part_of_the_mission_is_shown_where_it_is():
    table = README[README.index("## Where things are") :]
    for word in ("modeling", "configuration", "tokenization", "scripts", "tests", "model_card"):
        assert f"| {word} " in table
