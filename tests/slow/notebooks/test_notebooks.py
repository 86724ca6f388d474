"""The notebooks run from top to bottom, as they are or with smaller models."""

import os
import sys
from pathlib import Path

import pytest

from tests.docs_pages import ROOT
from tests.marian_files import build_marian_tokenizer, marian_model

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
NOTEBOOKS = ROOT / "notebooks"


def run(name, folder, monkeypatch, **replaced):
    """Run a notebook in `folder`, after replacing text of its cells, and return its outputs."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    for cell in notebook.cells:
        for old, new in replaced.items():
            cell.source = cell.source.replace(old, new)
    resources = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(
        notebook, timeout=900, kernel_name="python3", resources=resources
    ).execute()
    return [
        output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs
    ]


def pictures(outputs):
    return sum("image/png" in output.get("data", {}) for output in outputs)


def printed(outputs):
    return "\n".join(
        output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs
    )


def test_annotated_transformer_equals_the_package(tmp_path, monkeypatch):
    assert pictures(run("the_transformer_annotated.ipynb", tmp_path, monkeypatch)) == 2


def test_notebook_from_text_files_to_a_hub_model(tmp_path, monkeypatch):
    fewer = {
        "--max_steps 2500": "--max_steps 30",
        "--budget 200": "--budget 20",
        "../examples": str(ROOT / "examples"),
    }
    outputs = run("from_text_files_to_a_hub_model.ipynb", tmp_path, monkeypatch, **fewer)
    assert pictures(outputs) == 3
    shown = printed(outputs)
    assert "error:" not in shown and "BLEU" in shown and "Nothing has been written." in shown
    assert "| LSTM, equal minutes |" in shown


def test_notebook_that_fine_tunes_opus_mt(tmp_path, monkeypatch):
    folder = tmp_path / "opus"
    folder.mkdir()
    tokenizer = build_marian_tokenizer(folder)
    marian_model(len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    outputs = run("fine_tune_opus_mt.ipynb", tmp_path, monkeypatch, **{
        '"Helsinki-NLP/opus-mt-en-de"': repr(str(folder)), "STEPS = 200": "STEPS = 8",
    })  # fmt: skip
    assert pictures(outputs) == 1 and "error:" not in printed(outputs)
