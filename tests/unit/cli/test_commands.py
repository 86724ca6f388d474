"""The command line: names, help, version and one line for each mistake."""

import gc
import re
from pathlib import Path

import pytest

import vanilla_transformer
from vanilla_transformer.cli import COMMANDS, GROUPS, main, run
from vanilla_transformer.cli.flags import parse, register_models
from vanilla_transformer.cli.translate import TranslateArguments
from vanilla_transformer.errors import UserError
from vanilla_transformer.evaluation import plots
from vanilla_transformer.files.resources import find_recipe
from vanilla_transformer.machine.imports import freeze_modules
from vanilla_transformer.training.recipe import SECTIONS, parse_recipe
from vanilla_transformer.training.run_arguments import KEYS

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
    gc.unfreeze()
    freeze_modules.cache_clear()
    register_models()
    assert gc.get_freeze_count() > 100_000


def test_main_version_prints_the_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"vanilla-transformer {vanilla_transformer.__version__}\n"


def test_main_ends_in_one_line_if_it_is_interrupted_while_a_command_is_imported(
    capsys, monkeypatch
):
    def interrupt(name):
        raise KeyboardInterrupt

    monkeypatch.setattr("vanilla_transformer.cli.find_command", interrupt)
    assert main(["translate", "model"]) == 130
    assert capsys.readouterr().err == "Interrupted.\n"


NEAREST = {
    "trian": "train",
    "train_tokenizer": "train-tokenizer",
    "eval": "evaluate",
    "checkmodel": "check-model",
}
NEAREST |= dict.fromkeys(["decode", "generate", "test", "help"])  # which no command is


@pytest.mark.parametrize("name", NEAREST)
def test_main_names_the_nearest_command(name, capsys):
    assert main([name]) == 2
    shown = capsys.readouterr().err
    hint = f"Did you mean {NEAREST[name]!r}? " if NEAREST[name] else ""
    assert shown.startswith(f"error: There is no command {name!r}. {hint}Commands: ")
    assert shown.count("\n") == 1


