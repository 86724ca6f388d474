"""The files for contributors and newcomers name things that exist."""

import json
import os
import re
from pathlib import Path

import pytest
import yaml

import vanilla_transformer
from tests.docs_pages import blocks, flags_of
from tools.check_prose import SUFFIXES
from vanilla_transformer.cli import COMMANDS, main
from vanilla_transformer.files.resources import find_recipe

ROOT = Path(__file__).parents[2]
PROJECT_FILES = ["AGENTS.md", "CONTRIBUTING.md", "MIGRATION.md"]
PROJECT_FILES += ["CHANGELOG.md", "SECURITY.md", "README.md"]
PAGE = (ROOT / "MIGRATION.md").read_text()
# Tables whose second column names recipe keys, by their second heading.
TABLES = {}
for heading in ("here", "recipe key", "flag of `translate`"):
    table = rf"^\| [^|]+ \| {heading} \|\n\|---\|---\|\n((?:\|.*\n)+)"
    TABLES[heading] = "".join(re.findall(table, PAGE, re.MULTILINE))


def second_column(heading):
    return "\n".join(row.split(" | ")[1] for row in TABLES[heading].splitlines())


def test_migration_names_commands_that_exist():
    command = r"`vanilla-transformer ([\w-]+)(?: ([a-z]\w+))?"
    named = re.findall(command, second_column("here"))
    assert len(named) > 15
    assert {command for command, _ in named} <= set(COMMANDS)
    for command, recipe in named:
        assert command != "train" or recipe in ("", "recipe") or find_recipe(recipe).is_file()


def test_migration_names_recipe_keys_that_exist():
    words = re.findall(r"`([a-z]\w*)`", second_column("recipe key"))
    assert len(words) > 60
    recipes = {"wmt14_en_de_base", "wmt14_en_de_big"}
    assert set(words) - recipes - {"source", "target", "weight"} <= flags_of("train")
    assert all(find_recipe(name).is_file() for name in recipes)


def test_migration_names_flags_that_exist(capsys):
    words = re.findall(r"`--(\w+)", second_column("flag of `translate`"))
    assert len(words) > 10 and set(words) <= flags_of("translate")
    source_formats = set(re.findall(r"--source_format (\S+)`", PAGE))
    with pytest.raises(SystemExit):
        main(["convert", "--help"])
    shown = capsys.readouterr().out
    assert source_formats and all(name in shown for name in source_formats)


# It starts from a model of the Hub, which no test can download.
WITHOUT_OUTPUTS = {"fine_tune_opus_mt.ipynb"}
PICTURES = {"from_text_files_to_a_hub_model.ipynb": 3}  # others have two
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
OF_THIS_MACHINE = r"(?<![\w.])/(tmp|home|root|work|Users)/|error:|Traceback"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebooks_are_stored_with_their_outputs(path):
    cells = json.loads(path.read_text())["cells"]
    cells = [cell for cell in cells if cell["cell_type"] == "code"]
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert bool(outputs) == (path.name not in WITHOUT_OUTPUTS)
    if outputs:
        counts = [cell["execution_count"] for cell in cells]
        assert counts == [*range(1, len(cells) + 1)], "run all cells in order"
        pictures = sum("image/png" in output.get("data", {}) for output in outputs)
        assert pictures == PICTURES.get(path.name, 2)
    for output in outputs:
        assert output["output_type"] != "error" and output.get("name") != "stderr"
        shown = [output.get("text"), output.get("data", {}).get("text/plain")]
        assert not re.search(OF_THIS_MACHINE, str(shown))


def test_citation_has_the_version_of_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == vanilla_transformer.__version__


WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_make_targets_that_exist(path):
    jobs = yaml.safe_load(path.read_text())["jobs"].values()
    targets = set()
    for job in jobs:
        matrix = job.get("strategy", {}).get("matrix", {})
        commands = [step["run"] for step in job["steps"] if "run" in step]
        targets |= {*matrix.get("target", [])}
        targets |= {command.removeprefix("make ") for command in commands}
    targets = {target for target in targets if "{{" not in target}
    known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert targets and targets <= known


README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/quickstart.md"])
def test_pages_begin_with_a_model_of_the_repository(page):
    code = "".join(blocks(ROOT / page, "(?:bash|python)"))
    first, *_ = re.findall(r"\b(?:models|runs)/[\w-]+", code)
    assert first == "models/en-de" and (ROOT / first / "model.safetensors").is_file()


def test_readme_names_existing_commands_and_targets():
    assert set(re.findall(r"vanilla-transformer ([a-z][\w-]+)", README)) <= COMMANDS.keys()
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {"demo", "test", *re.findall(r"make ([a-z-]+)", README)} <= {*targets}


def test_readme_is_short_and_shows_where_each_part_is():
    assert README.count("\n") <= 150
    table = README[README.index("## Where things are") :]
    words = ["modeling, configuration, tokenization", "scripts", "tests", "recipes, model_card"]
    for word in words:
        assert f"| {word} " in table


@pytest.mark.parametrize("name", PROJECT_FILES)
def test_project_files_link_to_files_that_exist(name):
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / name).read_text())
    assert all((ROOT / link).exists() for link in links)


def test_project_files_name_pages_that_exist():
    named = set()
    for name in PROJECT_FILES:
        named |= {*re.findall(r"`((?:docs|tools)/[\w/.]+)`", (ROOT / name).read_text())}
    written = {"docs/gpu.json", "docs/gpu.md"}  # by `make gpu`
    assert named > written
    assert not [path for path in named - written if not (ROOT / path).exists()]


def test_files_have_no_markers_of_merge_conflicts():
    suffixes = SUFFIXES | {".json", ".sh", ".sbatch", ".service"}
    marker = re.compile(rb"^(?:<{7}|\|{7}|>{7}) \S", re.MULTILINE)
    marked, count = [], 0
    for folder, folders, names in os.walk(ROOT):
        hidden = {name for name in folders if name.startswith(".")} - {".github"}
        folders[:] = {*folders} - hidden
        for path in (Path(folder, name) for name in names):
            if path.suffix in suffixes:
                count += 1
                if marker.search(path.read_bytes()):
                    marked.append(path)
    assert count > 500 and not marked
