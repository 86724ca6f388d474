"""A run that was cut off goes on as if nothing had happened: equality, item by item, in new processes."""

import time

import psutil
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM

from tests.tiny_runs import entries, flags, launch, no_scores
from vanilla_transformer.training.arguments import parse_recipe
from vanilla_transformer.training.averaging import average_model_folders
from vanilla_transformer.training.checkpoint import (
    forget_folders_after,
    latest_resumable,
    list_checkpoints,
    load_model_weights,
    load_training_state,
    weight_files,
)
from vanilla_transformer.training.train_step import Updater
from vanilla_transformer.training.trainer import TrainingInterrupted, TrainingRun, train

# 40 pairs make two updates an epoch: update 3 is in the middle of the second one.
RUN = {"max_steps": 14, "save_steps": 1, "dropout": 0.3, "gradient_accumulation_steps": 2, "ema_decay": 0.9}
TIMES = {"minutes", "tokens_per_second", "peak_memory_gib"}


class Killed(BaseException):
    """Stands for `kill -9` where one process is enough to show it."""


def run_until(recipe, monkeypatch, update, where="_update_parameters"):
    """Trains until update `update` begins (or what else is named), then drops everything on the floor."""
    method = getattr(TrainingRun, where)

    def killing(run, *arguments):
        if run.progress.step == update:
            raise Killed
        return method(run, *arguments)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(TrainingRun, where, killing)
        train(recipe, evaluate=no_scores)


def assert_same_run(straight, resumed):
    """Weights, optimizer, order, schedule, averages and every logged value are the same bit for bit."""
    for name in ("model.safetensors", "ema/model.safetensors"):
        ours, theirs = load_file(straight / name), load_file(resumed / name)
        assert ours.keys() == theirs.keys()
        assert not [key for key in ours if not torch.equal(ours[key], theirs[key])]
    ours, theirs = (load_training_state(list_checkpoints(folder)[-1]) for folder in (straight, resumed))
    assert ours.optimizer["param_groups"] == theirs.optimizer["param_groups"]
    assert ours.optimizer["state"].keys() == theirs.optimizer["state"].keys()
    for name, tensors in ours.optimizer["state"].items():
        assert all(torch.equal(tensor, theirs.optimizer["state"][name][kind]) for kind, tensor in tensors.items())
    for name in ("step", "order", "schedule", "best"):
        assert getattr(ours.progress, name) == getattr(theirs.progress, name)
    assert logged(straight) == logged(resumed)


def logged(folder):
    return [{name: value for name, value in entry.items() if name not in TIMES} for entry in entries(folder)]


@pytest.fixture
def straight(corpus, tmp_path):
    return train(parse_recipe(flags(corpus, tmp_path / "straight", **RUN)), evaluate=no_scores)


@pytest.mark.parametrize("update", [1, 3, 9])
def test_a_killed_run_goes_on_bit_for_bit(corpus, tmp_path, monkeypatch, straight, update):
    recipe = parse_recipe(flags(corpus, tmp_path / "killed", **RUN))
    run_until(recipe, monkeypatch, update)
    assert_same_run(straight, train(recipe, evaluate=no_scores))


def test_a_killed_run_with_bpe_dropout_goes_on_bit_for_bit(corpus, tmp_path, monkeypatch):
    options = RUN | {"bpe_dropout": 0.3, "vocab_size": 300}
    straight = train(parse_recipe(flags(corpus, tmp_path / "straight", **options)), evaluate=no_scores)
    recipe = parse_recipe(flags(corpus, tmp_path / "killed", **options))
    run_until(recipe, monkeypatch, 9)
    assert_same_run(straight, train(recipe, evaluate=no_scores))


def test_a_run_killed_between_two_accumulated_batches_goes_on_bit_for_bit(
    corpus,
    tmp_path,
    monkeypatch,
    straight,
):
    recipe = parse_recipe(flags(corpus, tmp_path / "killed", **RUN))
    seed_draws = Updater._seed_draws

    def killing(updater, step, index):
        if (step, index) == (5, 1):
            raise Killed
        seed_draws(updater, step, index)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Updater, "_seed_draws", killing)
        train(recipe, evaluate=no_scores)
    assert_same_run(straight, train(recipe, evaluate=no_scores))


