"""The length of a run, its warm-up and its peak learning rate, derived where a recipe does not give
them.
"""

import logging
import math
import statistics
import time
from collections.abc import Mapping
from itertools import islice
from typing import Any, NamedTuple

from vanilla_transformer.data.data_loader import MicroBatchLoader

from .distributed import sum_over_processes
from .lr_scheduler import (
    NEED_MAX_STEPS,
    NOAM,
    PAPER_MAX_STEPS,
    PAPER_WARMUP_STEPS,
    UNUSED,
    Schedule,
)
from .run_arguments import DERIVED, Recipe
from .train_state import TrainState
from .train_step import compute_gradient

logger = logging.getLogger(__name__)

# A shorter warm-up raises the peak of equation 3, at which training does not start.
_FULL_RATE_FROM = 2000
_WARMUP_SHARE, _SHORT_WARMUP_SHARE = 0.1, 0.3  # of the planned steps
_TIMED_STEPS, _UNTIMED_STEPS = 6, 2  # the first ones allocate memory


class Pace(NamedTuple):
    """
    How fast a run passes through its corpus.

    Args:
        steps_per_epoch: Steps of each epoch.
        seconds_per_step: None if it was not measured.
        extra_steps: Steps that the run to resume has by the end of its epoch beyond
            `steps_per_epoch` for each epoch.
        step: The last step of the run to resume.
        minutes: Minutes that the run to resume has taken.
    """

    steps_per_epoch: int
    seconds_per_step: float | None = None
    extra_steps: int = 0
    step: int = 0
    minutes: float = 0.0

    def planned_steps(self, max_minutes: float | None, max_steps: int) -> int:
        """Return how many of `max_steps` fit into `max_minutes`, at least one, or all if a time is
        unknown.
        """
        if max_minutes is None or self.seconds_per_step is None:
            return max_steps
        rest = max(0.0, max_minutes - self.minutes)
        return max(1, min(max_steps, self.step + int(60.0 * rest / self.seconds_per_step)))


def derive_schedule(
    recipe: Recipe, pace: Pace, before: Mapping[str, Any] | None = None
) -> Schedule:
    """Return the schedule of a recipe: what it gives, or else the run to resume has, and the rest
    derived.

    The paper's 100,000 steps are the most. Without `num_train_epochs` and `max_minutes`, the corpus
    decides: training from scratch has 20,000 steps, but at least 20 and at most 100 epochs;
    fine-tuning 2,000, and 3 to 20. The warm-up is a tenth of the planned steps, at most the paper's
    4,000; with equation 3 from scratch at least 2,000 or three tenths, whichever is less. After a
    derived warm-up below 2,000 steps, the peak of equation 3 is that of 2,000 steps from scratch,
    and lower in fine-tuning.

    Args:
        pace: Pace of the run: with `seconds_per_step`, no more steps are planned than fit into
            `max_minutes`.
        before: The flat recipe of the run to resume, as its checkpoint holds it.
    """
    options, known = recipe.optimization, _known_schedule(recipe, before or {})
    max_steps = _derive_max_steps(recipe, known["max_steps"], pace)
    planned = pace.planned_steps(options.max_minutes, max_steps)
    if known["max_steps"] is None and options.lr_scheduler in NEED_MAX_STEPS:
        max_steps = planned
    warmup_steps, scale = known["warmup_steps"], known["learning_rate_scale"]
    if warmup_steps is None and options.lr_scheduler == "constant":
        warmup_steps = 0
    elif warmup_steps is None:
        steps, scale_exponent = _WARMUP_SHARE * planned, 2 / 3
        if options.lr_scheduler == NOAM and recipe.fine_tuning.init_from is None:
            steps = max(steps, min(_SHORT_WARMUP_SHARE * planned, _FULL_RATE_FROM))
            scale_exponent = 1 / 2  # the peak of every shorter warm-up is that of 2,000 steps
        warmup_steps = min(PAPER_WARMUP_STEPS, max(1, round(steps)))
        scale = (
            min(1.0, (warmup_steps / _FULL_RATE_FROM) ** scale_exponent) if scale is None else scale
        )
    return Schedule(max_steps, warmup_steps, 1.0 if scale is None else scale)


