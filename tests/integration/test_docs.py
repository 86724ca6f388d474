"""The docs pages name what exists: their commands and flags are known, their recipes parse and
train.
"""

import gzip
import json
import re
import runpy
import shlex
from pathlib import Path
from xml.sax.saxutils import escape
from zipfile import ZipFile

import datasets
import pytest
import yaml

from tests.docs_pages import ROOT, blocks, command_flags, command_lines, flags_of, write_workspace
from vanilla_transformer.cli import COMMANDS
from vanilla_transformer.compatibility_vanilla_transformer import TESTED_RELEASES, TESTED_TORCH
from vanilla_transformer.extensions.distillation.distillation_arguments import parse_distillation
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.trainer import train

pytestmark = pytest.mark.usefixtures("short_translations")

PAGES = sorted((ROOT / "docs").glob("*.md"))
TASKS = ["train_on_your_own_data", "clean_a_corpus", "fine_tune", "distill"]
TASKS += ["many_languages", "scaling", "evaluate", "translate", "documents"]
TASKS += ["terms_and_markup", "scores", "alignments", "decoding", "publish", "convert"]
TASKS += ["serve", "long_sequences", "pocket_model", "change_the_architecture"]
TASKS += ["localize_software", "new_language"]
OTHER_PAGES = ("README.md", "MIGRATION.md", "CONTRIBUTING.md", "AGENTS.md")
# Pages with a card and with rows; other tests run them.
WITHOUT_RECIPES = ("publish", "change_the_architecture")


def commands():
    for page in PAGES:
        for block in blocks(page, "bash"):
            for line in block.replace("\\\n", " ").splitlines():
                beginning = " ".join(line.split()[:4])
                yield pytest.param(shlex.split(line), id=f"{page.stem}: {beginning}")


def recipes():
    for page in PAGES:
        if page.stem in WITHOUT_RECIPES:
            continue
        for number, block in enumerate(blocks(page, "yaml")):
            yield pytest.param(block, id=f"{page.stem} {number}")


@pytest.mark.parametrize("words", commands())
def test_docs_commands_exist(words, monkeypatch):
    monkeypatch.setattr(
        "vanilla_transformer.training.recipe.use_user_module", lambda path: None
    )  # which stands on the page
    if "scripts/train.py" in words:
        recipe, *flags = words[words.index("scripts/train.py") + 1 :]
        parse_recipe([str(ROOT / recipe), *flags])
    elif words[0] == "sbatch":
        assert (ROOT / words[1]).is_file()
        parse_recipe([str(ROOT / words[2]), *words[3:]])
    elif words[0] == "python":
        runpy.run_path(str(ROOT / words[1]))["EXPERIMENT"].parse(words[2:])
    elif words[0] == "make":
        assert f"\n{words[1]}:" in (ROOT / "Makefile").read_text()
    else:
        assert words[0] == "vanilla-transformer" and words[1] in COMMANDS
        if words[1] == "train" and words[2] != "final.yaml":  # which stands on the page
            parse_recipe(words[2:])


@pytest.mark.parametrize("name", TASKS)
def test_docs_task_pages_begin_with_a_command(name):
    beginning = r"# .*\n\n(## .*\n\n)?```bash\n(vanilla-transformer|accelerate launch) "
    assert re.match(beginning, (ROOT / "docs" / f"{name}.md").read_text())


@pytest.mark.parametrize("text", recipes())
def test_docs_recipes_parse(text, tmp_path):
    recipe = yaml.safe_load(text)
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    files = ["--train_source", "a.en", "--train_target", "a.de"]
    if "corpora" in recipe:
        files = []
    if "teacher" in recipe:
        tests = ["--test_source", "test.en", "--test_target", "test.de"]
        parse_distillation([str(path), *files, *tests, "--output_dir", "out"])
        return
    parse_recipe([str(path), *files, "--output_dir", "out"])


def test_docs_tables_name_recipe_keys():
    names = []
    for page in PAGES:
        for row in re.findall(r"^\|.*$", page.read_text(), re.MULTILINE):
            names += re.findall(r"`(\w+): [^`]+`", row)
    assert len(names) > 20
    assert {*names} <= {*flags_of("train")}


def test_docs_commands_have_flags_that_exist():
    commands, count = set(), 0
    for page in [*PAGES, *(ROOT / name for name in OTHER_PAGES)]:
        for line in command_lines(page):
            for command, flag in command_flags(line):
                assert command in COMMANDS and flag in flags_of(command), page.stem
                commands.add(command)
                count += 1
    assert count > 250 and len(commands) > 15


