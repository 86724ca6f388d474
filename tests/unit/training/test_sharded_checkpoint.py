"""Plain checkpoints (safetensors) and sharded ones (torch.distributed.checkpoint) hold the same."""

import os
import stat

import pytest
import torch
from accelerate import Accelerator

from vanilla_transformer.training.checkpoint import (
    ResumeState,
    find_damage,
    load_model_weights,
    load_progress,
    load_resume_state,
    save_checkpoint,
    save_sharded_checkpoint,
)


@pytest.fixture
def state(tiny_model):
    """Return a state with an EMA and Adam's tensors of every parameter."""
    ema = {name: torch.randn_like(parameter) for name, parameter in tiny_model.named_parameters()}
    optimizer = {
        f"{name}.{kind}": torch.randn_like(t) for name, t in ema.items() for kind in ("exp_avg", "exp_avg_sq")
    }
    optimizer |= {f"{name}.step": torch.tensor(3.0) for name in ema}
    return ResumeState({"step": 3, "recipe": {"seed": 0}}, [{"lr": 0.1, "params": list(ema)}], optimizer, ema)


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
    sharded = save_sharded_checkpoint(Accelerator(cpu=True), tiny_model, tiny_tokenizer, state, tmp_path / "sharded")
    for folder in (plain, sharded):
        assert find_damage(folder) is None and load_progress(folder) == state.progress
        assert_equal(load_resume_state(folder, zeros_like(state)), state)
    weights = [load_model_weights(folder) for folder in (plain, sharded)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0].keys() | weights[1].keys())
    assert not list(tmp_path.glob(".*"))


def test_sharded_checkpoint_is_read_into_tensors_of_run(tiny_model, tiny_tokenizer, state, tmp_path):
    folder = save_sharded_checkpoint(Accelerator(cpu=True), tiny_model, tiny_tokenizer, state, tmp_path / "sharded")
    like = zeros_like(state)
    assert load_resume_state(folder, like).optimizer is like.optimizer


SAVERS = pytest.mark.parametrize("save", [save_checkpoint, save_sharded_checkpoint], ids=["plain", "sharded"])


def save_with(save, *arguments):
    return save(*([Accelerator(cpu=True)] if save is save_sharded_checkpoint else []), *arguments)


@SAVERS
def test_load_resume_state_without_ema_reads_none(tiny_model, tiny_tokenizer, state, tmp_path, save):
    folder = save_with(save, tiny_model, tiny_tokenizer, state, tmp_path / "checkpoint")
    like = zeros_like(state)
    like.ema = {}
    assert load_resume_state(folder, like).ema == {}


def test_save_sharded_checkpoint_replaces_one_of_same_step(tiny_model, tiny_tokenizer, state, tmp_path):
    for step in (3, 4):
        state.progress["step"] = step
        save_sharded_checkpoint(Accelerator(cpu=True), tiny_model, tiny_tokenizer, state, tmp_path / "sharded")
    assert load_progress(tmp_path / "sharded")["step"] == 4


@SAVERS
def test_save_checkpoint_follows_the_umask(tiny_model, tiny_tokenizer, state, tmp_path, save):
    previous = os.umask(0o027)
    try:
        folder = save_with(save, tiny_model, tiny_tokenizer, state, tmp_path / "checkpoint")
    finally:
        os.umask(previous)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o750
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()} == {0o640}
