"""The length of a run, its warm-up and its learning rate where a recipe leaves them out."""

from dataclasses import asdict

import pytest

from tests.corpora import LengthsCorpus
from tests.train_states import tiny_train_state
from vanilla_transformer.data.batch_sampler import TokenBudgetBatchSampler
from vanilla_transformer.data.data_loader import MicroBatchLoader
from vanilla_transformer.training import schedule
from vanilla_transformer.training.lr_scheduler import Schedule
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.recipe_checks import check_same_run, has_same_limits
from vanilla_transformer.training.run_arguments import flatten
from vanilla_transformer.training.schedule import (
    Pace,
    derive_schedule,
    describe_schedule,
    plan_schedule,
)

FILES = ["--train_source", "a.en", "--train_target", "a.de", "--output_dir", "out"]
LINEAR = {"lr_scheduler": "linear", "learning_rate": 1e-4}
GIVEN = {"max_steps": 300_000, "warmup_steps": 4000}


def recipe_of(**values):
    words = [*FILES]
    for name, value in values.items():
        words += [f"--{name}", str(value)]
    return parse_recipe(words)


def rounded(schedule):
    return schedule.max_steps, schedule.warmup_steps, round(schedule.learning_rate_scale, 3)


def record_of(recipe, *speed):
    """Return the record in a checkpoint of a run with the schedule that is derived for its
    recipe.
    """
    return flatten(recipe) | asdict(derive_schedule(recipe, Pace(*speed)))


@pytest.mark.parametrize(
    ("values", "steps_per_epoch", "seconds", "expected"),
    [
        (GIVEN, 5300, None, (300_000, 4000, 1.0)),
        ({"warmup_steps": 50}, 5300, None, (100_000, 50, 1.0)),  # the paper's equation
        ({}, 5300, None, (100_000, 4000, 1.0)),  # the paper's corpus and its base model
        ({}, 209, None, (20_000, 2000, 1.0)),
        ({}, 2000, None, (40_000, 4000, 1.0)),
        ({}, 30, None, (3000, 900, 0.671)),
        ({}, 1, None, (100, 30, 0.122)),
        ({"max_steps": 2}, 209, None, (2, 1, 0.022)),
        ({"max_steps": 8000}, 209, None, (8000, 2000, 1.0)),
        ({"learning_rate_scale": 0}, 30, None, (3000, 900, 0.0)),
        ({"num_train_epochs": 2.5}, 209, None, (523, 157, 0.28)),
        ({"num_train_epochs": 1, "max_steps": 300}, 209, None, (209, 63, 0.177)),
        ({"max_minutes": 4}, 209, 0.4, (100_000, 180, 0.3)),
        ({"max_minutes": 4, "max_steps": 300}, 209, 0.4, (300, 90, 0.212)),
        ({"max_minutes": 4, "num_train_epochs": 1}, 209, 0.4, (209, 63, 0.177)),
        ({"max_minutes": 4} | LINEAR, 209, 0.4, (600, 60, 0.097)),
        ({"init_from": "a"}, 36, None, (720, 72, 0.109)),
        ({"init_from": "a"}, 1500, None, (4500, 450, 0.37)),
    ],
)
def test_derive_schedule_fills_in_values(values, steps_per_epoch, seconds, expected):
    derived = derive_schedule(recipe_of(**values), Pace(steps_per_epoch, seconds))
    assert rounded(derived) == expected


@pytest.mark.parametrize(
    ("values", "max_steps", "same_limits"),
    [
        ({}, 20_000, True),
        ({"max_steps": 20_000}, 20_000, True),
        ({"max_minutes": 8}, 20_000, False),
        ({"warmup_steps": 2000}, 20_000, True),
        ({"max_steps": 30_000}, 30_000, False),
        ({"num_train_epochs": 10}, 90, False),
    ],
)
def test_derive_schedule_keeps_values_of_a_run(values, max_steps, same_limits):
    before, recipe = record_of(recipe_of(), 209), recipe_of(**values)
    check_same_run(before, flatten(recipe))
    assert rounded(derive_schedule(recipe, Pace(9), before)) == (max_steps, 2000, 1.0)
    assert has_same_limits(before, flatten(recipe)) is same_limits


def take_steps(sampler, steps):
    for _ in range(steps):
        sampler.enter_next_epoch()
        sampler.take_step()


def last_step_of_epochs(sampler, epochs):
    """Return the steps of a run at the end of some epochs, by making them."""
    while sampler.position.progress < epochs:
        take_steps(sampler, 1)
    return sampler.step


