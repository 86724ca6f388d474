"""Plain checkpoints (safetensors) and sharded ones hold the same, and are written while training
continues.
"""

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
from vanilla_transformer.training import checkpoint
from vanilla_transformer.training.checkpoint import (
    CheckpointWriter,
    ResumeState,
    find_damage,
    load_model_weights,
    load_progress,
    load_resume_state,
    save_checkpoint,
)


@pytest.fixture
def state(tiny_model):
    """Return a state with an EMA and Adam's tensors of every parameter."""
    ema = {name: torch.randn_like(parameter) for name, parameter in tiny_model.named_parameters()}
    optimizer = {}
    for name, tensor in ema.items():
        optimizer[f"{name}.exp_avg"] = torch.randn_like(tensor)
        optimizer[f"{name}.exp_avg_sq"] = torch.randn_like(tensor)
        optimizer[f"{name}.step"] = torch.tensor(3.0)
    progress = {"step": 3, "recipe": {"seed": 0}}
    groups = [{"lr": 0.1, "params": list(ema)}]
    return ResumeState(progress, groups, optimizer, ema)


def save_sharded_checkpoint(model, tokenizer, state, folder):
    return write(model, tokenizer, state, folder, sharded=True)


def write(model, tokenizer, state, folder, sharded):
    writer = CheckpointWriter(Accelerator(cpu=True), tokenizer, sharded)
    writer.save(model, state, folder)
    writer.wait()
    return folder


def zeros_like(state):
    optimizer = {name: torch.zeros_like(tensor) for name, tensor in state.optimizer.items()}
    ema = {name: torch.zeros_like(tensor) for name, tensor in state.ema.items()}
    return ResumeState({}, [], optimizer, ema)


def assert_equal(ours, theirs):
    assert (ours.progress, ours.param_groups) == (theirs.progress, theirs.param_groups)
    for mine, expected in ((ours.optimizer, theirs.optimizer), (ours.ema, theirs.ema)):
        assert mine.keys() == expected.keys()
        assert all(torch.equal(mine[name], expected[name]) for name in expected)


def test_sharded_checkpoint_equals_a_plain_one(tiny_model, tiny_tokenizer, state, tmp_path):
    plain = save_checkpoint(tiny_model, tiny_tokenizer, state, tmp_path / "plain")
    sharded = save_sharded_checkpoint(tiny_model, tiny_tokenizer, state, tmp_path / "sharded")
    for folder in (plain, sharded):
        assert find_damage(folder) is None and load_progress(folder) == state.progress
        like = zeros_like(state)
        loaded = load_resume_state(folder, like)
        assert_equal(loaded, state)
        is_filled = loaded.optimizer is like.optimizer
        assert is_filled == (folder is sharded), "each process reads its own shards"
        like.ema = {}
        assert load_resume_state(folder, like).ema == {}
    ours, theirs = load_model_weights(sharded), load_model_weights(plain)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())
    assert not list(tmp_path.glob(".*"))


SAVERS = pytest.mark.parametrize(
    "save", [save_checkpoint, save_sharded_checkpoint], ids=["plain", "sharded"]
)


def test_sharded_checkpoint_replaces_another(tiny_model, tiny_tokenizer, state, tmp_path):
    for step in (3, 4):
        state.progress["step"] = step
        save_sharded_checkpoint(tiny_model, tiny_tokenizer, state, tmp_path / "sharded")
    assert load_progress(tmp_path / "sharded")["step"] == 4


@SAVERS
def test_checkpoint_follows_the_umask(tiny_model, tiny_tokenizer, state, tmp_path, save):
    previous = os.umask(0o027)
    try:
        folder = save(tiny_model, tiny_tokenizer, state, tmp_path / "checkpoint")
    finally:
        os.umask(previous)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o750
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o640}


@pytest.fixture(params=[False, True], ids=["plain", "sharded"])
def writer(request, tiny_tokenizer):
    writer = CheckpointWriter(Accelerator(cpu=True), tiny_tokenizer, request.param)
    yield writer
    writer.close()


@pytest.fixture
def blocked(monkeypatch):
    """Write no tensors before the event that this returns is set."""
    allowed = threading.Event()
    write_data, save_file = FileSystemWriter.write_data, checkpoint.save_file

    def when_allowed(function):
        def wait_and_call(*arguments):
            assert allowed.wait(timeout=10)
            return function(*arguments)

        return wait_and_call

    monkeypatch.setattr(FileSystemWriter, "write_data", when_allowed(write_data))
    monkeypatch.setattr(checkpoint, "save_file", when_allowed(save_file))
    yield allowed
    allowed.set()


def change_all(model, state):
    with torch.no_grad():
        for tensor in [*model.parameters(), *state.optimizer.values(), *state.ema.values()]:
            tensor.add_(1)


