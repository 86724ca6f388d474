"""The command line: names, help, version and one line for each mistake."""

import gc
import re
from pathlib import Path

import pytest

import vanilla_transformer
from vanilla_transformer.cli import COMMANDS, GROUPS, main, train
from vanilla_transformer.cli.resources import find_recipe
from vanilla_transformer.training.arguments import parse_recipe

ROOT = Path(__file__).parents[3]


def test_scripts_are_the_commands_that_people_launch():
    scripts = {path.stem.replace("_", "-") for path in (ROOT / "scripts").glob("*.py")}
    assert scripts == {"train", "translate", "evaluate", "push-to-hub"} <= COMMANDS.keys()


def test_main_help_names_every_command(capsys):
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert main(["--help"]) == 0
    assert capsys.readouterr().out == shown
    assert re.findall(r"^(\w+):$", shown, re.MULTILINE) == list(GROUPS)
    assert re.findall(r"^  ([a-z-]+)  ", shown, re.MULTILINE) == list(COMMANDS)


def test_commands_leave_modules_to_no_collection():
    assert gc.get_freeze_count() > 100_000


def test_main_version_prints_the_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"vanilla-transformer {vanilla_transformer.__version__}\n"


@pytest.mark.parametrize(("name", "nearest"), [("trian", "train"), ("train_tokenizer", "train-tokenizer")])
def test_main_names_the_nearest_command(name, nearest, capsys):
    assert main([name]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith(f"error: There is no command {name!r}. Did you mean {nearest!r}?")
    assert shown.count("\n") == 1


@pytest.mark.parametrize("name", COMMANDS)
def test_command_answers_an_unknown_flag_in_one_line(name, capsys):
    assert main([name, "--outptu_dir", "x"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: There is no flag 'outptu_dir'") and shown.count("\n") == 1


@pytest.mark.parametrize("name", COMMANDS)
def test_command_help_shows_its_name_and_flags(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: vanilla-transformer {name} ") and "--" in shown
    assert "default: None" not in shown and "(default: False)" not in shown


def test_train_help_explains_each_flag_once(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    flags = re.findall(r"^  --(\w\S*)(?: [^ ]+)?(?:\n {20}|  )\s*(\S.*)", capsys.readouterr().out, re.MULTILINE)
    explained = dict(flags)
    assert len(flags) == len(explained) > 80
    assert explained["d_model"].startswith("Width of the residual stream")
    assert explained["no_tie_word_embeddings"] == "Turn off --tie_word_embeddings."
    assert not any(text.startswith("See ") or "-" in name for name, text in flags)


def test_flags_may_be_written_with_dashes():
    given = ["--train-source=a-b.en", "--train-target", "c-d.de", "--output-dir", "x-y", "--no-tie-word-embeddings"]
    recipe = parse_recipe(given)
    assert (recipe.data.train_source, recipe.data.train_target) == ("a-b.en", "c-d.de")
    assert recipe.output.output_dir == "x-y" and recipe.model.tie_word_embeddings is False


def test_command_without_positional_arguments_refuses_one(capsys):
    assert main(["write-corpus", "stray", "--output_dir", "x"]) == 2
    assert capsys.readouterr().err == "error: This command takes flags only, got 'stray'.\n"


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("*.yaml")), ids=lambda path: path.stem)
def test_find_recipe_resolves_the_name_of_every_packaged_recipe(path):
    assert find_recipe(path.stem) == path


def test_find_recipe_prefers_a_file(tmp_path, monkeypatch):
    (tmp_path / "small").touch()
    assert find_recipe(str(tmp_path / "mine.yaml")) == tmp_path / "mine.yaml"
    assert find_recipe("mine.yaml") == Path("mine.yaml")
    monkeypatch.chdir(tmp_path)
    assert find_recipe("small") == Path("small")


def test_train_with_an_unknown_recipe_lists_the_known_names(capsys):
    assert main(["train", "smal"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: There is no recipe 'smal'. Name a YAML file, or one of base, demo, ")
    assert ", small, " in shown and shown.count("\n") == 1


def test_train_reads_a_recipe_by_name(monkeypatch, capsys):
    def parse_recipe(words, program):
        raise ValueError(f"got {words}")

    monkeypatch.setattr(train, "parse_recipe", parse_recipe)
    assert main(["train", "small", "--seed", "1"]) == 2
    assert capsys.readouterr().err == f"error: got {[str(ROOT / 'recipes' / 'small.yaml'), '--seed', '1']}\n"


def test_draw_pictures_logs_one_line_without_matplotlib(caplog):
    def draw(name):
        raise OSError(f"{name} needs matplotlib.")

    train.draw_pictures(draw, "A plot")
    assert caplog.messages == ["No pictures were drawn. A plot needs matplotlib."]


def test_train_names_the_successor_of_a_renamed_flag(capsys):
    assert main(["train", "small", "--lsh-rounds", "4"]) == 2
    assert capsys.readouterr().err == "error: The flag 'lsh-rounds' is now called 'num_hashes'.\n"


def test_write_corpus_explains_the_removed_seed(capsys):
    assert main(["write-corpus", "--output_dir", "x", "--seed=1"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: The flag 'seed' was removed") and "tools.demo_corpus" in shown
