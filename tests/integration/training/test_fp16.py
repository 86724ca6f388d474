"""fp16 on a CPU. Every line of the loop that handles the scale runs.

The arithmetic of a GPU is not tested here.
"""

import json
import signal

import pytest
import torch
from safetensors.torch import load_file

from tests.tiny_runs import entries, no_scores, train_tiny
from tests.train_states import SCALE, HalfPrecision
from vanilla_transformer.training import distributed
from vanilla_transformer.training.signals import TrainingInterrupted


@pytest.fixture
def half_precision(monkeypatch):
    monkeypatch.setattr(distributed, "Accelerator", HalfPrecision)
    return HalfPrecision


def scale_of(folder):
    return json.loads((folder / "training_state.json").read_text())["progress"]["grad_scaler"][
        "scale"
    ]


def test_train_in_fp16_learns_and_scale_grows(half_precision, corpus, tmp_path):
    folder = train_tiny(corpus, tmp_path / "out", max_steps=20)
    losses = [entry["loss"] for entry in entries(folder) if "loss" in entry]
    assert losses[-1] < 0.6 * losses[0]
    assert scale_of(folder / "checkpoint-20") > SCALE
    assert {weight.dtype for weight in load_file(folder / "model.safetensors").values()} == {
        torch.float32
    }


def test_train_in_fp16_logs_unscaled_gradient_norm(half_precision, corpus, tmp_path):
    def first_norm(folder):
        return entries(train_tiny(corpus, folder, max_steps=1, logging_steps=1, save_steps=1))[0][
            "gradient_norm"
        ]

    scaled = first_norm(tmp_path / "half")
    half_precision.initial_scale = 1.0
    try:
        assert scaled == pytest.approx(first_norm(tmp_path / "unscaled"), rel=0.02)
    finally:
        half_precision.initial_scale = SCALE


def test_train_in_fp16_resumes_with_same_scale(half_precision, corpus, tmp_path):
    def interrupt(*arguments, **options):
        signal.raise_signal(signal.SIGINT)
        return no_scores(*arguments, **options)

    straight = train_tiny(corpus, tmp_path / "straight", max_steps=8)
    with pytest.raises(TrainingInterrupted, match="after step 4"):
        train_tiny(corpus, tmp_path / "stopped", interrupt, max_steps=8)
    stopped = train_tiny(corpus, tmp_path / "stopped", max_steps=8)
    assert scale_of(stopped / "checkpoint-8") == scale_of(straight / "checkpoint-8") > SCALE
    ours, theirs = (
        load_file(folder / "checkpoint-8" / "model.safetensors") for folder in (stopped, straight)
    )
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
