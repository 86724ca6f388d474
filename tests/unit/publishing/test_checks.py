"""Checks before publishing: a good folder passes, and each check fails on a folder that is broken on purpose."""

import json
import os

import pytest
from safetensors.torch import load_file, save_file

from vanilla_transformer.cli import main
from vanilla_transformer.publishing import checks

WEIGHTS = "model.safetensors"
MODELING = "modeling_vanilla_transformer.py"
PIPELINE = "pipeline_vanilla_transformer.py"


def failed(results):
    return {result.name: result.detail for result in checks.failed_checks(results)}


@pytest.fixture
def without_new_process(monkeypatch):
    """Skip the checks in a new process."""
    monkeypatch.setattr(checks, "_check_in_new_process", lambda folder: [])


def change_weights(folder, change):
    weights = load_file(folder / WEIGHTS)
    change(weights)
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


def change_json(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def change_text(name, old, new):
    """Return a function that replaces text of a file in a folder."""

    def change(folder):
        text = (folder / name).read_text(encoding="utf-8")
        assert old in text
        (folder / name).write_text(text.replace(old, new), encoding="utf-8")

    return change


def cut_off(folder):
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-100])


def flip_a_bit(folder):
    content = bytearray((folder / WEIGHTS).read_bytes())
    content[-50] ^= 1
    (folder / WEIGHTS).write_bytes(content)


def put_nan(folder):
    change_weights(folder, lambda weights: weights["model.encoder.layers.0.fc1.weight"][0, 0].fill_(float("nan")))


def lose_a_tensor(folder):
    change_weights(folder, lambda weights: weights.pop("model.decoder.layers.0.fc2.bias"))


def transpose(folder):
    def turn(weights):
        name = "model.encoder.layers.0.fc1.weight"
        weights[name] = weights[name].T.contiguous()

    change_weights(folder, turn)


BROKEN_FILES = {
    "no weights": (lambda folder: (folder / WEIGHTS).unlink(), "files", f"{WEIGHTS} is missing"),
    "no pipeline": (lambda folder: (folder / PIPELINE).unlink(), "files", f"{PIPELINE} is missing"),
    "a pickle": (lambda folder: (folder / "pytorch_model.bin").touch(), "no pickle", "pytorch_model.bin"),
    "truncated weights": (cut_off, "weights", "truncated or corrupt"),
    "weights with NaN": (put_nan, "weights", "hold NaN or infinity, such as in model.encoder.layers.0.fc1.weight"),
    "a missing tensor": (lose_a_tensor, "weights", "lack the tensor model.decoder.layers.0.fc2.bias"),
    "a transposed tensor": (transpose, "weights", "must have the shape (32, 16) of its config.json, got (16, 32)"),
    "a flipped bit": (flip_a_bit, "hashes", "not the file that the card lists"),
    "an unlisted file": (lambda folder: (folder / "LICENSE").touch(), "hashes", "LICENSE is not the file"),
    "no card": (lambda folder: (folder / "README.md").unlink(), "card", "render it"),
    "no list of files": (lambda folder: (folder / "README.md").unlink(), "hashes", "there is no README.md"),
    "a card without language": (change_text("README.md", "language:\n- en\n- de\n", ""), "card", "lacks language"),
    "a card with a gap": (
        change_text("README.md", "## Limitations", "## {{ name }}"),
        "card",
        "not filled: {{ name }}",
    ),
    "an invalid generation config": (
        lambda folder: change_json(folder / "generation_config.json", early_stopping="sometimes"),
        "weights",
        "early_stopping",
    ),
    "other code": (
        change_text(MODELING, "import math", "import math  # mine"),
        "code",
        f"{MODELING} differs from this package's",
    ),
}


@pytest.mark.parametrize("fault", BROKEN_FILES)
def test_check_folder_finds_broken_files(fault, folder, without_new_process):
    (folder / "metrics.jsonl").touch()  # a record of training
    assert not failed(checks.check_folder(folder))
    break_it, name, detail = BROKEN_FILES[fault]
    break_it(folder)
    found = failed(checks.check_folder(folder))
    assert detail in found[name]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
@pytest.mark.parametrize("name", ["notes.json", "config.json", "README.md"])
def test_check_folder_does_not_wait_for_a_pipe(folder, name):
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises(ValueError, match=f"{name} must be a file or a folder, but it is a pipe or a device. Delete"):
        checks.check_folder(folder)


def test_check_model_prints_a_table_and_returns_a_status(folder, without_new_process, capsys):
    assert main(["check-model", str(folder)]) == 0
    assert "ok    weights" in capsys.readouterr().out
    (folder / "pytorch_model.bin").touch()
    with pytest.raises(SystemExit, match="cannot be published: 1 of 7 checks failed"):
        main(["check-model", str(folder)])
    assert "FAIL  no pickle" in capsys.readouterr().out


def test_check_model_names_a_missing_folder(tmp_path, capsys):
    assert main(["check-model", str(tmp_path / "none")]) == 2
    assert "There is no model folder" in capsys.readouterr().err
