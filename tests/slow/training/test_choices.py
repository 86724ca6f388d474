"""Sharded training yields the weights of plain training."""

import pytest

from tests.launchers import torchrun
from tests.tiny_runs import assert_similar_weights, entries, finish, flags, launch, train_tiny


def test_train_with_fsdp_matches_ddp(corpus, tmp_path):
    for side in ("a", "b"):  # one pair to validate with: the second process has none
        path = corpus / f"validation.{side}"
        path.write_text(path.read_text().splitlines()[0] + "\n")
    common = {"dropout": 0.2, "max_grad_norm": 1.0}
    whole, shards = tmp_path / "whole", tmp_path / "shards"
    finish(launch(torchrun(2), flags(corpus, whole, **common)))
    finish(launch(torchrun(2), flags(corpus, shards, fsdp=True, ema_decay=0.5, **common)))
    assert_similar_weights(whole, shards)
    assert (shards / "ema" / "model.safetensors").exists()
    assert losses(whole) == pytest.approx(losses(shards), rel=1e-4)
    # One process without shards resumes from either.
    common |= {"gradient_accumulation_steps": 2, "max_steps": 8}
    for folder, changes in ((whole, {}), (shards, {"ema_decay": 0.5})):
        (folder / "model.safetensors").unlink()
        train_tiny(corpus, folder, **common, **changes)
    assert_similar_weights(whole / "checkpoint-8", shards / "checkpoint-8")


def losses(folder):
    """Return the losses of validations, but not of a moving average, which one run has."""
    scored = [entry for entry in entries(folder) if "bleu" in entry]
    plain = [entry for entry in scored if entry.get("model") != "moving average"]
    return [entry["validation_loss"] for entry in plain]