@pytest.mark.parametrize("name", COMMANDS)
def test_command_answers_an_unknown_flag_in_one_line(name, capsys):
    assert main([name, "--outptu_dir", "x"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: There is no flag 'outptu_dir'") and shown.count("\n") == 1


def explained_flags(name, capsys, flag="--help-all"):
    """Return the explanations of flags that the help of a command has, by name."""
    with pytest.raises(SystemExit):
        main([name, flag])
    shown = capsys.readouterr().out.partition("\nrecipes:\n")[0]
    pattern = (
        r"^  --(\w+)(?: [\\[{A-Z][^ \n]*(?: \[\w+ ...\])?)?(?:\n {20}|  ) *(\S.*(?:\n {24}.*)*)"
    )
    flags = re.findall(pattern, shown, re.MULTILINE)
    assert len(flags) == len(dict(flags)) == len(re.findall(r"^  --", shown, re.MULTILINE))
    return {name: " ".join(text.split()) for name, text in flags}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_explains_arguments_and_flags(name, capsys):
    everything = explained_flags(name, capsys, "--help_all")
    shown = explained_flags(name, capsys, "--help")
    assert len(shown) <= 22 and shown.items() <= everything.items()
    explained = [re.sub(r" \(default: .*", "", text) for text in everything.values()]
    assert all(len(text) > 10 and not text.startswith("See ") for text in explained)
    assert len({*explained}) == len(explained)
    for text in everything.values():
        assert "default: None" not in text and "default: False)" not in text
    with pytest.raises(SystemExit) as ended:
        main([name, "-h"])
    assert ended.value.code == 0
    usage, about, *_ = capsys.readouterr().out.split("\n\n")
    pattern = rf"usage: vanilla-transformer {name}((?: \[?[A-Z][\w/]*)*)"
    words = re.match(pattern, usage)[1].replace("[", "").split()
    assert about.startswith("arguments:\n") is bool(words)
    assert all(re.search(rf"^  (.*, )?{word}\b", about, re.MULTILINE) for word in words)


def test_train_help_shows_fifteen_keys_by_section_and_the_recipes(capsys):
    assert len(explained_flags("train", capsys, "--help")) == 15 + 2
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    shown = capsys.readouterr().out
    heads = re.findall(r"^(\w+):$", shown, re.MULTILINE)
    assert heads == ["arguments", *[*SECTIONS][:-1], "help", "recipes"]
    names = re.findall(r"^  (\w+) +[A-Z]", shown.partition("\nrecipes:\n")[2], re.MULTILINE)
    assert names == sorted(path.stem for path in (ROOT / "recipes").glob("*.yaml"))


def test_train_help_has_all_keys_and_explains_them_as_the_configuration_does(capsys):
    explained = explained_flags("train", capsys)
    keys = {*KEYS, "help", "help_all"}
    assert {flag for flag in explained if not explained[flag].startswith("Turn off --")} == keys
    assert explained["d_model"].startswith("Width of the residual stream")
    assert explained["no_tie_word_embeddings"] == "Turn off --tie_word_embeddings."


def test_translate_help_has_its_ten_flags_first(capsys):
    first = [*explained_flags("translate", capsys, "--help")][:10]
    assert {"input", "output", "json", "format"} <= {*first}
    assert [*explained_flags("translate", capsys)][:10] == first


def test_flags_may_be_written_with_dashes():
    words = ["--train-source=a-b.en", "--train-target", "c-d.de"]
    words += ["--output-dir", "x-y", "--no-tie-word-embeddings"]
    recipe = parse_recipe(words)
    assert (recipe.data.train_source, recipe.data.train_target) == ("a-b.en", "c-d.de")
    assert recipe.output.output_dir == "x-y" and recipe.model.tie_word_embeddings is False


RECIPES = sorted((ROOT / "recipes").glob("*.yaml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_find_recipe_resolves_the_name_of_every_packaged_recipe(path):
    assert find_recipe(path.stem) == path


def test_find_recipe_prefers_a_file(tmp_path, monkeypatch):
    (tmp_path / "small").touch()
    assert find_recipe(str(tmp_path / "mine.yaml")) == tmp_path / "mine.yaml"
    assert find_recipe("mine.yaml") == Path("mine.yaml")
    monkeypatch.chdir(tmp_path)
    assert find_recipe("small") == Path("small")


@pytest.mark.parametrize(
    "words",
    [["small", "--seed", "1"], ["--seed", "1", "small"], ["--dry_run", "small", "--seed=1"]],
)
def test_parse_recipe_reads_a_recipe_by_name_before_or_after_flags(words):
    files = ["--train_source", "a", "--train_target", "b", "--output_dir", "c"]
    recipe = parse_recipe([*files, *words])
    assert (recipe.optimization.seed, recipe.model.d_model, recipe.data.vocab_size) == (
        1,
        256,
        8000,
    )
    assert recipe.output.dry_run is ("--dry_run" in words)


@pytest.mark.parametrize(
    "words",
    [
        ["runs/m", "A man.", "No.", "-1 degree", "--num_beams", "1", "--json"],
        ["runs/m", "--num-beams", "1", "A man.", "--json", "No.", "-1 degree"],
        ["--num_beams=1", "--json", "runs/m", "A man.", "No.", "-1 degree"],
        ["--json", "true", "--num_beams", "1", "--", "runs/m", "A man.", "No.", "-1 degree"],
    ],
)
def test_flags_may_stand_before_between_and_after_arguments(words):
    options = parse(TranslateArguments, words)
    assert [options.model, *options.sentences] == ["runs/m", "A man.", "No.", "-1 degree"]
    assert (options.num_beams, options.as_json) == (1, True)


def test_draw_picture_logs_one_line_without_matplotlib(caplog, real_pictures):
    def draw(name):
        raise UserError(f"{name} needs matplotlib.")

    plots.draw_picture("lengths are", draw, "A plot")
    plots.draw_picture("lengths are", draw, "A plot")
    assert caplog.messages == ["No pictures were drawn. A plot needs matplotlib."]


def test_an_error_is_one_line_that_keeps_its_spaces(capsys):
    def fail(arguments):
        raise UserError("It must be 'a',\n  got 'a  b'.")

    assert run(fail, []) == 2
    assert capsys.readouterr().err == "error: It must be 'a', got 'a  b'.\n"