def _translation_unit(pair):
    source, target = map(escape, pair)
    sides = f"<tuv xml:lang='en'><seg>{source}</seg></tuv>"
    sides += f"<tuv xml:lang='de'><seg>{target}</seg></tuv>"
    return f"<tu>{sides}</tu>"


def test_docs_recipe_trains_with_every_cleaning_rule(tmp_path, monkeypatch):
    """Train on the several corpora of the page."""
    monkeypatch.chdir(tmp_path)
    write_workspace(tmp_path)
    sources, targets = ((tmp_path / f"train.{end}").read_text() for end in ("en", "de"))
    pairs = list(zip(sources.splitlines(), targets.splitlines(), strict=True))
    rows = [{"translation": {"en": source, "de": target}} for source, target in pairs]
    for end, text in (("en", sources), ("de", targets)):
        with gzip.open(f"europarl.{end}.gz", "wt", encoding="utf-8") as file:
            file.write(text)
    Path("ours.tsv").write_text("\n".join("\t".join(pair) for pair in pairs) + "\n")
    Path("crawled.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    units = "".join(map(_translation_unit, pairs))
    with gzip.open("memory.tmx.gz", "wt", encoding="utf-8") as file:
        file.write(f"<tmx version='1.4'><body>{units}</body></tmx>")
    with ZipFile("Books.de-en.zip", "w") as archive:
        for end, text in (("en", sources), ("de", targets)):
            archive.writestr(f"Books.de-en.{end}", text)
    splits = {"train": datasets.Dataset.from_list(rows)}
    datasets.DatasetDict(splits).save_to_disk("wmt/wmt14:de-en")
    page = ROOT / "docs" / "train_on_your_own_data.md"
    shown = [yaml.safe_load(block) for block in blocks(page, "yaml")]
    mixes = [recipe for recipe in shown if "corpora" in recipe and "stages" not in recipe]
    cleaning = next(recipe for recipe in shown if "drop" in recipe)
    small = yaml.safe_load(Path("recipes/small.yaml").read_text())
    Path("mix.yaml").write_text(yaml.safe_dump(small | mixes[0] | cleaning))
    recipe = parse_recipe(["mix.yaml", "--output_dir", "out"])
    train(recipe, evaluate=lambda *_, **__: {"bleu": 0.0})
    report = json.loads(Path("out/corpus.json").read_text())
    assert report["cleaning"]["dropped"]["duplicates"] == 5 * len(pairs)
    assert set(report["overlap"]) == {"validation", "test"}


def test_docs_name_the_releases_that_are_pinned_and_tested():
    page = (ROOT / "docs" / "use_from_transformers.md").read_text()
    row = r"^\| (\d[\w.]+) \| (\S+) \| (\S+) \| (.*) \|$"
    rows = re.findall(row, page, re.MULTILINE)
    constraints = (ROOT / "constraints.txt").read_text()
    pins = dict(re.findall(r"^([\w-]+)==(\S+)$", constraints, re.MULTILINE))
    names = ("transformers", "tokenizers", "huggingface_hub")
    assert rows[0][:3] == tuple(pins[name] for name in names)
    names = ("torch", "accelerate", "datasets")
    together = ", ".join(f"{name} {pins[name]}" for name in names)
    assert f"All with {together} and peft {pins['peft']}." in page
    *torches, newest_torch = TESTED_TORCH
    assert f"torch {', '.join(torches)} and {newest_torch}, by" in page
    assert pins["torch"].rpartition(".")[0] in torches
    assert f'"torch>={torches[0]}"' in (ROOT / "setup.py").read_text()
    makefile = (ROOT / "Makefile").read_text()
    older = re.search(r"^RELEASES := (.*)$", makefile, re.MULTILINE)[1].split()
    tested = [row[0] for row in reversed(rows)]
    assert tested == [*older, pins["transformers"]]
    assert [release.rpartition(".")[0] for release in tested] == [*TESTED_RELEASES]
    assert f'"transformers>={TESTED_RELEASES[0]},<6"' in (ROOT / "setup.py").read_text()
    span = f"transformers {TESTED_RELEASES[0]} to {TESTED_RELEASES[-1]}"
    assert span in (ROOT / "README.md").read_text()
