"""Checks before publishing: a good folder passes, and each check fails on a folder that is broken
on purpose.
"""

import json
import os
from functools import partial

import pytest
from safetensors.torch import load_file, save_file

from tests import tiny
from tests.publishable import FAMILIES, add_card, change_json, failed, family_folder
from vanilla_transformer.cli import main
from vanilla_transformer.errors import UserError
from vanilla_transformer.publishing import checks
from vanilla_transformer.publishing.checks import check_folder
from vanilla_transformer.publishing.staging import (
    TASKS,
    code_names,
    find_task,
    missing_files,
    stage,
)

WEIGHTS = "model.safetensors"
MODELING = "modeling_vanilla_transformer.py"
PIPELINE = "pipeline_vanilla_transformer.py"
TOKEN = "hf_" + "aB3" * 12
pytestmark = pytest.mark.usefixtures("without_new_process")


def change_weights(folder, change):
    weights = load_file(folder / WEIGHTS)
    change(weights)
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


def change(name, **values):
    """Return a function that sets entries of a JSON file in a folder."""
    return lambda folder: change_json(folder / name, **values)


def add(text):
    """Return a function that adds text to the card in a folder."""
    return change_text("README.md", "## Limitations", f"## Limitations\n\n{text}\n")


def change_text(name, old, new):
    """Return a function that replaces text of a file in a folder."""

    def replace(folder):
        text = (folder / name).read_text(encoding="utf-8")
        assert old in text
        (folder / name).write_text(text.replace(old, new), encoding="utf-8")

    return replace


def delete(name):
    """Return a function that deletes a file of a folder."""
    return lambda folder: (folder / name).unlink()


def touch(name):
    """Return a function that adds an empty file to a folder."""
    return lambda folder: (folder / name).touch()


def truncate(folder):
    content = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(content[:-100])


def flip_a_bit(folder):
    content = bytearray((folder / WEIGHTS).read_bytes())
    content[-50] ^= 1
    (folder / WEIGHTS).write_bytes(content)


def delete_a_listed_file(folder):
    (folder / "LICENSE").touch()
    add_card(folder)
    (folder / "LICENSE").unlink()


TENSOR = "model.encoder.layers.0.fc1.weight"
BIAS = "model.decoder.layers.0.fc2.bias"


def put_nan(weights):
    weights[TENSOR][0, 0].fill_(float("nan"))


def remove_bias(weights):
    del weights[BIAS]


def transpose(weights):
    weights[TENSOR] = weights[TENSOR].T.contiguous()


BROKEN_FILES = {
    "no weights": (delete(WEIGHTS), "files", f"{WEIGHTS} is missing"),
    "no pipeline": (delete(PIPELINE), "files", f"{PIPELINE} is missing"),
    "a pickle": (touch("pytorch_model.bin"), "no pickle", "pytorch_model.bin"),
    "truncated weights": (truncate, "weights", "truncated or corrupt"),
    "weights with NaN": (
        partial(change_weights, change=put_nan),
        "weights",
        f"hold NaN or infinity, such as in {TENSOR}",
    ),
    "a missing tensor": (
        partial(change_weights, change=remove_bias),
        "weights",
        f"lack the tensor {BIAS}",
    ),
    "a transposed tensor": (
        partial(change_weights, change=transpose),
        "weights",
        "must have the shape (32, 16) of its config.json, got (16, 32)",
    ),
    "a flipped bit": (flip_a_bit, "hashes", "not the file that the card lists"),
    "an unlisted file": (touch("LICENSE"), "hashes", "LICENSE is not the file"),
    "a listed file that is gone": (delete_a_listed_file, "hashes", "LICENSE is not the file"),
    "no card": (delete("README.md"), "card", "render it"),
    "no list of files": (delete("README.md"), "hashes", "there is no README.md"),
    "a card without language": (
        change_text("README.md", "language:\n- en\n- de\n", ""),
        "card",
        "lacks language",
    ),
    "a card with a gap": (
        change_text("README.md", "## Limitations", "## {{ name }}"),
        "card",
        "not filled: {{ name }}",
    ),
    "an invalid generation config": (
        change("generation_config.json", early_stopping="sometimes"),
        "weights",
        "early_stopping",
    ),
    "other code": (
        change_text(MODELING, "import math", "import math  # mine"),
        "code",
        f"{MODELING} differs from this package's",
    ),
    "a token in the configuration": (
        change("config.json", hub_token=TOKEN),
        "private data",
        "an access token",
    ),
    "a token of another form": (
        change("config.json", hub_token="abc"),
        "private data",
        "'hub_token'",
    ),
    "a token in a nested entry": (
        change("tokenizer_config.json", init_kwargs={"use_auth_token": "abc"}),
        "private data",
        "'use_auth_token'",
    ),
    "a token in the card": (add(TOKEN), "private data", "README.md holds an access token"),
    "a home folder in the card": (add("/home/alice/x"), "private data", "/home/alice/x"),
    "a cache folder in the card": (add("a/.cache/b"), "private data", "a/.cache/b"),
    "a path in the tokenizer": (
        change("tokenizer_config.json", tokenizer_file="/root/a/tokenizer.json"),
        "private data",
        "/root/a/tokenizer.json",
    ),
}


@pytest.mark.parametrize("fault", BROKEN_FILES)
def test_check_folder_finds_broken_files(fault, folder):
    (folder / "metrics.jsonl").touch()  # a record of training
    assert not failed(folder)
    break_it, name, detail = BROKEN_FILES[fault]
    break_it(folder)
    failures = failed(folder)
    assert detail in failures[name] and TOKEN not in str(failures)


