"""Commands that load or write a model, a tokenizer or a corpus."""

import json
from pathlib import Path

import pytest

from tests.processes import run_python
from vanilla_transformer.cli import main
from vanilla_transformer.loading.model_folders import save_model_folder

SCRIPTS = Path(__file__).parents[3] / "scripts"


@pytest.fixture
def folder(tiny_model, tiny_tokenizer, tmp_path):
    return str(save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model"))


@pytest.fixture
def texts(tmp_path):
    for name, lines in (
        ("a.en", "A man is sleeping.\nTwo dogs.\n"),
        ("a.de", "Ein Mann schläft.\nZwei Hunde.\n"),
    ):
        (tmp_path / name).write_text(lines)
    return tmp_path


def test_train_tokenizer_trains_the_chosen_model(texts):
    words = [
        "train-tokenizer",
        f"{texts}/a.en",
        "--output_dir",
        f"{texts}/tok",
        "--vocab_size",
        "280",
    ]
    assert main([*words, "--model", "unigram"]) == 0
    assert json.loads((texts / "tok" / "tokenizer.json").read_text())["model"]["type"] == "Unigram"


def test_write_corpus_writes_the_requested_number_of_pairs(tmp_path, capsys):
    sizes = ["--train", "20", "--validation", "5", "--test", "5"]
    assert main(["write-corpus", "--output_dir", str(tmp_path / "corpus"), *sizes]) == 0
    assert len((tmp_path / "corpus" / "train.de").read_text().splitlines()) == 20


def test_script_runs_as_a_program(folder):
    finished = run_python(SCRIPTS / "translate.py", folder, "Two dogs.")
    assert finished.returncode == 0, finished.stderr
    assert len(finished.stdout.splitlines()) == 1


@pytest.mark.parametrize("arguments", [["--version"], ["train", "--help"]])
def test_module_runs_as_a_program(arguments):
    finished = run_python("-m", "vanilla_transformer", *arguments)
    assert finished.returncode == 0, finished.stderr
    assert "vanilla-transformer" in finished.stdout
