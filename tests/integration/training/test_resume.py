"""Resume after a crash: an interrupted and an uninterrupted run are equal bit for bit."""

import errno
import signal

import pytest

from tests.sweeps import rare
from tests.tiny import write_tiny_corpus
from tests.tiny_runs import (
    SLOW_DISK,
    Killed,
    assert_same_run,
    entries,
    flags,
    kill_at_step,
    no_scores,
    start,
    train_tiny,
)
from vanilla_transformer.training import checkpoint, train_step, trainer
from vanilla_transformer.training.checkpoint import find_latest_checkpoint, list_checkpoints
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.signals import TrainingInterrupted
from vanilla_transformer.training.trainer import train

# 40 pairs make two steps per epoch: step 3 is in the middle of the second epoch.
RUN = {"max_steps": 8, "save_steps": 1, "dropout": 0.3}
RUN |= {"gradient_accumulation_steps": 2, "ema_decay": 0.9}


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    folder = tmp_path_factory.mktemp("straight")
    return train_tiny(write_tiny_corpus(folder), folder / "straight", **RUN)


@pytest.mark.parametrize("step", [rare(1), 3, rare(7)])
def test_train_resumes_killed_run(corpus, tmp_path, monkeypatch, straight, step):
    recipe = parse_recipe(flags(corpus, tmp_path / "killed", **RUN))
    kill_at_step(recipe, monkeypatch, step)
    assert_same_run(straight, train(recipe, evaluate=no_scores))


@pytest.mark.parametrize("full_at", [1, 5])
def test_train_continues_once_a_full_disk_has_room(
    corpus, tmp_path, monkeypatch, straight, full_at
):
    recipe = parse_recipe(flags(corpus, tmp_path / "full", **RUN))
    save_file, calls = checkpoint.save_file, []

    def fill(tensors, path):
        calls.append(path)
        if len(calls) >= full_at:
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
        save_file(tensors, path)

    no_space = pytest.raises(OSError, match="No space left on device")
    with monkeypatch.context() as patch, no_space:
        patch.setattr(checkpoint, "save_file", fill)
        train(recipe, evaluate=no_scores)
    assert len(calls) >= full_at
    assert_same_run(straight, train(recipe, evaluate=no_scores))


def between_micro_batches(state, index):
    return (state.step, index) == (5, 1)


MOMENTS = [(train_step, "seed_dropout", between_micro_batches)]
MOMENTS.append((trainer, "_finish", lambda *_: True))  # before the final validation


@pytest.mark.parametrize(("module", "name", "is_moment"), MOMENTS)
def test_train_resumes_run_killed_at_another_moment(
    corpus, tmp_path, monkeypatch, straight, module, name, is_moment
):
    recipe = parse_recipe(flags(corpus, tmp_path / "killed", **RUN))
    function = getattr(module, name)

    def killing(*arguments):
        if is_moment(*arguments):
            raise Killed
        return function(*arguments)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(module, name, killing)
        train(recipe, evaluate=no_scores)
    assert_same_run(straight, train(recipe, evaluate=no_scores))


def test_train_killed_while_it_saves_resumes_from_one_before(corpus, tmp_path):
    """All files of checkpoint 5 are written, and step 6 is made."""
    # No scores before the kill; the same sums in both processes.
    options = RUN | {"eval_steps": 8, "threads": 1}
    straight = flags(corpus, tmp_path / "straight", **options)
    killed = flags(corpus, tmp_path / "killed", **options)
    process = start(["0", *killed], script=SLOW_DISK)
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    folder = tmp_path / "killed"
    assert find_latest_checkpoint(folder).name == "checkpoint-4"
    assert list_checkpoints(folder)[-1].name == "checkpoint-4"
    (unfinished,) = folder.glob(".checkpoint-5.tmp-*/new/checkpoint-5")
    assert (unfinished / "optimizer.safetensors").exists()
    assert not (unfinished / "sha256.json").exists()
    train(parse_recipe(killed), evaluate=no_scores)
    assert_same_run(train(parse_recipe(straight), evaluate=no_scores), folder)
    assert [path.name for path in folder.glob(".*")] == [".lock"]