def test_a_run_killed_before_its_final_validation_goes_on_bit_for_bit(corpus, tmp_path, monkeypatch, straight):
    recipe = parse_recipe(flags(corpus, tmp_path / "killed", **RUN))
    run_until(recipe, monkeypatch, RUN["max_steps"], where="_finish")
    assert_same_run(straight, train(recipe, evaluate=no_scores))


@pytest.mark.parametrize("update", [5, 13])
def test_an_interrupted_run_averages_what_it_would_have_averaged(corpus, tmp_path, monkeypatch, update):
    options = RUN | {"save_steps": 4, "average_checkpoints": 3}
    straight = train(parse_recipe(flags(corpus, tmp_path / "straight", **options)), evaluate=no_scores)
    recipe = parse_recipe(flags(corpus, tmp_path / "stopped", **options))
    update_parameters = TrainingRun._update_parameters

    def interrupting(run, batches):
        run.signalled = run.progress.step == update - 1
        return update_parameters(run, batches)

    with monkeypatch.context() as patch, pytest.raises(TrainingInterrupted):
        patch.setattr(TrainingRun, "_update_parameters", interrupting)
        train(recipe, evaluate=no_scores)
    assert list_checkpoints(tmp_path / "stopped")[-1].name == f"checkpoint-{update}"
    stopped = train(recipe, evaluate=no_scores)
    names = [[path.name for path in list_checkpoints(folder)] for folder in (straight, stopped)]
    assert names[0] == names[1] == ["checkpoint-8", "checkpoint-12", "checkpoint-14"]
    assert_same_run(straight, stopped)


def test_updates_that_were_logged_and_not_saved_are_logged_once(corpus, tmp_path, monkeypatch):
    rare = RUN | {"save_steps": 5}
    recipe = parse_recipe(flags(corpus, tmp_path / "killed", **rare))
    run_until(recipe, monkeypatch, 9)
    assert entries(tmp_path / "killed")[-1]["step"] == 8
    steps = [entry["step"] for entry in entries(train(recipe, evaluate=no_scores)) if "loss" in entry]
    assert steps == [2, 4, 6, 8, 10, 12, 14]


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors", "training_state.json"])
def test_a_checkpoint_that_was_cut_off_is_passed_over_with_a_message(
    corpus,
    tmp_path,
    monkeypatch,
    straight,
    caplog,
    file,
):
    recipe = parse_recipe(flags(corpus, tmp_path / "killed", **RUN))
    run_until(recipe, monkeypatch, 6)
    last = tmp_path / "killed" / "checkpoint-6"
    (last / file).write_bytes((last / file).read_bytes()[:-40])
    assert latest_resumable(tmp_path / "killed").name == "checkpoint-5"
    assert "checkpoint-6 is not whole" in caplog.text and file in caplog.text
    assert_same_run(straight, train(recipe, evaluate=no_scores))


def test_a_checkpoint_without_its_state_is_passed_over(corpus, tmp_path, monkeypatch):
    recipe = parse_recipe(flags(corpus, tmp_path / "killed", **RUN))
    run_until(recipe, monkeypatch, 3)
    (tmp_path / "killed" / "checkpoint-3" / "training_state.json").unlink()
    assert latest_resumable(tmp_path / "killed").name == "checkpoint-2"


def test_what_may_change_is_listed_and_what_may_not_is_refused(corpus, tmp_path, monkeypatch, caplog):
    run_until(parse_recipe(flags(corpus, tmp_path / "out", **RUN)), monkeypatch, 3)
    other = RUN | {"dropout": 0.1, "seed": 3, "logging_steps": 3}
    with pytest.raises(ValueError, match=r"dropout was 0\.3 and is 0\.1, seed was 0 and is 3") as refusal:
        train(parse_recipe(flags(corpus, tmp_path / "out", **other)), evaluate=no_scores)
    assert "logging_steps" not in str(refusal.value)
    with caplog.at_level("INFO", logger="vanilla_transformer"):
        train(parse_recipe(flags(corpus, tmp_path / "out", **RUN | {"logging_steps": 3})), evaluate=no_scores)
    assert "logging_steps was 2 and is 3" in caplog.text


def test_a_schedule_that_ends_in_nothing_must_end_where_it_was_to_end(corpus, tmp_path, monkeypatch):
    linear = RUN | {"lr_scheduler": "linear", "learning_rate": 1e-3}
    run_until(parse_recipe(flags(corpus, tmp_path / "out", **linear)), monkeypatch, 3)
    with pytest.raises(ValueError, match="max_steps was 14 and is 20"):
        train(parse_recipe(flags(corpus, tmp_path / "out", **linear | {"max_steps": 20})), evaluate=no_scores)


