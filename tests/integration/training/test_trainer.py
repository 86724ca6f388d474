"""The training loop learns, writes its results, and runs on two processes as on one."""

import json
import logging
import os
import signal
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from transformers.utils import logging as library_logging

from tests.sweeps import rare
from tests.tiny import TINY_SIZES
from tests.tiny_runs import (
    assert_similar_weights,
    assert_two_processes_match_one,
    entries,
    flags,
    launch,
    no_scores,
    start,
    train_tiny,
    wait_for_metrics,
)
from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.machine import cores
from vanilla_transformer.training import trainer
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.signals import StopSignal, TrainingInterrupted
from vanilla_transformer.training.trainer import train


def test_train_learns_and_saves_model_folder(corpus, tmp_path):
    recipe = parse_recipe(flags(corpus, tmp_path / "out", max_steps=20, eval_steps=10))
    folder = train(recipe, evaluate=no_scores)
    losses = [entry["loss"] for entry in entries(folder) if "loss" in entry]
    assert losses[-1] < 0.6 * losses[0]
    model = VanillaTransformerForConditionalGeneration.from_pretrained(folder)
    assert model.generation_config.num_beams == 4
    assert model.config.max_source_length >= 5
    names = {path.name for path in folder.iterdir()}
    assert names >= {"model.safetensors", "config.json", "generation_config.json"}
    assert names >= {"tokenizer.json", "recipe.json"}
    assert json.loads((folder / "recipe.json").read_text())["d_model"] == 16
    assert [name for name in names if name.startswith(".")] == [".lock"]


def test_train_from_python_does_as_the_command(corpus, tmp_path, caplog, real_pictures):
    """Score, draw and log."""
    options = {"max_steps": 2, "eval_steps": 1, "eval_examples": 2}
    recipe = parse_recipe(flags(corpus, tmp_path / "out", **options))
    folder = train(recipe)
    assert (folder / "learning_curve.png").exists()
    assert (folder / "lengths.png").exists()
    beginnings = [line.split(" in ")[0] for line in caplog.messages[-2:]]
    assert beginnings == ["The learning curve is", "The lengths are"]
    validations = [entry for entry in entries(folder) if "bleu" in entry]
    assert {len(entry["examples"]) for entry in validations} == {2}
    for example, source in zip(validations[0]["examples"], ["a a", "b c d"], strict=True):
        assert [*example] == ["source", "hypothesis", "reference"]
        assert example["source"] == source
    assert "  source: a a\n    hypothesis: " in "\n".join(caplog.messages)
    package = logging.getLogger("vanilla_transformer")
    assert package.level == logging.NOTSET and library_logging.is_progress_bar_enabled()


