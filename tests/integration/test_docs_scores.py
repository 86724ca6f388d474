"""The page about scores is true: its commands and its Python run."""

import json
import shlex
from pathlib import Path

import pytest

from tests.docs_pages import ROOT, blocks
from vanilla_transformer.cli import main
from vanilla_transformer.utils.file_utils import save_model_folder

PAGE, SECTION = ROOT / "docs" / "scores.md", "Scores of translations"


@pytest.fixture
def _workspace(tiny_model, tiny_tokenizer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "runs" / "mine")
    Path("test.en").write_text("A man is sleeping.\nTwo dogs.\n")
    Path("test.de").write_text("Ein Mann schläft.\nZwei Hunde.\n")


def test_docs_commands_about_scores_run(_workspace, capsys):
    commands = [shlex.split(line) for block in blocks(PAGE, "bash", SECTION) for line in block.splitlines()]
    assert [words[1] for words in commands] == ["translate", "score", "score"]
    assert [main(words[1:]) for words in commands] == [0, 0, 0]
    translated, *scores = capsys.readouterr().out.splitlines()
    (row, _) = map(json.loads, Path("scores.jsonl").read_text().splitlines())
    assert json.loads(translated)["source"] == "The child sleeps."
    assert [round(float(line), 6) for line in scores][0] == round(row["log_probability"], 6) and len(scores) == 2


def test_docs_python_about_scores_runs(_workspace):
    (block,), names = blocks(PAGE, "python", SECTION), {}
    exec(block, names)
    assert names["least_likely"]["log_probability"] < 0
