"""The length of a run, its warm-up and its peak learning rate, derived where a recipe does not give them."""

import logging
import math
import statistics
import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

from vanilla_transformer.data.data_loader import MicroBatchLoader

from .arguments import DERIVED, Recipe
from .distributed import sum_over_processes
from .lr_scheduler import NEED_MAX_STEPS, NOAM, PAPER_MAX_STEPS, PAPER_WARMUP_STEPS
from .run_arguments import OptimizationArguments
from .train_state import TrainState
from .train_step import compute_gradient

logger = logging.getLogger(__name__)

_WARMUP_SHARE = 0.1  # of the planned steps
# A shorter warm-up raises the peak of equation 3, at which training does not start: there it falls by the sixth root.
_FULL_RATE_FROM, _SCALE_EXPONENT = 2000, 2 / 3
_TIMED_STEPS, _UNTIMED_STEPS = 6, 2  # the first ones allocate memory


class _Length(NamedTuple):
    """The length of a run by its corpus: at least `steps`, within these limits in epochs."""

    steps: int
    least_epochs: int
    most_epochs: int


_FROM_SCRATCH = _Length(steps=20_000, least_epochs=20, most_epochs=100)
_FINE_TUNING = _Length(steps=2000, least_epochs=3, most_epochs=20)


def derive_schedule(recipe: Recipe, steps_per_epoch: int, seconds_per_step: float | None = None) -> Recipe:
    """Return the recipe with values for all of `DERIVED`.

    The paper's 100,000 steps are the most. Without `num_train_epochs` and `max_minutes`, the corpus decides: training
    from scratch has 20,000 steps, but at least 20 and at most 100 epochs; fine-tuning 2,000, and 3 to 20. The warm-up
    is a tenth of the planned steps, at most the paper's 4,000. After a derived warm-up
    below 2,000 steps, the peak of equation 3 falls by the sixth root of the warm-up instead of growing.

    Args:
        seconds_per_step: With it, no more steps are planned than fit into `max_minutes`.
    """
    options = recipe.optimization
    max_steps = _derive_max_steps(recipe, steps_per_epoch)
    planned = _planned_steps(options, max_steps, seconds_per_step)
    if options.max_steps is None and options.lr_scheduler in NEED_MAX_STEPS:
        max_steps = planned
    warmup_steps, scale = options.warmup_steps, options.learning_rate_scale
    if warmup_steps is None:
        warmup_steps = min(PAPER_WARMUP_STEPS, max(1, round(_WARMUP_SHARE * planned)))
        scale = min(1.0, (warmup_steps / _FULL_RATE_FROM) ** _SCALE_EXPONENT) if scale is None else scale
    scale = 1.0 if scale is None else scale
    derived: dict[str, Any] = {"max_steps": max_steps, "warmup_steps": warmup_steps, "learning_rate_scale": scale}
    return replace(recipe, optimization=replace(options, **derived))


def _derive_max_steps(recipe: Recipe, steps_per_epoch: int) -> int:
    options = recipe.optimization
    limits = [] if options.max_steps is None else [options.max_steps]
    if options.num_train_epochs is not None:
        limits.append(max(1, math.ceil(options.num_train_epochs * steps_per_epoch)))
    if limits or options.max_minutes is not None:
        return min(limits or [PAPER_MAX_STEPS])
    length = _FROM_SCRATCH if recipe.fine_tuning.init_from is None else _FINE_TUNING
    steps = max(length.steps, length.least_epochs * steps_per_epoch)
    return min(steps, length.most_epochs * steps_per_epoch, PAPER_MAX_STEPS)


def _planned_steps(options: OptimizationArguments, max_steps: int, seconds_per_step: float | None) -> int:
    if options.max_minutes is None or seconds_per_step is None:
        return max_steps
    return max(1, min(max_steps, int(60.0 * options.max_minutes / seconds_per_step)))


def depends_on_speed(options: OptimizationArguments) -> bool:
    """Return whether `derive_schedule` needs the time of a step."""
    if options.max_minutes is None:
        return False
    return options.warmup_steps is None or (options.max_steps is None and options.lr_scheduler in NEED_MAX_STEPS)


def plan_schedule(state: TrainState, batches: MicroBatchLoader) -> None:
    """Derive the schedule of a run, before its first step, and log it. All processes must call it together."""
    given, steps_per_epoch = state.recipe, batches.position.steps_per_epoch
    seconds = measure_seconds_per_step(state, batches) if depends_on_speed(given.optimization) else None
    state.follow_schedule(derive_schedule(given, steps_per_epoch, seconds))
    if state.accelerator.is_main_process:
        logger.info(describe_schedule(given, state.recipe, steps_per_epoch, seconds))


def continue_schedule(recipe: Recipe, before: Mapping[str, Any]) -> Recipe:
    """Return the recipe with the values of `DERIVED` that the run to resume has, where it gives none itself.

    Args:
        before: The flat recipe of the run, as its checkpoint holds it.
    """
    options = recipe.optimization
    kept: dict[str, Any] = {name: before.get(name) for name in DERIVED if getattr(options, name) is None}
    if options.num_train_epochs != before.get("num_train_epochs"):
        kept.pop("max_steps", None)
    return replace(recipe, optimization=replace(options, **kept))


def measure_seconds_per_step(state: TrainState, batches: MicroBatchLoader) -> float:
    """Return the median time of the gradients of a few steps. Parameters and the place in the data do not change.

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
    return float(sum_over_processes(state.accelerator, [median])[0]) / state.accelerator.num_processes


def describe_schedule(given: Recipe, recipe: Recipe, steps_per_epoch: int, seconds_per_step: float | None) -> str:
    """Return a line on the length of a run, its warm-up, and the derived values.

    Args:
        given: The recipe before `derive_schedule`.
    """
    options = recipe.optimization
    planned = _planned_steps(options, options.max_steps or PAPER_MAX_STEPS, seconds_per_step)
    line = f"Training has at most {planned:,} steps ({planned / steps_per_epoch:,.1f} epochs)"
    if options.max_minutes is not None:
        line += f" and {options.max_minutes:g} {'minute' if options.max_minutes == 1 else 'minutes'}"
    line += f", with a warm-up of {options.warmup_steps:,} steps."
    names = [name for name in DERIVED if getattr(given.optimization, name) is None]
    if options.lr_scheduler != NOAM and "learning_rate_scale" in names:
        names.remove("learning_rate_scale")
    derived = [f"{name} {round(getattr(options, name), 4):,}" for name in names]
    return f"{line} Derived: {', '.join(derived)}." if derived else line


__all__ = [
    "continue_schedule",
    "depends_on_speed",
    "derive_schedule",
    "describe_schedule",
    "measure_seconds_per_step",
    "plan_schedule",
]