def test_train_computes_with_the_threads_of_its_recipe(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(cores, "usable_cores", lambda: 3)
    used = []
    monkeypatch.setattr(torch, "set_num_threads", used.append)
    train_tiny(corpus, tmp_path / "out", max_steps=1, threads=3)
    assert used == [3]


def source_scripts(folder):
    config = json.loads((folder / "config.json").read_text())
    return config["warning_limits"]["source_scripts"]


def test_train_stores_the_scripts_of_its_sources(corpus, tmp_path):
    """Store the scripts of the runs before as well."""
    folder = train(parse_recipe(flags(corpus, tmp_path / "first", max_steps=1)))
    assert source_scripts(folder) == ["LATIN"]
    lines = (corpus / "train.a").read_text().count("\n")
    (corpus / "train.a").write_text("собака спит\n" * lines)
    changes = dict.fromkeys([*TINY_SIZES, "vocab_size"])
    changes |= {"init_from": folder, "max_steps": 1}
    further = train(parse_recipe(flags(corpus, tmp_path / "second", **changes)))
    assert source_scripts(further) == ["CYRILLIC", "LATIN"]


BY_CHRF = "mean of checkpoints, by validation chrf (1.00, 2.00),"
BY_CHRF += " since BLEU (4.00, 4.00) is below 5"
FINAL_MODELS = [(2, BY_CHRF), (1, "last checkpoint")]


@pytest.mark.parametrize(("count", "final"), FINAL_MODELS)
def test_train_validates_greedily_and_finally(corpus, tmp_path, caplog, count, final):
    """Search finally as the paper does."""
    with caplog.at_level("INFO", logger="vanilla_transformer"):
        folder = train_tiny(corpus, tmp_path / "out", average_checkpoints=count)
    validations = [entry for entry in entries(folder) if "bleu" in entry]
    scores = [(entry["step"], entry["bleu"]) for entry in validations]
    assert scores == [(4, 1.0)] + [(6, 4.0)] * count
    lines = [text for text in caplog.messages if text.startswith("Validation: ")]
    steps = [line.split(",")[0] for line in lines]
    assert steps == ["Validation: step 4"] + ["Validation: step 6"] * count
    assert f"The final model is the {final}." in caplog.messages


def test_train_averages_last_checkpoints(corpus, tmp_path):
    folder = train_tiny(corpus, tmp_path / "out")
    first = load_file(folder / "checkpoint-3" / "model.safetensors")
    last = load_file(folder / "checkpoint-6" / "model.safetensors")
    final = load_file(folder / "model.safetensors")
    for name, value in final.items():
        torch.testing.assert_close(value, (first[name] + last[name]) / 2)


def test_train_step_accumulation_matches_large_batch(corpus, tmp_path, monkeypatch):
    """Two batches with different numbers of tokens yield the weights of the same pairs in one
    batch.

    Gradient descent is used, since Adam would hide a wrong scale of the gradient.
    """

    def descent(parameters, lr, **_):
        return torch.optim.SGD(parameters, lr=lr, fused=True)

    monkeypatch.setattr(torch.optim, "Adam", descent)
    large = train_tiny(corpus, tmp_path / "large", max_tokens=10_000, max_steps=1)
    unpatched = trainer.train_step

    def train_step(state, batches):
        return unpatched(state, _split_unevenly(*batches))

    monkeypatch.setattr(trainer, "train_step", train_step)
    parts = train_tiny(corpus, tmp_path / "parts", max_tokens=10_000, max_steps=1)
    assert_similar_weights(large, parts)


def _split_unevenly(batch):
    return [_take(batch, part) for part in (slice(0, 7), slice(7, None))]


def _take(batch, part):
    tensors = {}
    for name, tensor in batch.tensors.items():
        if name != "label_places":
            tensors[name] = tensor[part]
    tensors["label_places"] = (tensors["labels"].flatten() != -100).nonzero().flatten()
    return replace(batch, tensors=tensors, pairs=batch.pairs[part])


def test_train_on_two_processes_matches_one(corpus, tmp_path):
    assert_two_processes_match_one(corpus, tmp_path)


def launch_by_accelerate(arguments):
    module = "accelerate.commands.launch"
    return launch([module, "--cpu", "--num_processes", "1"], arguments)


SIGNALS = [(start, signal.SIGTERM), rare((launch_by_accelerate, signal.SIGINT))]


@pytest.mark.parametrize(("begin", "number"), SIGNALS)
def test_train_saves_usable_model_at_a_signal(corpus, tmp_path, begin, number):
    """Exit with 75."""
    folder = tmp_path / "out"
    process = begin(flags(corpus, folder, max_steps=1_000_000, save_steps=1_000_000))
    wait_for_metrics(folder)
    os.killpg(process.pid, number)  # as a terminal does at Ctrl-C, to all that it runs
    _, errors = process.communicate(timeout=120)
    assert TrainingInterrupted.exit_status == 75
    assert begin is not start or process.returncode == 75, errors
    assert "Interrupted after step" in errors
    assert "The same command resumes from" in errors
    (checkpoint,) = folder.glob("checkpoint-*")
    VanillaTransformerForConditionalGeneration.from_pretrained(checkpoint)
    assert not (folder / "model.safetensors").exists()


def test_train_stops_after_a_signal_during_a_check(corpus, tmp_path, monkeypatch):
    """Stop after the next step."""
    check = StopSignal.check
    checks = []

    def interrupted(stop, *arguments, **options):
        stops = check(stop, *arguments, **options)
        checks.append(stops)
        if len(checks) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return stops

    monkeypatch.setattr(StopSignal, "check", interrupted)
    with pytest.raises(TrainingInterrupted):
        train_tiny(corpus, tmp_path / "out", max_steps=9)
    (checkpoint,) = (tmp_path / "out").glob("checkpoint-*")
    assert checkpoint.name == "checkpoint-3"
