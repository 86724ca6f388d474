"""Runs whose recipe gives no warm-up: it is derived, kept by a resumed run, and named if training
ends within it.
"""

import json
import logging

import pytest

from tests.tiny_runs import entries, flags, kill_at_step, no_scores
from tests.train_states import tiny_train_state
from vanilla_transformer.training import dry_run, schedule
from vanilla_transformer.training.checkpoint import load_progress
from vanilla_transformer.training.dry_run import plan_run
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.trainer import train

NO_VALIDATION = {"validation_source": None, "validation_target": None}
UNSET = {"warmup_steps": None, "max_steps": None}


def train_with(corpus, folder, **options):
    recipe = parse_recipe(flags(corpus, folder, **options))
    return train(recipe, evaluate=no_scores)


def values_of(folder, name):
    """Return the logged values of a name."""
    return [entry[name] for entry in entries(folder) if name in entry]


@pytest.fixture
def speed(monkeypatch):
    """Replace the measurement of speed; return the seconds of a step, which a test may change."""
    seconds = [180.0]
    monkeypatch.setattr(schedule, "measure_seconds_per_step", lambda *_: seconds[0])
    return seconds


def test_train_keeps_the_derived_warm_up(corpus, tmp_path, monkeypatch, speed, caplog):
    """Keep it when the run resumes."""
    caplog.set_level(logging.INFO)
    caplog.set_level(logging.INFO)
    options = UNSET | {"max_minutes": 60, "logging_steps": 1, "save_steps": 2}
    options |= NO_VALIDATION
    recipe = parse_recipe(flags(corpus, tmp_path / "out", **options))
    kill_at_step(recipe, monkeypatch, 3)
    assert "Training has at most 20 steps" in caplog.text
    assert "warmup_steps 6, learning_rate_scale 0.0" in caplog.text
    before = load_progress(tmp_path / "out" / "checkpoint-2")["recipe"]
    speed[0] = 60.0  # a faster machine
    options["max_steps"] = 6
    recipe = parse_recipe(flags(corpus, tmp_path / "out", **options))
    folder = train(recipe, evaluate=no_scores)
    after = json.loads((folder / "recipe.json").read_text())
    for name, value in {"warmup_steps": 6, "learning_rate_scale": 0.003**0.5}.items():
        assert before[name] == after[name] == value
    assert (before["max_steps"], after["max_steps"]) == (100_000, 6)
    caplog.clear()
    assert train(recipe, evaluate=no_scores) == folder and "is finished" in caplog.text


def test_train_warns_if_it_ends_within_its_warm_up(corpus, tmp_path, caplog):
    train_with(corpus, tmp_path / "out", warmup_steps=50, **NO_VALIDATION)
    assert "Training ended after step 6, within its warm-up of 50 steps" in caplog.text


def test_short_runs_log_at_least_five_losses(corpus, tmp_path, speed):
    options = {"max_steps": 10, "logging_steps": 50, **NO_VALIDATION}
    options |= {"max_minutes": 15, "warmup_steps": 4}  # 5 steps by time
    folder = train_with(corpus, tmp_path / "out", **options)
    logged = [entry for entry in entries(folder) if "loss" in entry]
    assert [entry["step"] for entry in logged] == list(range(1, 11))


@pytest.mark.parametrize(
    ("changes", "planned", "between", "logging"),
    [
        ({}, 20_000, 1000, 50),
        ({}, 600, 60, 50),
        ({}, 12, 1, 2),
        ({"logging_steps": 1}, 12, 1, 1),
        ({}, 3, 1, 1),
        ({"eval_steps": 1000, "save_steps": 500, "max_minutes": 10.0}, 400, 80, 50),
        ({"eval_steps": 300, "save_steps": 300, "max_minutes": 10.0}, 400, 300, 50),
        ({"eval_steps": 1000, "save_steps": 1000}, 400, 1000, 50),
    ],
)
def test_short_runs_are_validated_and_saved(tmp_path, changes, planned, between, logging):
    """Validate and save before they end."""
    state = tiny_train_state(tmp_path, **changes)
    state.follow_schedule(state.schedule, planned_steps=planned)
    assert state.steps_between("eval_steps") == between
    assert state.steps_between("save_steps") == between
    assert state.steps_between("logging_steps") == logging


def test_run_ended_by_time_has_validations_and_checkpoints(corpus, tmp_path, speed):
    speed[0] = 90.0  # so that ten steps fit into the time
    options = {"max_minutes": 15, "eval_steps": 1000, "save_steps": 500}
    options |= {"max_steps": 10, "average_checkpoints": 4}
    folder = train_with(corpus, tmp_path / "out", **options)
    validations = [entry for entry in entries(folder) if "validation_loss" in entry]
    assert [entry["step"] for entry in validations[:5]] == [2, 4, 6, 8, 10]
    assert (folder / "checkpoint-8").is_dir()


def test_expected_steps_are_the_planned_ones_at_first(tmp_path):
    state = tiny_train_state(tmp_path, max_minutes=1.0)
    state.follow_schedule(state.schedule, planned_steps=40)
    assert state.expected_steps() == 40
    state.progress.step = 19
    assert state.expected_steps() == 40
    state.progress.step, state.minutes = 100, lambda: 0.5
    assert state.expected_steps() == 200


def test_plan_run_measures_speed_and_advises(corpus, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    options = {"max_minutes": 0.5, "dry_run": True, **UNSET}
    recipe = parse_recipe(flags(corpus, tmp_path / "out", **options))
    plan = plan_run(recipe, timed_steps=1)
    assert "Training has" not in caplog.text  # another number of steps
    seconds = plan["seconds_per_step"]
    assert plan["planned_steps"] * seconds == pytest.approx(30, abs=seconds)
    # Three tenths of the steps of half a minute, timed twice, by a step each.
    assert 0.03 < plan["peak_at_step"] / plan["planned_steps"] < 3
    assert plan["advice"][0] == "Rules of thumb for training on 40 pairs:"
    assert not (tmp_path / "out").exists()


def test_measure_seconds_per_step_changes_nothing(corpus, tmp_path):
    """A run whose speed was measured is the run with the same schedule in its recipe."""
    changes = {"dropout": 0.1, "max_steps": 4, "logging_steps": 1, "max_minutes": 60}
    measured = train_with(corpus, tmp_path / "a", **UNSET | changes)
    derived = json.loads((measured / "recipe.json").read_text())
    for name in ("warmup_steps", "learning_rate_scale"):
        changes[name] = derived[name]
    expected = train_with(corpus, tmp_path / "b", **changes)
    for name in ("loss", "learning_rate"):
        assert values_of(measured, name) == values_of(expected, name)


@pytest.mark.parametrize(("ema_decay", "size"), [(None, 12), (0.9, 16)])
def test_plan_run_counts_a_checkpoint(corpus, tmp_path, monkeypatch, ema_decay, size):
    monkeypatch.setattr(dry_run, "peak_memory_gib", lambda device: 0.5)
    recipe = parse_recipe(flags(corpus, tmp_path / "run", ema_decay=ema_decay))
    plan = plan_run(recipe, timed_steps=1)
    assert plan["checkpoint_copy_gib"] == plan["parameters"] * size / 2**30
    assert plan["peak_memory_gib"] == 0.5 + plan["checkpoint_copy_gib"]