@pytest.mark.parametrize("step", [rare(5), 13])
def test_train_averages_same_checkpoints(corpus, tmp_path, monkeypatch, step):
    """Interrupt the run before."""
    options = RUN | {"max_steps": 14, "save_steps": 4, "average_checkpoints": 3}
    straight = train_tiny(corpus, tmp_path / "straight", **options)
    recipe = parse_recipe(flags(corpus, tmp_path / "stopped", **options))
    unpatched = trainer.train_step

    def interrupting(state, micro_batches):
        if state.step == step - 1:
            signal.raise_signal(signal.SIGTERM)
        return unpatched(state, micro_batches)

    with monkeypatch.context() as patch, pytest.raises(TrainingInterrupted):
        patch.setattr(trainer, "train_step", interrupting)
        train(recipe, evaluate=no_scores)
    assert list_checkpoints(tmp_path / "stopped")[-1].name == f"checkpoint-{step}"
    stopped = train(recipe, evaluate=no_scores)
    for folder in (straight, stopped):
        names = [path.name for path in list_checkpoints(folder)]
        assert names == ["checkpoint-8", "checkpoint-12", "checkpoint-14"]
    assert_same_run(straight, stopped)


def test_train_logs_unsaved_steps_once(corpus, tmp_path, monkeypatch):
    options = RUN | {"max_steps": 14, "save_steps": 5}
    recipe = parse_recipe(flags(corpus, tmp_path / "killed", **options))
    kill_at_step(recipe, monkeypatch, 9)
    assert entries(tmp_path / "killed")[-1]["step"] == 8
    folder = train(recipe, evaluate=no_scores)
    steps = [entry["step"] for entry in entries(folder) if "loss" in entry]
    assert steps == [2, 4, 6, 8, 10, 12, 14]


TRUNCATED = [rare("model.safetensors"), "optimizer.safetensors"]
TRUNCATED.append(rare("training_state.json"))


@pytest.mark.parametrize("file", TRUNCATED)
def test_train_falls_back_from_truncated_checkpoint(
    corpus, tmp_path, monkeypatch, straight, caplog, file
):
    recipe = parse_recipe(flags(corpus, tmp_path / "killed", **RUN))
    kill_at_step(recipe, monkeypatch, 6)
    last = tmp_path / "killed" / "checkpoint-6"
    (last / file).write_bytes((last / file).read_bytes()[:-40])
    assert find_latest_checkpoint(tmp_path / "killed").name == "checkpoint-5"
    assert "checkpoint-6 is damaged" in caplog.text and file in caplog.text
    assert_same_run(straight, train(recipe, evaluate=no_scores))


def test_train_lists_allowed_changes(corpus, tmp_path, monkeypatch, caplog):
    """Refuse others."""
    recipe = parse_recipe(flags(corpus, tmp_path / "out", **RUN))
    kill_at_step(recipe, monkeypatch, 3)
    other = RUN | {"dropout": 0.1, "seed": 3, "logging_steps": 3}
    message = r"dropout was 0\.3 and is 0\.1, seed was 0 and is 3"
    with pytest.raises(ValueError, match=message) as refusal:
        train_tiny(corpus, tmp_path / "out", **other)
    assert "logging_steps" not in str(refusal.value)
    with caplog.at_level("INFO", logger="vanilla_transformer"):
        train_tiny(corpus, tmp_path / "out", **RUN | {"logging_steps": 3})
    assert "logging_steps was 2 and is 3" in caplog.text


def test_train_refuses_other_max_steps_with_linear_schedule(corpus, tmp_path, monkeypatch):
    linear = RUN | {"lr_scheduler": "linear", "learning_rate": 1e-3}
    recipe = parse_recipe(flags(corpus, tmp_path / "out", **linear))
    kill_at_step(recipe, monkeypatch, 3)
    with pytest.raises(ValueError, match="max_steps was 8 and is 20"):
        train_tiny(corpus, tmp_path / "out", **linear | {"max_steps": 20})