def start(processes, arguments):
    return launch(["torch.distributed.run", "--nproc_per_node", str(processes)], arguments)


def finish(process):
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    return errors


def kill_behind_update(folder, step, process):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if any(int(path.name.split("-")[-1]) >= step for path in list_checkpoints(folder)):
            break
        time.sleep(0.01)
    parent = psutil.Process(process.pid)
    for each in [*parent.children(recursive=True), parent]:  # the launcher's workers have sessions of their own
        each.kill()
    process.communicate(timeout=60)


@pytest.mark.slow
def test_two_processes_killed_for_good_go_on_bit_for_bit(corpus, tmp_path):
    options = RUN | {"gradient_accumulation_steps": 1, "max_steps": 40}
    finish(start(2, flags(corpus, tmp_path / "straight", **options)))
    killed = flags(corpus, tmp_path / "killed", **options)
    kill_behind_update(tmp_path / "killed", 7, start(2, killed))
    assert not (tmp_path / "killed" / "model.safetensors").exists()
    finish(start(2, killed))
    assert_same_run(tmp_path / "straight", tmp_path / "killed")


@pytest.mark.slow
def test_one_process_goes_on_where_two_stopped(corpus, tmp_path, straight):
    """With as many batches an update it is the same run, but for the order of sums."""
    folder = tmp_path / "moved"
    finish(start(2, flags(corpus, folder, **RUN | {"gradient_accumulation_steps": 1, "max_steps": 6})))
    (folder / "model.safetensors").unlink()
    errors = finish(start(1, flags(corpus, folder, **RUN)))
    assert "There are 1 processes in place of 2, and an update has 2 batches" in errors
    assert_like(folder, straight)


def assert_like(folder, straight):
    """The same weights but for the order of sums, from the same places in the data."""
    expected = load_file(straight / "model.safetensors")
    for name, value in load_file(folder / "model.safetensors").items():
        torch.testing.assert_close(value, expected[name], msg=name, atol=2e-4, rtol=1e-3)
    ours, theirs = (load_training_state(of_run / "checkpoint-14").progress for of_run in (straight, folder))
    assert ours.order == theirs.order


@pytest.mark.slow
def test_shards_that_were_cut_off_are_passed_over_and_two_processes_go_on_bit_for_bit(corpus, tmp_path, straight):
    """And what they wrote is a model folder, with which one process that has no shards goes on as well."""
    spread = {"gradient_accumulation_steps": 1, "fsdp": True, "sharded_checkpoints": True}
    options = RUN | spread | {"keep_last": 14}
    finish(start(2, flags(corpus, tmp_path / "spread", **options)))
    killed = flags(corpus, tmp_path / "killed", **options)
    kill_behind_update(tmp_path / "killed", 7, start(2, killed))
    assert not (tmp_path / "killed" / "model.safetensors").exists()
    last = list_checkpoints(tmp_path / "killed")[-1]
    (last / "optimizer-00002-of-00002.safetensors").unlink()
    assert f"{last.name} is not whole (optimizer-00002-of-00002.safetensors is missing)" in finish(start(2, killed))
    assert_same_run(tmp_path / "spread", tmp_path / "killed")
    assert not list((tmp_path / "killed").glob(".*"))

    whole = average_model_folders([tmp_path / "killed" / f"checkpoint-{step}" for step in (13, 14)], tmp_path / "mean")
    ours, theirs = (load_model_weights(folder) for folder in (whole, tmp_path / "killed"))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours.keys() | theirs.keys())
    checkpoint = tmp_path / "killed" / "checkpoint-6"
    assert len(weight_files(checkpoint)) == 2
    model, weights = AutoModelForSeq2SeqLM.from_pretrained(checkpoint), load_model_weights(checkpoint)
    assert weights.keys() == dict(model.named_parameters()).keys()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.named_parameters())

    forget_folders_after(tmp_path / "killed", 6)
    (tmp_path / "killed" / "model.safetensors").unlink()
    folder = train(parse_recipe(flags(corpus, tmp_path / "killed", **RUN)), evaluate=no_scores)
    assert_like(folder, straight)
