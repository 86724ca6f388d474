"""Sharded checkpoints: written while training continues, and read by other numbers of processes."""

import shutil

import pytest

from tests.launchers import torchrun
from tests.tiny_runs import (
    SLOW_DISK,
    assert_same_run,
    assert_similar_weights,
    finish,
    flags,
    launch,
    train_tiny,
)
from vanilla_transformer.training.checkpoint import load_progress

PLAIN = {"max_steps": 8, "save_steps": 1, "dropout": 0.3, "ema_decay": 0.9}
RUN = PLAIN | {"fsdp": True}


@pytest.mark.parametrize(
    ("options", "ranks"),
    [(RUN, (0, 1)), (PLAIN, (0,)), (RUN | {"mixed_precision": "bf16"}, (1,))],
    ids=["sharded", "plain", "bf16"],
)
def test_killed_checkpoint_leaves_the_one_before(corpus, tmp_path, options, ranks):
    """Training continues meanwhile; after a restart it ends as if nothing had happened, bit for
    bit.
    """
    finish(launch(torchrun(2), flags(corpus, tmp_path / "straight", **options)))
    for rank in ranks:
        folder = tmp_path / f"killed-{rank}"
        launcher = torchrun(2, "--max_restarts", 1)
        arguments = [str(rank), *flags(corpus, folder, **options)]
        errors = finish(launch(launcher, arguments, script=SLOW_DISK))
        assert "Resuming from step 4" in errors
        assert_same_run(tmp_path / "straight", folder)
        assert [path.name for path in folder.glob(".*")] == [".lock"]  # no unfinished folder


def test_sharded_checkpoint_resumes_on_one_and_three(corpus, tmp_path):
    """With as many batches per step it is the same run, up to the order of sums."""
    expected = train_tiny(corpus, tmp_path / "plain", **PLAIN, gradient_accumulation_steps=6)
    short = RUN | {"max_steps": 4, "gradient_accumulation_steps": 3}
    finish(launch(torchrun(2), flags(corpus, tmp_path / "two", **short)))
    for processes in (1, 3):
        folder = shutil.copytree(tmp_path / "two", tmp_path / str(processes))
        options = RUN | {"gradient_accumulation_steps": 6 // processes}
        errors = finish(launch(torchrun(processes), flags(corpus, folder, **options)))
        assert "Resuming from step 4" in errors
        assert f"now has {processes} processes instead of 2" in errors
        shards = folder / "checkpoint-8" / "shards"
        assert len([*shards.glob("*.distcp")]) == processes
        assert_similar_weights(expected, folder)
        ours = load_progress(expected / "checkpoint-8")
        theirs = load_progress(folder / "checkpoint-8")
        assert ours["batch_sampler"] == theirs["batch_sampler"]