def test_check_folder_names_the_home_folder(folder, monkeypatch):
    add("`/srv/people/alice/model`")(folder)
    # Users of containers may live in /data, which is also the beginning of many other paths.
    for home, is_named in {"/srv/people/alice": True, "/srv": False}.items():
        monkeypatch.setenv("HOME", home)
        problem = failed(folder).get("private data", "")
        assert (f"names the folder {home} of your machine" in problem) is is_named


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
@pytest.mark.parametrize("name", ["notes.json", "config.json", "README.md"])
def test_check_folder_does_not_wait_for_a_pipe(folder, name):
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    message = f"{name} must be a file or a folder, but it is a pipe or a device. Delete"
    with pytest.raises(ValueError, match=message):
        checks.check_folder(folder)


def test_check_model_prints_a_table_and_returns_a_status(folder, capsys):
    assert main(["check-model", str(folder)]) == 0
    assert "ok    weights" in capsys.readouterr().out
    (folder / "pytorch_model.bin").touch()
    with pytest.raises(SystemExit, match="cannot be published: 1 of 7 checks failed"):
        main(["check-model", str(folder)])
    assert "FAIL  no pickle" in capsys.readouterr().out


def test_check_model_names_a_missing_folder(tmp_path, capsys):
    assert main(["check-model", str(tmp_path / "none")]) == 2
    assert "There is no model folder" in capsys.readouterr().err


@pytest.mark.parametrize("family", FAMILIES)
def test_check_folder_passes_the_files_of_every_family(family, tmp_path):
    folder = family_folder(family, tmp_path)
    assert not failed(folder)
    assert f"pipeline_tag: {FAMILIES[family][1]}\n" in (folder / "README.md").read_text()


@pytest.mark.parametrize("name", ["source.spm", "merges.txt", "sentencepiece.bpe.model"])
def test_publishable_files_has_the_tokenizers_of_converted_models(name, folder):
    """They are of Marian, FSMT and M2M-100."""
    (folder / "tokenizer.json").unlink()
    assert missing_files(folder) == ["tokenizer.json"]
    (folder / name).touch()
    assert missing_files(folder) == [] and folder / name in checks.publishable_files(folder)


def test_check_folder_names_a_model_without_a_head(tmp_path):
    folder = family_folder("encoder-only", tmp_path)
    change_json(folder / "config.json", architectures=["VanillaTransformerEncoderModel"])
    assert "`architectures` must name a model that ends with one of" in failed(folder)["weights"]


def test_class_of_a_user_that_translates_may_have_any_name():
    assert find_task(tiny.tiny_config(architectures=["Gated"])) == TASKS["ForConditionalGeneration"]
    with pytest.raises(UserError, match="must name a model that ends with one of .* got 'Gated'"):
        find_task(tiny.tiny_encoder_config(architectures=["Gated"]))


def test_check_folder_leaves_out_the_state_of_trainer(folder):
    """`Trainer.save_model` writes its arguments, a pickle, beside the model."""
    (folder / "training_args.bin").write_bytes(b"pickle")
    results = {result.name: result for result in checks.check_folder(folder)}
    note = results["no pickle"].detail
    assert "training_args.bin of transformers' Trainer is left out" in note
    assert "training_args.bin" not in {path.name for path in checks.publishable_files(folder)}
    (folder / "pytorch_model.bin").touch()
    assert [*failed(folder)] == ["no pickle"]


CODES = [("xx", False), ("english", False), ("ace", True)]


@pytest.mark.parametrize(("code", "passes"), CODES)
def test_check_folder_wants_languages_of_iso_639(code, passes, folder):
    card = folder / "README.md"
    card.write_text(card.read_text().replace("- de\n", f"- {code}\n", 1))
    result = next(check for check in check_folder(folder) if check.name == "card")
    assert result.passed is passes
    message = f"`language` must be a code of ISO 639, such as de, got '{code}'"
    assert passes or message in result.detail


def test_check_folder_refuses_a_class_of_the_user(folder, capsys):
    (folder / "gated.py").write_text("import torch\nfrom vanilla_transformer import Model\n")
    commands = [["check-model", str(folder)], ["push-to-hub", str(folder), "a/b", "--dry_run"]]
    for words in commands:
        assert main(words) == 2
        error = capsys.readouterr().err
        assert "gated.py imports it" in error and "model.push_to_hub" in error
        assert error.count("\n") == 1


@pytest.mark.parametrize("config", ["[]", '{"model_type": []}', "not JSON"])
def test_check_model_names_a_damaged_config(config, folder, capsys):
    for name in code_names(folder):
        (folder / name).unlink()
    (folder / "config.json").write_text(config)
    with pytest.raises(SystemExit, match="cannot be published"):
        main(["check-model", str(folder)])
    shown = capsys.readouterr().out.replace(str(folder), "FOLDER")
    assert "config.json" in shown and "/model/config.json" not in shown


def test_stage_adds_the_code_of_a_model_without_any(folder, tmp_path):
    for name in code_names(folder):
        (folder / name).unlink()
    config = json.loads((folder / "config.json").read_text())
    names = config.keys() - {"auto_map", "custom_pipelines"}
    plain = {name: config[name] for name in names}
    (folder / "config.json").write_text(json.dumps(plain))
    add_card(folder)
    assert failed(folder) and main(["check-model", str(folder)]) == 0
    staged = stage(folder, tmp_path / "staged")
    assert not failed(staged)
    assert json.loads((staged / "config.json").read_text()) == config
    assert json.loads((folder / "config.json").read_text()) == plain
