"""The page about alignments is true: its commands and its Python run."""

import shlex
from pathlib import Path

import pytest

from tests.docs_pages import ROOT, blocks
from tests.tiny import tiny_model
from vanilla_transformer.cli import main
from vanilla_transformer.utils.file_utils import save_model_folder

PAGE, SECTION = ROOT / "docs" / "alignments.md", "Alignments"


@pytest.fixture
def _workspace(tiny_tokenizer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = tiny_model()
    model.config.alignment_heads = [[0, 1]]
    save_model_folder(model, tiny_tokenizer, tmp_path / "runs" / "mine")
    Path("validation.en").write_text("A man is sleeping.\nTwo dogs.\n")
    Path("validation.de").write_text("Ein Mann schläft.\nZwei Hunde.\n")
    for name in ("train.en", "train.de"):
        Path(name).write_text(Path(name.replace("train", "validation")).read_text())
    for name in ("validation.align", "test.align", "test.hypotheses.align"):
        Path(name).write_text("0-0 1-1 2-2 3-2\n0-0 1-1\n")
    Path("test.en").write_text(Path("validation.en").read_text())
    Path("test.de").write_text(Path("validation.de").read_text())


def test_docs_commands_about_alignments_run(_workspace, capsys):
    commands = [shlex.split(line) for block in blocks(PAGE, "bash", SECTION) for line in block.splitlines()]
    assert [words[1] for words in commands] == [
        "translate",
        "choose-alignment-head",
        "choose-alignment-head",
        "write-alignments",
        "evaluate-alignments",
    ]
    assert [main(words[1:]) for words in commands] == [0, 0, 0, 0, 0]
    translation, *_, scores = capsys.readouterr().out.splitlines()
    assert " ||| " in translation and scores.startswith("AER 0.0")


def test_docs_python_about_alignments_runs(_workspace, capsys):
    (block,), names = blocks(PAGE, "python", SECTION), {}
    exec(block, names)
    assert len(capsys.readouterr().out.splitlines()) == len(names["answer"]["alignment"])
