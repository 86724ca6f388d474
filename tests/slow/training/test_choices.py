"""Sharded training yields the weights of plain training."""

import pytest

from tests.launchers import torchrun
from tests.tiny_runs import assert_similar_weights, entries, finish, flags, launch, train_tiny


def test_train_with_fsdp_matches_ddp(corpus, tmp_path):
    for side in ("a", "b"):  # one pair to validate with: the second process has none
        path = corpus / f"validation.{side}"
        path.write_text(path.read_text().splitlines()[0] + "\n")
    for name, changes in (("whole", {}), ("shards", {"fsdp": True, "ema_decay": 0.5})):
        finish(
            launch(
                torchrun(2),
                flags(corpus, tmp_path / name, dropout=0.2, max_grad_norm=1.0, **changes),
            )
        )
    assert_similar_weights(tmp_path / "whole", tmp_path / "shards")
    assert (tmp_path / "shards" / "ema" / "model.safetensors").exists()
    losses = [
        [
            entry["validation_loss"]
            for entry in entries(tmp_path / name)
            if entry.get("model") != "moving average"
            and "bleu" in entry  # the runs differ in having one
        ]
        for name in ("whole", "shards")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    # One process without shards resumes from either.
    for name in ("whole", "shards"):
        (tmp_path / name / "model.safetensors").unlink()
        changes = {"dropout": 0.2, "max_grad_norm": 1.0} | (
            {"ema_decay": 0.5} if name == "shards" else {}
        )
        train_tiny(corpus, tmp_path / name, gradient_accumulation_steps=2, max_steps=8, **changes)
    assert_similar_weights(
        tmp_path / "whole" / "checkpoint-8", tmp_path / "shards" / "checkpoint-8"
    )
