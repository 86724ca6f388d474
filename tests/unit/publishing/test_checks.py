"""Checks before publishing: a good folder passes, and each check fails on a folder that is broken on purpose."""

import json
import os
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer
from transformers.dynamic_module_utils import get_class_from_dynamic_module

from vanilla_transformer.cli import main
from vanilla_transformer.data.tokenizer_training import train_tokenizer
from vanilla_transformer.publishing import checks
from vanilla_transformer.publishing.behavior import check_behavior

WEIGHTS = "model.safetensors"
MODELING = "modeling_vanilla_transformer.py"


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


def replace(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


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


def untie(folder):
    def add(weights):
        weights["lm_head.weight"] = torch.zeros_like(weights["model.encoder.embed_tokens.weight"])

    change_weights(folder, add)


def shrink(folder):
    change_json(folder / "config.json", encoder_ffn_dim=16)


def transpose(folder):
    def turn(weights):
        name = "model.encoder.layers.0.fc1.weight"
        weights[name] = weights[name].T.contiguous()

    change_weights(folder, turn)


BROKEN_FILES = {
    "no weights": (lambda folder: (folder / WEIGHTS).unlink(), "files", f"{WEIGHTS} is missing"),
    "no pipeline": (
        lambda folder: (folder / "pipeline_vanilla_transformer.py").unlink(),
        "files",
        "pipeline_vanilla_transformer.py is missing",
    ),
    "a pickle": (lambda folder: (folder / "pytorch_model.bin").touch(), "no pickle", "pytorch_model.bin"),
    "truncated weights": (cut_off, "weights", "truncated or damaged"),
    "weights with NaN": (put_nan, "weights", "fc1.weight in model.safetensors holds values that are not finite"),
    "a missing tensor": (lose_a_tensor, "weights", "fc2.bias is missing from the files"),
    "a tied tensor twice": (
        untie,
        "weights",
        "lm_head.weight is in the files, but not in the configuration, or tied there",
    ),
    "a transposed tensor": (transpose, "weights", "has shape (16, 32), not (32, 16)"),
    "another shape": (shrink, "weights", "has shape (32,), not (16,)"),
    "a flipped bit": (flip_a_bit, "hashes", "not the file that the card lists"),
    "an unlisted file": (lambda folder: (folder / "LICENSE").touch(), "hashes", "does not list LICENSE"),
    "no card": (lambda folder: (folder / "README.md").unlink(), "card", "render it"),
    "no list of files": (lambda folder: (folder / "README.md").unlink(), "hashes", "no card to list the files"),
    "a card without language": (
        lambda folder: replace(folder / "README.md", "language:\n- en\n- de\n", ""),
        "card",
        "lacks language",
    ),
    "a card with a gap": (
        lambda folder: replace(folder / "README.md", "## Limitations", "## {{ name }}"),
        "card",
        "not filled: {{ name }}",
    ),
    "a card with broken Python": (
        lambda folder: replace(folder / "README.md", 'pipeline("translation"', 'pipeline("translation""'),
        "card",
        "its Python does not compile: 'translate = pipeline(",
    ),
    "an invalid generation config": (
        lambda folder: change_json(folder / "generation_config.json", early_stopping="sometimes"),
        "generation config",
        "early_stopping",
    ),
    "other code": (
        lambda folder: replace(folder / MODELING, "import math", "import math  # mine"),
        "code",
        f"{MODELING} differs from this package's",
    ),
}


@pytest.mark.parametrize("fault", BROKEN_FILES)
def test_check_folder_finds_broken_files(fault, folder, without_new_process):
    assert not failed(checks.check_folder(folder))
    break_it, name, detail = BROKEN_FILES[fault]
    break_it(folder)
    found = failed(checks.check_folder(folder))
    assert detail in found[name]


def test_check_folder_passes_a_session_of_python_in_the_card(folder, without_new_process):
    (folder / "README.md").write_text(
        (folder / "README.md").read_text(encoding="utf-8") + "\n```python\n>>> 1 + 1\n2\n```\n", encoding="utf-8"
    )
    assert not failed(checks.check_folder(folder))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
@pytest.mark.parametrize("name", ["notes.json", "config.json", "README.md"])
def test_check_folder_does_not_wait_for_a_pipe(folder, name):
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises(ValueError, match=f"{name} must be a file or a folder, but it is a pipe or a device. Delete"):
        checks.check_folder(folder)


def other_tokenizer(folder):
    words = [
        f"{one}{other}"
        for one in ("ab", "cd", "ef", "gh")
        for other in ("kl", "mn", "op", "qr", "st", "uv", "wx", "yz")
    ]
    large = train_tokenizer(words * 2, vocab_size=320)
    large.save_pretrained(folder)


def lossy_tokenizer(folder):
    content = json.loads((folder / "tokenizer.json").read_text())
    content["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, content["normalizer"]]}
    (folder / "tokenizer.json").write_text(json.dumps(content))


BROKEN_BEHAVIOR = {
    "a tokenizer of another model": (other_tokenizer, "tokenizer", "a vocabulary of 300"),
    "a tokenizer that loses capitals": (lossy_tokenizer, "tokenizer", "is decoded as 'a man is sleeping.'"),
    "another start token": (
        lambda folder: change_json(folder / "generation_config.json", decoder_start_token_id=7),
        "generation",
        "decoder_start_token_id is 7, the model's is 1",
    ),
}


def failed_behavior(folder):
    """Return the failed checks of the folder's own code, loaded as code from the Hub."""
    name = "modeling_vanilla_transformer.VanillaTransformerForConditionalGeneration"
    model = get_class_from_dynamic_module(name, folder).from_pretrained(folder, dtype=torch.float32)
    results = check_behavior(model, AutoTokenizer.from_pretrained(folder))
    return {one["name"]: one["detail"] for one in results if not one["passed"]}


@pytest.mark.parametrize("fault", BROKEN_BEHAVIOR)
def test_check_behavior_finds_a_broken_model(fault, folder):
    break_it, name, detail = BROKEN_BEHAVIOR[fault]
    break_it(folder)
    assert detail in failed_behavior(folder)[name]


def test_check_behavior_passes_a_good_model(folder):
    assert not failed_behavior(folder)


def test_check_model_prints_a_table_and_returns_a_status(folder, without_new_process, capsys):
    assert main(["check-model", str(folder)]) == 0
    assert "ok    weights" in capsys.readouterr().out
    (folder / "pytorch_model.bin").touch()
    with pytest.raises(SystemExit, match="cannot be published: 1 of 8 checks failed"):
        main(["check-model", str(folder)])
    assert "FAIL  no pickle" in capsys.readouterr().out


def test_check_model_names_a_missing_folder(tmp_path, capsys):
    assert main(["check-model", str(tmp_path / "none")]) == 2
    assert "There is no model folder" in capsys.readouterr().err


def test_check_folder_ignores_the_records_of_training(folder, without_new_process):
    (folder / "metrics.jsonl").touch()
    (folder / "checkpoint-5").mkdir()
    assert not failed(checks.check_folder(folder))
    shutil.rmtree(folder / "checkpoint-5")
