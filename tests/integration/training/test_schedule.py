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

UNSET = {"warmup_steps": None, "max_steps": None}


@pytest.fixture
def speed(monkeypatch):
    """Replace the measurement of speed; return the seconds of a step, which a test may change."""
    seconds = [180.0]
    monkeypatch.setattr(schedule, "measure_seconds_per_step", lambda *_: seconds[0])
    return seconds


def rates(folder):
    return [entry["learning_rate"] for entry in entries(folder) if "learning_rate" in entry]


def test_train_keeps_the_derived_warm_up_when_it_resumes(
    corpus, tmp_path, monkeypatch, speed, caplog
):
    caplog.set_level(logging.INFO)
    given = UNSET | {"max_minutes": 60, "logging_steps": 1, "save_steps": 2}
    given |= {"validation_source": None, "validation_target": None}
    kill_at_step(parse_recipe(flags(corpus, tmp_path / "out", **given)), monkeypatch, 3)
    assert (
        "Training has at most 20 steps" in caplog.text
        and "warmup_steps 6, learning_rate_scale 0.0" in caplog.text
    )
    before = load_progress(tmp_path / "out" / "checkpoint-2")["recipe"]
    speed[0] = 60.0  # a faster machine
    recipe = parse_recipe(flags(corpus, tmp_path / "out", **given | {"max_steps": 6}))
    folder = train(recipe, evaluate=no_scores)
    after = json.loads((folder / "recipe.json").read_text())
    names = ("warmup_steps", "learning_rate_scale")
    assert [before[name] for name in names] == [after[name] for name in names] == [6, 0.003**0.5]
    assert (before["max_steps"], after["max_steps"]) == (100_000, 6)
    caplog.clear()
    assert train(recipe, evaluate=no_scores) == folder and "is finished" in caplog.text


def test_train_warns_if_it_ends_within_its_warm_up(corpus, tmp_path, caplog):
    options = {"warmup_steps": 50, "validation_source": None, "validation_target": None}
    train(parse_recipe(flags(corpus, tmp_path / "out", **options)), evaluate=no_scores)
    assert "Training ended after step 6, within its warm-up of 50 steps" in caplog.text


def test_short_runs_log_at_least_five_losses(corpus, tmp_path, speed):
    given = {
        "validation_source": None,
        "validation_target": None,
        "max_steps": 10,
        "logging_steps": 50,
    }
    given |= {"max_minutes": 15, "warmup_steps": 4}  # 5 steps by time
    folder = train(parse_recipe(flags(corpus, tmp_path / "out", **given)), evaluate=no_scores)
    assert [entry["step"] for entry in entries(folder) if "loss" in entry] == list(range(1, 11))


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
def test_short_runs_are_validated_and_saved_before_they_end(
    tmp_path, changes, planned, between, logging
):
    state = tiny_train_state(tmp_path, **changes)
    state.follow_schedule(state.schedule, planned_steps=planned)
    found = [state.steps_between(name) for name in ("eval_steps", "save_steps", "logging_steps")]
    assert found == [between, between, logging]


def test_run_ended_by_time_has_validations_and_checkpoints(corpus, tmp_path, speed):
    speed[0] = 90.0  # so that ten steps fit into the time
    given = {
        "max_minutes": 15,
        "eval_steps": 1000,
        "save_steps": 500,
        "max_steps": 10,
        "average_checkpoints": 4,
    }
    folder = train(parse_recipe(flags(corpus, tmp_path / "out", **given)), evaluate=no_scores)
    assert [entry["step"] for entry in entries(folder) if "validation_loss" in entry][:5] == [
        2,
        4,
        6,
        8,
        10,
    ]
    assert (folder / "checkpoint-8").is_dir()


def test_expected_steps_are_the_planned_ones_until_the_speed_is_known(tmp_path):
    state = tiny_train_state(tmp_path, max_minutes=1.0)
    state.follow_schedule(state.schedule, planned_steps=40)
    assert state.expected_steps() == 40
    state.progress.step = 19
    assert state.expected_steps() == 40
    state.progress.step, state.minutes = 100, lambda: 0.5
    assert state.expected_steps() == 200


def test_plan_run_measures_speed_and_advises(corpus, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    recipe = parse_recipe(flags(corpus, tmp_path / "out", **UNSET, max_minutes=0.5, dry_run=True))
    plan = plan_run(recipe, timed_steps=1)
    assert "Training has" not in caplog.text  # another number of steps
    assert plan["planned_steps"] * plan["seconds_per_step"] == pytest.approx(
        30, abs=plan["seconds_per_step"]
    )
    # Three tenths of the steps of half a minute, timed twice.
    assert 0.06 < plan["peak_at_step"] / plan["planned_steps"] < 1.5
    assert plan["advice"][0] == "Rules of thumb for training on 40 pairs:"
    assert not (tmp_path / "out").exists()


def test_measure_seconds_per_step_changes_nothing(corpus, tmp_path):
    """A run whose speed was measured is the run with the same schedule in its recipe."""
    changes = {"dropout": 0.1, "max_steps": 4, "logging_steps": 1, "max_minutes": 60}
    measured = train(
        parse_recipe(flags(corpus, tmp_path / "a", **UNSET | changes)), evaluate=no_scores
    )
    derived = json.loads((measured / "recipe.json").read_text())
    given = {name: derived[name] for name in ("warmup_steps", "learning_rate_scale")}
    expected = train(
        parse_recipe(flags(corpus, tmp_path / "b", **changes | given)), evaluate=no_scores
    )
    assert [entry["loss"] for entry in entries(measured) if "loss" in entry] == [
        entry["loss"] for entry in entries(expected) if "loss" in entry
    ]
    assert rates(measured) == rates(expected)


@pytest.mark.parametrize(("ema_decay", "size"), [(None, 12), (0.9, 16)])
def test_plan_run_counts_the_copy_of_a_checkpoint(corpus, tmp_path, monkeypatch, ema_decay, size):
    monkeypatch.setattr(dry_run, "peak_memory_gib", lambda device: 0.5)
    plan = plan_run(
        parse_recipe(flags(corpus, tmp_path / "run", ema_decay=ema_decay)), timed_steps=1
    )
    assert plan["checkpoint_copy_gib"] == plan["parameters"] * size / 2**30
    assert plan["peak_memory_gib"] == 0.5 + plan["checkpoint_copy_gib"]