def test_writer_lets_training_continue(writer, tiny_model, state, tmp_path, blocked):
    """The checkpoint holds the tensors at the time of the call, and appears once it is complete."""
    expected, completed = copy.deepcopy(state), []
    weights = copy.deepcopy(tiny_model.state_dict())
    folder = tmp_path / "checkpoint-3"

    def note():
        completed.append(folder.exists())

    written = writer.save(tiny_model, state, folder, then=note)
    change_all(tiny_model, state)
    assert not folder.exists() and not completed and not written.done()
    blocked.set()
    writer.wait()
    assert completed == [True] and find_damage(folder) is None
    assert_equal(load_resume_state(folder, zeros_like(state)), expected)
    saved = load_model_weights(folder)
    assert saved and all(torch.equal(tensor, weights[name]) for name, tensor in saved.items())


def test_writer_finishes_one_before_the_next(writer, tiny_model, state, tmp_path, blocked):
    """The second one is copied to the memory of the first, after that is written."""
    first = copy.deepcopy(state)
    folders = [tmp_path / "checkpoint-3", tmp_path / "checkpoint-4"]
    writer.save(tiny_model, state, folders[0])
    change_all(tiny_model, state)
    threading.Timer(0.1, blocked.set).start()
    writer.save(tiny_model, state, folders[1])
    assert find_damage(folders[0]) is None
    writer.wait()
    for folder, expected in zip(folders, (first, state), strict=True):
        assert find_damage(folder) is None
        assert_equal(load_resume_state(folder, zeros_like(state)), expected)


def test_checkpoint_writer_takes_a_stager_for_each_checkpoint_if_it_closes_itself(
    writer, tiny_model, state, tmp_path, monkeypatch
):
    """As before torch 2.13."""

    def stage(stager, tensors):
        copied = stager._stage(tensors)
        stager.close()
        return copied

    monkeypatch.setattr(checkpoint, "_STAGERS_LAST", False)
    monkeypatch.setattr(checkpoint.DefaultStager, "stage", stage)
    for step in (3, 4):
        folder = tmp_path / f"checkpoint-{step}"
        writer.save(tiny_model, state, folder)
        writer.wait()
        assert_equal(load_resume_state(folder, zeros_like(state)), state)


@pytest.mark.skipif(not checkpoint._STAGERS_LAST, reason="before torch 2.13, memory is used once")
def test_writer_uses_its_memory_again(writer, tiny_model, state, tmp_path, monkeypatch):
    places, save = [], checkpoint.save_checkpoint

    def note_places(model, tokenizer, copied, *rest):
        tensors = [*copied.optimizer.values(), *rest[-1].values()]
        places.append([tensor.data_ptr() for tensor in tensors])
        return save(model, tokenizer, copied, *rest)

    monkeypatch.setattr(checkpoint, "save_checkpoint", note_places)
    for step in (3, 4):
        writer.save(tiny_model, state, tmp_path / f"checkpoint-{step}")
        writer.wait()
    assert places[0] == places[1]
    tensors = [*state.optimizer.values(), *tiny_model.state_dict().values()]
    assert not {tensor.data_ptr() for tensor in tensors} & {*places[0]}


def test_writer_that_is_closed_has_finished(writer, tiny_model, state, tmp_path, blocked):
    """As after an error of training, which leaves no thread that writes."""
    writer.save(tiny_model, state, tmp_path / "checkpoint-3")
    threading.Timer(0.1, blocked.set).start()
    writer.close()
    assert find_damage(tmp_path / "checkpoint-3") is None


def fail(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("owner", "name", "sharded"),
    [
        (FileSystemWriter, "write_data", True),
        (VanillaTransformerForConditionalGeneration, "save_pretrained", True),
        (VanillaTransformerForConditionalGeneration, "save_pretrained", False),
        (checkpoint, "save_file", False),
    ],
)
def test_checkpoint_writer_reports_a_full_disk(
    tiny_model, tiny_tokenizer, state, tmp_path, monkeypatch, caplog, owner, name, sharded
):
    """The checkpoint before it stays, and nothing of the failed one."""
    writer, completed = CheckpointWriter(Accelerator(cpu=True), tiny_tokenizer, sharded), []
    writer.save(tiny_model, state, tmp_path / "checkpoint-3")
    writer.wait()
    monkeypatch.setattr(owner, name, fail)
    writer.save(tiny_model, state, tmp_path / "checkpoint-4", then=lambda: completed.append(4))
    with pytest.raises(OSError, match="No space left on device") as caught:
        writer.wait()
    assert "\n" not in str(caught.value) and not completed
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-3"]
    assert find_damage(tmp_path / "checkpoint-3") is None
    writer.save(tiny_model, state, tmp_path / "checkpoint-5")
    writer.close()
    records = [record for record in caplog.records if record.name == checkpoint.__name__]
    (line,) = [record.message for record in records if record.levelname == "ERROR"]
    assert line.startswith("The last checkpoint could not be written: ")
    assert "No space left on device" in line
