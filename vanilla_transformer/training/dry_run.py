"""Predict a run without training: sizes that follow from the recipe, and the time of a few steps."""

import statistics
import time
from contextlib import closing
from itertools import islice
from typing import Any

from .advice import advise
from .arguments import Recipe
from .initialization import ModelLoader, load_own_model
from .lr_scheduler import NOAM, noam_lambda
from .metrics import peak_memory_gib
from .run_folder import RunFolder
from .setup import BYTES_PER_PARAMETER
from .train_state import TrainState
from .train_step import train_step
from .trainer import PreparedRun, prepare_run

_WARM_UP = 2  # the first steps allocate memory and are slower
_BYTES = 4  # of a number of a checkpoint


def plan_run(recipe: Recipe, timed_steps: int = 5, load_model: ModelLoader = load_own_model) -> dict[str, Any]:
    """Read the data, create the model, make a few steps on the device that training would use, and write nothing.

    Returns:
        Values by name; sizes in GiB, times in seconds or hours as the names say; "advice" is lines of text. On a CPU
        the peak of memory counts the copy of a checkpoint, which is in the same memory.

    Raises:
        ValueError, OSError: what `train` would raise before its first step.
    """
    run = prepare_run(recipe, RunFolder(recipe), load_model=load_model)
    state, batches = run.state, run.batches
    parameters = sum(parameter.numel() for parameter in state.unwrapped_model.parameters())
    pairs = batches.corpus.epoch(batches.position.epoch)
    steps = batches.position.steps_per_epoch
    stages = {
        f"pairs_per_epoch_of_stage_{stage + 1}": len(batches.corpus.epoch(batches.position.epoch, stage))
        for stage in range(1, len(batches.stages))
    }
    plan = {
        "parameters": parameters,
        "state_gib": parameters * BYTES_PER_PARAMETER / 2**30,
        "checkpoint_copy_gib": _checkpoint_copy_gib(state),
        "pairs_per_epoch": len(pairs),
        **stages,
        "steps_per_epoch": steps,
        "batches_per_step": batches.batches_per_step,
        "source_tokens_per_step": float(pairs.source_lengths.sum()) / steps,
        "target_tokens_per_step": float(pairs.target_lengths.sum()) / steps,
        "peak_learning_rate": _peak(state),
        "peak_at_step": state.schedule.warmup_steps,
    }
    seconds = statistics.median(_time_steps(run, _WARM_UP + timed_steps)[_WARM_UP:])
    hours = seconds * state.schedule.max_steps / 3600.0
    if recipe.optimization.max_minutes is not None:
        hours = min(hours, recipe.optimization.max_minutes / 60.0)
    planned = min(state.schedule.max_steps, max(1, round(3600.0 * hours / seconds)))
    plan |= {"planned_steps": planned, "epochs": planned / steps, "seconds_per_step": seconds}
    device = state.accelerator.device
    peak = peak_memory_gib(device) + (plan["checkpoint_copy_gib"] if device.type == "cpu" else 0.0)
    plan |= {"peak_memory_gib": peak, "hours_without_validation": hours}
    return plan | {"advice": advise(recipe, len(pairs), planned / steps)}


def _checkpoint_copy_gib(state: TrainState) -> float:
    """Return the memory of the CPU from which a checkpoint is written: weights, Adam's moments and the EMA."""
    parameters = list(state.unwrapped_model.parameters())
    averages = [] if state.ema is None else list(state.ema.state_dict().values())
    moments = 2 * [each for each in parameters if each.requires_grad]
    return sum(each.numel() for each in [*parameters, *moments, *averages]) * _BYTES / 2**30


def _time_steps(run: PreparedRun, count: int) -> list[float]:
    """Return the seconds of each of `count` steps, which change the weights in memory."""
    times = []
    with closing(iter(run.batches)) as steps:
        for micro_batches in islice(steps, count):
            started = time.monotonic()
            train_step(run.state, micro_batches)
            run.state.read_steps()  # waits for the device
            times.append(time.monotonic() - started)
    return times


def _peak(state: TrainState) -> float:
    options = state.recipe.optimization
    if options.lr_scheduler != NOAM:
        return options.learning_rate or 0.0
    warmup_steps, scale = state.schedule.warmup_steps, state.schedule.learning_rate_scale
    return noam_lambda(state.unwrapped_model.config.d_model, warmup_steps, scale)(warmup_steps - 1)
