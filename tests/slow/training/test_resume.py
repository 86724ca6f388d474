"""Resume after a crash on two processes: real `kill -9`, other numbers of processes, and sharded
checkpoints.
"""

import time

import psutil
import pytest
import torch
from transformers import AutoModelForSeq2SeqLM

from tests.launchers import torchrun
from tests.tiny_runs import assert_same_run, finish, flags, launch, train_tiny
from vanilla_transformer.training.averaging import average_model_folders
from vanilla_transformer.training.checkpoint import (
    list_checkpoints,
    load_model_weights,
    load_progress,
)
from vanilla_transformer.training.run_folder import prune_after

RUN = {"max_steps": 14, "save_steps": 1, "dropout": 0.3}
RUN |= {"gradient_accumulation_steps": 2, "ema_decay": 0.9}


@pytest.fixture
def straight(corpus, tmp_path):
    return train_tiny(corpus, tmp_path / "straight", **RUN)


def start(processes, arguments):
    return launch(torchrun(processes), arguments)


def kill_after_step(folder, step, process):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if any(int(path.name.split("-")[-1]) >= step for path in list_checkpoints(folder)):
            break
        time.sleep(0.01)
    parent = psutil.Process(process.pid)
    workers = parent.children(recursive=True)  # in other sessions than the launcher
    for killed in [*workers, parent]:
        killed.kill()
    process.communicate(timeout=60)


def test_train_resumes_two_killed_processes_bit_for_bit(corpus, tmp_path):
    options = RUN | {"gradient_accumulation_steps": 1, "max_steps": 40}
    finish(start(2, flags(corpus, tmp_path / "straight", **options)))
    killed = flags(corpus, tmp_path / "killed", **options)
    kill_after_step(tmp_path / "killed", 7, start(2, killed))
    assert not (tmp_path / "killed" / "model.safetensors").exists()
    finish(start(2, killed))
    assert_same_run(tmp_path / "straight", tmp_path / "killed")


def test_train_resumes_run_of_two_processes_on_one(corpus, tmp_path, straight):
    """With as many batches per step it is the same run, up to the order of sums."""
    folder = tmp_path / "moved"
    options = RUN | {"gradient_accumulation_steps": 1, "max_steps": 6}
    finish(start(2, flags(corpus, folder, **options)))
    (folder / "model.safetensors").unlink()
    errors = finish(start(1, flags(corpus, folder, **RUN)))
    assert "now has 1 processes instead of 2, and 2 batches per step" in errors
    assert_like(folder, straight)


def test_train_resumes_with_smaller_batches(corpus, tmp_path):
    folder = tmp_path / "run"
    options = RUN | {"gradient_accumulation_steps": 1, "max_tokens": None}
    options |= {"tokens_per_step": 128, "save_steps": 4}
    finish(start(1, flags(corpus, folder, **options | {"max_steps": 4})))
    errors = finish(start(2, flags(corpus, folder, **options | {"max_steps": 5})))
    changes = "max_steps was 4 and is 5, max_tokens was 128 and is 64"
    assert f"Changed since the run began: {changes}" in errors
    before, after = map(load_progress, list_checkpoints(folder)[-2:])
    assert before["recipe"]["max_tokens"] == 128
    assert after["recipe"]["max_tokens"] == 64
    *_, (batches, done, max_tokens, packing) = before["batch_sampler"]["parts"]
    assert (batches, max_tokens, packing) == (1, 128, False)
    assert after["batch_sampler"]["parts"][-2:] == [[1, done, 128, False], [2, 1, 64, False]]


def assert_like(folder, straight):
    """Compare the last weights up to the order of sums, and the places in the data exactly.

    The final model may be another one of the candidates, since `straight` has no scores to choose
    by.
    """
    last = [run / "checkpoint-14" for run in (straight, folder)]
    expected, weights = map(load_model_weights, last)
    torch.testing.assert_close(weights, expected, atol=2e-4, rtol=1e-3)
    ours, theirs = map(load_progress, last)
    assert ours["batch_sampler"] == theirs["batch_sampler"]


def test_sharded_checkpoint_resumes_after_damage(corpus, tmp_path, straight):
    """A sharded checkpoint is also a model folder, and one process without shards resumes from
    it.
    """
    sharded = {"gradient_accumulation_steps": 1, "fsdp": True}
    options = RUN | sharded | {"keep_last": 14}
    finish(start(2, flags(corpus, tmp_path / "sharded", **options)))
    killed = tmp_path / "killed"
    words = flags(corpus, killed, **options)
    kill_after_step(killed, 7, start(2, words))
    assert not (killed / "model.safetensors").exists()
    last = list_checkpoints(killed)[-1]
    (last / "shards" / "__1_0.distcp").unlink()
    errors = finish(start(2, words))
    assert f"{last.name} is damaged (shards/__1_0.distcp is missing)" in errors
    assert_same_run(tmp_path / "sharded", killed)
    hidden = [path.name for path in killed.glob(".*")]
    assert hidden == [".lock"]  # no unfinished folder

    last = [killed / "checkpoint-13", killed / "checkpoint-14"]
    mean = load_model_weights(average_model_folders(last, tmp_path / "mean"))
    one, other = map(load_model_weights, last)
    for name, value in mean.items():
        torch.testing.assert_close(value, (one[name] + other[name]) / 2)
    checkpoint = killed / "checkpoint-6"
    model = AutoModelForSeq2SeqLM.from_pretrained(checkpoint)
    weights = load_model_weights(checkpoint)
    assert weights.keys() == dict(model.named_parameters()).keys()
    for name, tensor in model.named_parameters():
        assert torch.equal(tensor, weights[name]), name

    prune_after(killed, 6)
    (killed / "model.safetensors").unlink()
    folder = train_tiny(corpus, killed, **RUN)
    assert_like(folder, straight)