@pytest.mark.parametrize("batches_per_step", [1, 2, 4])
@pytest.mark.parametrize("steps", [13, 21])
def test_plan_schedule_keeps_epochs_of_a_resumed_run(tmp_path, batches_per_step, steps):
    def plan(count, resumed=None):
        state = tiny_train_state(tmp_path, num_train_epochs=3)
        sampler = TokenBudgetBatchSampler(LengthsCorpus([8] * 160), 64, accumulation=count)
        plan_schedule(state, MicroBatchLoader(sampler, 0), resumed)
        if resumed is not None:
            sampler.load_state_dict(resumed["batch_sampler"])
        return state.progress.recipe, sampler

    def progress(recipe, sampler):
        position = sampler.position.state_dict()
        record = {"recipe": recipe, "step": sampler.step, "minutes": 0.0}
        return record | {"batch_sampler": position}

    recipe, sampler = plan(2)
    take_steps(sampler, steps)
    recipe, sampler = plan(batches_per_step, progress(recipe, sampler))
    take_steps(sampler, 1)
    again, _ = plan(batches_per_step, progress(recipe, sampler))
    assert recipe["max_steps"] == again["max_steps"] == last_step_of_epochs(sampler, 3)


@pytest.mark.parametrize(("minutes", "expected"), [(1, 100), (2, 220), (9, 500)])
def test_plan_schedule_counts_minutes_of_a_run(tmp_path, monkeypatch, minutes, expected):
    monkeypatch.setattr(schedule, "measure_seconds_per_step", lambda *_: 0.5)
    state = tiny_train_state(tmp_path, max_minutes=minutes, max_steps=500)
    resumed = {"recipe": flatten(state.recipe), "step": 100, "minutes": 1.0}
    sampler = TokenBudgetBatchSampler(LengthsCorpus([8] * 160), 64)
    plan_schedule(state, MicroBatchLoader(sampler, 0), resumed)
    assert state.planned_steps == expected


TWO_EPOCHS, THREE_EPOCHS = {"num_train_epochs": 2, **LINEAR}, {"num_train_epochs": 3}


@pytest.mark.parametrize(
    ("values", "change", "words"),
    [
        ({"max_minutes": 4}, {"warmup_steps": 100}, "warmup_steps was 180 and is 100"),
        # The rate depends on the last step.
        (TWO_EPOCHS, THREE_EPOCHS, "num_train_epochs was 2.0 and is 3.0"),
    ],
)
def test_check_same_run_refuses_another_schedule(values, change, words):
    before = record_of(recipe_of(**values), 209, 0.4)
    check_same_run(before, flatten(recipe_of(**values)))
    with pytest.raises(ValueError, match=f"different values of {words}"):
        check_same_run(before, flatten(recipe_of(**values | change)))


MINUTES = {1: "and 1 minute,", 1.5: "and 1.5 minutes,", 4: "and 4 minutes,"}


@pytest.mark.parametrize(("minutes", "said"), MINUTES.items())
def test_describe_schedule_names_minutes_and_derived_values(minutes, said):
    recipe, pace = recipe_of(max_minutes=minutes), Pace(209, 0.4)
    described = describe_schedule(recipe, derive_schedule(recipe, pace), pace)
    assert said in described
    if minutes == 4:
        assert described == (
            "Training has at most 600 steps (2.9 epochs) and 4 minutes, with a warm-up of 180 "
            "steps. Derived: warmup_steps 180, learning_rate_scale 0.3."
        )
    recipe, pace = recipe_of(**GIVEN, learning_rate_scale=1), Pace(209)
    described = describe_schedule(recipe, derive_schedule(recipe, pace), pace)
    assert "Derived" not in described


def test_train_state_follows_a_schedule_from_its_first_step(tmp_path):
    state = tiny_train_state(tmp_path)
    recipe = state.recipe
    assert state.schedule == Schedule(warmup_steps=10)
    state.follow_schedule(Schedule(max_steps=7, warmup_steps=4, learning_rate_scale=0.5))
    assert state.recipe is recipe
    derived = {"max_steps": 7, "warmup_steps": 4, "learning_rate_scale": 0.5}
    assert state.progress.recipe == flatten(recipe) | derived
    rate = state.optimizer.param_groups[0]["lr"]
    assert rate == pytest.approx(0.5 * 16**-0.5 * 4**-1.5)


def test_pace_plans_at_least_one_step():
    pace = Pace(10, seconds_per_step=60.0)
    assert pace.planned_steps(max_minutes=0.5, max_steps=9) == 1
    assert pace.planned_steps(max_minutes=3.5, max_steps=9) == 3
