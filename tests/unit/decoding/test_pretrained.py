"""Loading for the commands: a model with missing, damaged or meaningless parts is refused."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM, MarianMTModel

from vanilla_transformer.cli import main
from vanilla_transformer.conversion import utils
from vanilla_transformer.decoding import pretrained
from vanilla_transformer.decoding.pretrained import load_pretrained
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration

WEIGHTS = "model.safetensors"


def change_weights(folder, change):
    weights = load_file(folder / WEIGHTS)
    change(weights)
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


def set_generation(**values):
    def change(folder):
        path = folder / "generation_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return change


def fill(value):
    return lambda folder: change_weights(
        folder, lambda weights: weights["model.encoder.layers.0.fc1.bias"].fill_(value)
    )


DAMAGE = {
    "a missing tensor": (
        lambda folder: change_weights(folder, lambda weights: weights.pop("model.decoder.layers.0.fc2.bias")),
        "lack 1 tensors, such as model.decoder.layers.0.fc2.bias",
    ),
    "no tensors": (lambda folder: change_weights(folder, dict.clear), "lack "),
    "no weights": (lambda folder: (folder / WEIGHTS).unlink(), WEIGHTS),
    "truncated weights": (
        lambda folder: (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-100]),
        "truncated or corrupt",
    ),
    "another shape": (
        lambda folder: change_weights(
            folder, lambda weights: weights.update({"model.encoder.layers.0.fc1.bias": torch.zeros(3)})
        ),
        "do not fit",
    ),
    "NaN": (fill(float("nan")), "hold NaN or infinity, such as in model.encoder.layers.0.fc1.bias"),
    "infinity": (fill(float("inf")), "hold NaN or infinity"),
    "a truncated generation config": (
        lambda folder: (folder / "generation_config.json").write_text('{"num_beams": 4,'),
        "generation_config.json of",
    ),
    "an empty generation config": (lambda folder: (folder / "generation_config.json").write_text(""), "is invalid"),
    "a list as generation config": (lambda folder: (folder / "generation_config.json").write_text("[]"), "is invalid"),
    "beams in words": (set_generation(num_beams="four"), "`num_beams` must be an integer of 1 or more, got 'four'"),
    "no beams": (set_generation(num_beams=0), "`num_beams` must be an integer of 1 or more, got 0"),
    "early stopping": (set_generation(early_stopping="sometimes"), "early_stopping"),
    "a truncated tokenizer": (lambda folder: (folder / "tokenizer.json").write_text("{"), "tokenizer"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_translate_refuses_a_damaged_model_in_one_line(kind, folder, capsys):
    damage, said = DAMAGE[kind]
    damage(folder)
    assert main(["translate", str(folder), "A man."]) == 2
    output = capsys.readouterr()
    assert not output.out, "random words must not be printed"
    errors = [line for line in output.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and said in errors[0]


@pytest.mark.parametrize("command", ["evaluate", "convert"])
@pytest.mark.parametrize("kind", ["a missing tensor", "NaN", "a truncated generation config"])
def test_commands_refuse_a_damaged_model(command, kind, folder, tmp_path, capsys):
    damage, said = DAMAGE[kind]
    damage(folder)
    (tmp_path / "text").write_text("A man.\n")
    words = {
        "evaluate": ["--source", str(tmp_path / "text"), "--target", str(tmp_path / "text")],
        "convert": [str(tmp_path / "converted"), "--target_format", "marian"],
    }[command]
    assert main([command, str(folder), *words]) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "converted").exists()


def test_load_pretrained_accepts_a_bias_that_bans_a_token(folder):
    fill(-float("inf"))(folder)
    assert load_pretrained(AutoModelForSeq2SeqLM, folder)


def test_load_pretrained_names_a_missing_folder():
    with pytest.raises(
        FileNotFoundError, match="There is no model folder runs/of/mine, and the Hub has no such names"
    ):
        load_pretrained(AutoModelForSeq2SeqLM, "runs/of/mine")


def test_load_model_refuses_another_type(folder):
    assert utils.load_model(VanillaTransformerForConditionalGeneration, folder).dtype == torch.float32
    with pytest.raises(ValueError, match="must be a model of type 'marian', got type 'vanilla_transformer'"):
        utils.load_model(MarianMTModel, folder)


@pytest.mark.parametrize(("threads", "cores", "variable", "used"), [(4, 2, None, 2), (1, 2, None, 1), (4, 2, "4", 4)])
def test_loading_uses_no_more_threads_than_cores(monkeypatch, folder, threads, cores, variable, used):
    given = [threads]
    monkeypatch.setattr(pretrained, "usable_cores", lambda: cores)
    monkeypatch.setattr(torch, "get_num_threads", lambda: given[-1])
    monkeypatch.setattr(torch, "set_num_threads", given.append)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if variable is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    load_pretrained(AutoModelForSeq2SeqLM, folder)
    assert given[-1] == used
