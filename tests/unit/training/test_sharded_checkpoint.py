"""Plain checkpoints (safetensors) and sharded ones (torch.distributed.checkpoint) hold the same."""

import copy
import errno
import os
import stat
import threading

import pytest
import torch
from accelerate import Accelerator
from torch.distributed.checkpoint import FileSystemWriter

from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.training.checkpoint import (
    ResumeState,
    find_damage,
    load_model_weights,
    load_progress,
    load_resume_state,
    save_checkpoint,
)
from vanilla_transformer.training.sharded_checkpoint import ShardedCheckpointWriter


@pytest.fixture
def state(tiny_model):
    """Return a state with an EMA and Adam's tensors of every parameter."""
    ema = {name: torch.randn_like(parameter) for name, parameter in tiny_model.named_parameters()}
    optimizer = {
        f"{name}.{kind}": torch.randn_like(t) for name, t in ema.items() for kind in ("exp_avg", "exp_avg_sq")
    }
    optimizer |= {f"{name}.step": torch.tensor(3.0) for name in ema}
    return ResumeState({"step": 3, "recipe": {"seed": 0}}, [{"lr": 0.1, "params": list(ema)}], optimizer, ema)


def save_sharded_checkpoint(model, tokenizer, state, folder):
    writer = ShardedCheckpointWriter(Accelerator(cpu=True))
    writer.save(model, tokenizer, state, folder)
    writer.wait()
    return folder


def zeros_like(state):
    optimizer, ema = ({name: torch.zeros_like(t) for name, t in part.items()} for part in (state.optimizer, state.ema))
    return ResumeState({}, [], optimizer, ema)


def assert_equal(ours, theirs):
    assert (ours.progress, ours.param_groups) == (theirs.progress, theirs.param_groups)
    for mine, expected in ((ours.optimizer, theirs.optimizer), (ours.ema, theirs.ema)):
        assert mine.keys() == expected.keys()
        assert all(torch.equal(mine[name], expected[name]) for name in expected)


def test_sharded_checkpoint_holds_same_as_plain_one(tiny_model, tiny_tokenizer, state, tmp_path):
    plain = save_checkpoint(tiny_model, tiny_tokenizer, state, tmp_path / "plain")
    sharded = save_sharded_checkpoint(tiny_model, tiny_tokenizer, state, tmp_path / "sharded")
    for folder in (plain, sharded):
        assert find_damage(folder) is None and load_progress(folder) == state.progress
        assert_equal(load_resume_state(folder, zeros_like(state)), state)
    weights = [load_model_weights(folder) for folder in (plain, sharded)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0].keys() | weights[1].keys())
    assert not list(tmp_path.glob(".*"))


def test_sharded_checkpoint_is_read_into_tensors_of_run(tiny_model, tiny_tokenizer, state, tmp_path):
    folder = save_sharded_checkpoint(tiny_model, tiny_tokenizer, state, tmp_path / "sharded")
    like = zeros_like(state)
    assert load_resume_state(folder, like).optimizer is like.optimizer


SAVERS = pytest.mark.parametrize("save", [save_checkpoint, save_sharded_checkpoint], ids=["plain", "sharded"])


@SAVERS
def test_load_resume_state_without_ema_reads_none(tiny_model, tiny_tokenizer, state, tmp_path, save):
    folder = save(tiny_model, tiny_tokenizer, state, tmp_path / "checkpoint")
    like = zeros_like(state)
    like.ema = {}
    assert load_resume_state(folder, like).ema == {}


def test_save_sharded_checkpoint_replaces_one_of_same_step(tiny_model, tiny_tokenizer, state, tmp_path):
    for step in (3, 4):
        state.progress["step"] = step
        save_sharded_checkpoint(tiny_model, tiny_tokenizer, state, tmp_path / "sharded")
    assert load_progress(tmp_path / "sharded")["step"] == 4


@SAVERS
def test_save_checkpoint_follows_the_umask(tiny_model, tiny_tokenizer, state, tmp_path, save):
    previous = os.umask(0o027)
    try:
        folder = save(tiny_model, tiny_tokenizer, state, tmp_path / "checkpoint")
    finally:
        os.umask(previous)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o750
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()} == {0o640}


@pytest.fixture
def blocked(monkeypatch):
    """Write no shards before the event that this returns is set."""
    allowed, write_data = threading.Event(), FileSystemWriter.write_data

    def write_when_allowed(self, plan, planner):
        assert allowed.wait(timeout=10)
        return write_data(self, plan, planner)

    monkeypatch.setattr(FileSystemWriter, "write_data", write_when_allowed)
    yield allowed
    allowed.set()


def test_sharded_checkpoint_writer_lets_training_continue(tiny_model, tiny_tokenizer, state, tmp_path, blocked):
    """The checkpoint holds the tensors at the time of the call, and appears once it is complete."""
    expected = copy.deepcopy(state)
    writer, completed = ShardedCheckpointWriter(Accelerator(cpu=True)), []
    writer.save(tiny_model, tiny_tokenizer, state, tmp_path / "checkpoint-3", then=lambda: completed.append(3))
    for tensor in [*state.optimizer.values(), *state.ema.values()]:
        tensor.add_(1)
    assert not (tmp_path / "checkpoint-3").exists() and not completed
    blocked.set()
    writer.wait()
    assert completed == [3] and find_damage(tmp_path / "checkpoint-3") is None
    assert_equal(load_resume_state(tmp_path / "checkpoint-3", zeros_like(state)), expected)


def test_sharded_checkpoint_writer_finishes_one_before_the_next(tiny_model, tiny_tokenizer, state, tmp_path, blocked):
    writer, folders = (
        ShardedCheckpointWriter(Accelerator(cpu=True)),
        [tmp_path / "checkpoint-3", tmp_path / "checkpoint-4"],
    )
    writer.save(tiny_model, tiny_tokenizer, state, folders[0])
    threading.Timer(0.1, blocked.set).start()
    writer.save(tiny_model, tiny_tokenizer, state, folders[1])
    assert find_damage(folders[0]) is None
    writer.wait()
    assert find_damage(folders[1]) is None


def fail(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("place", "name"),
    [(FileSystemWriter, "write_data"), (VanillaTransformerForConditionalGeneration, "save_pretrained")],
)
def test_sharded_checkpoint_writer_reports_a_full_disk(
    tiny_model, tiny_tokenizer, state, tmp_path, monkeypatch, place, name
):
    """The checkpoint before it stays, and nothing of the failed one."""
    writer, completed = ShardedCheckpointWriter(Accelerator(cpu=True)), []
    writer.save(tiny_model, tiny_tokenizer, state, tmp_path / "checkpoint-3")
    writer.wait()
    monkeypatch.setattr(place, name, fail)
    writer.save(tiny_model, tiny_tokenizer, state, tmp_path / "checkpoint-4", then=lambda: completed.append(4))
    with pytest.raises(OSError, match="No space left on device") as caught:
        writer.wait()
    assert "\n" not in str(caught.value) and not completed
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-3"]
    assert find_damage(tmp_path / "checkpoint-3") is None