def _known_schedule(recipe: Recipe, before: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of `DERIVED` that a recipe gives, or else the run to resume has, and None
    for the others.
    """
    options = recipe.optimization
    values: dict[str, Any] = {name: getattr(options, name) for name in DERIVED}
    known = {name: before.get(name) if value is None else value for name, value in values.items()}
    if options.num_train_epochs != before.get("num_train_epochs"):
        known["max_steps"] = options.max_steps
    return known


def _derive_max_steps(recipe: Recipe, known: int | None, pace: Pace) -> int:
    options = recipe.optimization
    if known is not None and options.max_steps is None:
        return known  # by the run to resume
    limits = [] if known is None else [known]
    if options.num_train_epochs is not None:
        limits.append(
            max(1, math.ceil(options.num_train_epochs * pace.steps_per_epoch) + pace.extra_steps)
        )
    if limits or options.max_minutes is not None:
        return min(limits or [PAPER_MAX_STEPS])
    steps, least_epochs, most_epochs = (
        (20_000, 20, 100) if recipe.fine_tuning.init_from is None else (2000, 3, 20)
    )
    steps = max(steps, least_epochs * pace.steps_per_epoch)
    return min(steps, most_epochs * pace.steps_per_epoch, PAPER_MAX_STEPS)


def plan_schedule(
    state: TrainState, batches: MicroBatchLoader, resumed: Mapping[str, Any] | None = None
) -> None:
    """Derive the schedule of a run, before its first step, and log it. All processes must call it
    together.

    Args:
        resumed: The progress of the run to resume, as its checkpoint holds it.
    """
    recipe, steps_per_epoch = state.recipe, batches.position.steps_per_epoch
    limited = recipe.optimization.max_minutes is not None
    seconds = measure_seconds_per_step(state, batches) if limited else None
    pace, before = Pace(steps_per_epoch, seconds), dict[str, Any]()
    if resumed is not None:
        before, extra_steps = resumed["recipe"], 0
        if recipe.optimization.num_train_epochs is not None:
            batches.load_state_dict(resumed["batch_sampler"])
            position = batches.position
            # Epochs with the same batches differ in length where the corpus does.
            if position.begins_part or batches.sampler.corpus.is_constant:
                left = round((1.0 - position.begin) * position.steps_per_epoch) - position.done
                last_step = resumed["step"] + left
                extra_steps = last_step - (position.epoch + 1) * steps_per_epoch
            if position.begins_part:
                before = before | {"max_steps": None}  # it counts steps of other batches
        pace = Pace(steps_per_epoch, seconds, extra_steps, resumed["step"], resumed["minutes"])
    schedule = derive_schedule(recipe, pace, before)
    state.follow_schedule(
        schedule, pace.planned_steps(recipe.optimization.max_minutes, schedule.max_steps)
    )
    if state.accelerator.is_main_process and not recipe.output.dry_run:  # which times whole steps
        logger.info(describe_schedule(recipe, state.schedule, pace, before))


def measure_seconds_per_step(state: TrainState, batches: MicroBatchLoader) -> float:
    """Return the median time of the gradients of a few steps. Parameters and the place in the data
    do not change.

    All processes must call it together, and get the same value.
    """
    seconds = []
    with batches.preview() as steps:
        for micro_batches in islice(steps, _UNTIMED_STEPS + _TIMED_STEPS):
            started = time.monotonic()
            float(compute_gradient(state, micro_batches)[0])  # waits for the device
            seconds.append(time.monotonic() - started)
            state.optimizer.zero_grad()
    median = statistics.median(seconds[_UNTIMED_STEPS:])
    return (
        float(sum_over_processes(state.accelerator, [median])[0]) / state.accelerator.num_processes
    )


def describe_schedule(
    recipe: Recipe, schedule: Schedule, pace: Pace, before: Mapping[str, Any] | None = None
) -> str:
    """Return a line on the length of a run, its warm-up, and the values that [`derive_schedule`]
    has derived.
    """
    options = recipe.optimization
    planned = pace.planned_steps(options.max_minutes, schedule.max_steps)
    epochs = (planned - pace.extra_steps) / pace.steps_per_epoch
    line = f"Training has at most {planned:,} steps ({epochs:,.1f} epochs)"
    if options.max_minutes is not None:
        line += (
            f" and {options.max_minutes:g} {'minute' if options.max_minutes == 1 else 'minutes'}"
        )
    line += (
        f", with a warm-up of {schedule.warmup_steps:,} "
        f"{'step' if schedule.warmup_steps == 1 else 'steps'}."
    )
    known = _known_schedule(recipe, before or {})
    names = [
        name for name in known if known[name] is None and name not in UNUSED[options.lr_scheduler]
    ]
    if "max_steps" in names and planned < schedule.max_steps:  # the time decides
        names.remove("max_steps")
    derived = [f"{name} {round(getattr(schedule, name), 4):,}" for name in names]
    return f"{line} Derived: {', '.join(derived)}." if derived else line
