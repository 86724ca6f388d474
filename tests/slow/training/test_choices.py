"""Sharded and compiled training yield the weights of plain training."""

import pytest
import torch
from safetensors.torch import load_file

from tests.launchers import torchrun
from tests.tiny_runs import entries, flags, launch, no_scores
from vanilla_transformer.training import trainer
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.trainer import train


def run(corpus, folder, evaluate=no_scores, **changes):
    return train(parse_recipe(flags(corpus, folder, **changes)), evaluate=evaluate)


def test_train_with_fsdp_matches_ddp(corpus, tmp_path):
    for side in ("a", "b"):  # one pair to validate with: the second process has none
        path = corpus / f"validation.{side}"
        path.write_text(path.read_text().splitlines()[0] + "\n")
    for name, changes in (("whole", {}), ("shards", {"fsdp": True, "ema_decay": 0.5})):
        process = launch(torchrun(2), flags(corpus, tmp_path / name, dropout=0.2, max_grad_norm=1.0, **changes))
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors
    whole, shards = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "shards"))
    assert whole.keys() == shards.keys()
    for name, value in shards.items():
        torch.testing.assert_close(value, whole[name], msg=name, atol=2e-5, rtol=1e-4)
    assert (tmp_path / "shards" / "ema" / "model.safetensors").exists()
    losses = [
        [
            entry["validation_loss"]
            for entry in entries(tmp_path / name)
            if entry.get("model") != "moving average" and "bleu" in entry  # the runs differ in having one
        ]
        for name in ("whole", "shards")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    # One process without shards resumes from either.
    for name in ("whole", "shards"):
        (tmp_path / name / "model.safetensors").unlink()
        changes = {"dropout": 0.2, "max_grad_norm": 1.0} | ({"ema_decay": 0.5} if name == "shards" else {})
        run(corpus, tmp_path / name, gradient_accumulation_steps=2, max_steps=8, **changes)
    whole, shards = (load_file(tmp_path / name / "checkpoint-8" / "model.safetensors") for name in ("whole", "shards"))
    for name, value in shards.items():
        torch.testing.assert_close(value, whole[name], msg=name, atol=2e-5, rtol=1e-4)


def test_train_with_torch_compile_matches_eager(corpus, tmp_path, monkeypatch):
    # Compiled training pads batches to multiples of eight, and so plans other batches.
    monkeypatch.setattr(trainer, "choose_padding", lambda *_: 8)
    plain = load_file(run(corpus, tmp_path / "plain") / "model.safetensors")
    compiled = load_file(run(corpus, tmp_path / "compiled", compile=True) / "model.safetensors")
    for name, value in compiled.items():
        torch.testing.assert_close(value, plain[name], msg=name, atol=1e-4, rtol=1e-3)
