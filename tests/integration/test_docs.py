"""The task pages hold: their commands run from top to bottom as they stand, their recipes train."""

import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import datasets
import pytest
import yaml
from accelerate.state import AcceleratorState

from vanilla_transformer.cli import COMMANDS
from vanilla_transformer.data.demo_corpus import write_demo_corpus
from vanilla_transformer.training.arguments import parse_recipe
from vanilla_transformer.training.trainer import train

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
# What makes a recipe of this repository end within seconds, on a corpus that is written for it.
SMALL = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
SMALL |= {"vocab_size": 300, "max_tokens": 400, "max_steps": 4, "save_steps": 2, "eval_steps": 4, "logging_steps": 2}


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def commands():
    for page in PAGES:
        for block in blocks(page, "bash"):
            for line in block.replace("\\\n", " ").splitlines():
                yield pytest.param(shlex.split(line), id=f"{page.stem}: {' '.join(line.split()[:4])}")


def recipes():
    for page in PAGES:
        if page.stem == "publish":  # its YAML is of facts, and `test_push.py` runs that page
            continue
        for number, block in enumerate(blocks(page, "yaml")):
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
def test_the_choices_in_the_tables_are_recipe_keys(page, capsys):
    with pytest.raises(SystemExit):
        parse_recipe(["--help"])
    shown = capsys.readouterr().out
    for name, _ in re.findall(r"^\| .*`(\w+): ([\w.-]+)`.*$", page.read_text(), re.MULTILINE):
        assert f"--{name}" in shown


def test_docs_decoder_only_python_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in blocks(ROOT / "docs" / "decoder_only_and_encoder_only.md", "python"):
        exec(block, names)
    AcceleratorState._reset_state(reset_partial_state=True)  # it keeps the first precision that was asked for
    assert capsys.readouterr().out.splitlines()[-1].startswith("Where is the ")


def test_the_python_of_the_page_on_long_sequences_runs():
    names = {}
    for block in blocks(ROOT / "docs" / "long_sequences.md", "python"):
        exec(block, names)
    assert names["memory"].layers[0].keys.shape[1] > 10  # sentences of a document, one after the other


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder as a reader of the pages has it: scripts, recipes that end soon, and text of their own."""
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    (tmp_path / "recipes").mkdir()
    for path in (ROOT / "recipes").glob("*.yaml"):
        recipe = {name: value for name, value in yaml.safe_load(path.read_text()).items() if "_minutes" not in name}
        (tmp_path / "recipes" / path.name).write_text(yaml.safe_dump(recipe | SMALL))
    write_demo_corpus(tmp_path, train=60, validation=5, test=5)
    for end in ("en", "de"):
        (tmp_path / f"validation.{end}").rename(tmp_path / f"valid.{end}")
    shutil.copy(tmp_path / "test.de", tmp_path / "theirs.de")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_in_shell(lines):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    ended = subprocess.run(["bash", "-ec", lines], env=environment, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_commands_of_the_page_on_training_run_from_top_to_bottom(place):
    page = ROOT / "docs" / "train_on_your_own_data.md"
    said = run_in_shell("\n".join(blocks(page, "bash")))
    table = re.search(r"\| in `output_dir`.*?\n\n", page.read_text(), re.DOTALL)[0]
    promised = set(re.findall(r"`([\w.]+)/?`", table)) - {"output_dir", "ema"}  # a moving average is a choice
    assert promised <= {path.name for path in (place / "runs" / "mine").iterdir()}
    assert "Nothing has been written." in said and "BLEU" in said
    assert (place / "runs" / "mean" / "model.safetensors").exists()


@pytest.mark.slow
def test_the_command_for_two_processes_runs(place):
    (line,) = [
        line
        for block in blocks(ROOT / "docs" / "multi_gpu_training.md", "bash")
        for line in block.splitlines()
        if line.startswith("torchrun --nproc_per_node 2")
    ]
    files = "--train_source train.en --train_target train.de --validation_source valid.en --validation_target valid.de"
    run_in_shell(f"{line} {files} --test_source test.en --test_target test.de")
    state = json.loads((place / "runs/multi30k_en_de/checkpoint-4/training_state.json").read_text())
    assert state["progress"]["num_processes"] == 2


def test_the_recipe_of_several_corpora_trains_with_every_rule_of_cleaning(place):
    sources, targets = ((place / f"train.{end}").read_text() for end in ("en", "de"))
    pairs = list(zip(sources.splitlines(), targets.splitlines(), strict=True))
    rows = [{"translation": {"en": source, "de": target}} for source, target in pairs]
    for end, text in (("en", sources), ("de", targets)):
        with gzip.open(f"europarl.{end}.gz", "wt", encoding="utf-8") as file:
            file.write(text)
    Path("ours.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    Path("crawled.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    datasets.DatasetDict({"train": datasets.Dataset.from_list(rows)}).save_to_disk("wmt14:de-en")
    corpora, cleaning = blocks(ROOT / "docs" / "train_on_your_own_data.md", "yaml")
    small = yaml.safe_load(Path("recipes/small.yaml").read_text())
    Path("mix.yaml").write_text(yaml.safe_dump(small | yaml.safe_load(corpora) | yaml.safe_load(cleaning)))
    train(parse_recipe(["mix.yaml", "--output_dir", "out"]), evaluate=lambda *_, **__: {"bleu": 0.0})
    told = json.loads(Path("out/corpus.json").read_text())
    assert told["cleaning"]["dropped"]["duplicates"] == 3 * len(pairs)
    assert set(told["overlap"]) == {"validation", "test"}
