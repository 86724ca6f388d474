"""What a run would be, before it is one: sizes that follow from the recipe, and times of a few updates."""

import statistics
from typing import Any

from .arguments import PAPER_SCHEDULE, Recipe
from .lr_scheduler import noam_lambda
from .metrics import peak_memory_gib
from .trainer import prepare_run

_WARM_UP = 2  # the first updates allocate, and are slower
_BYTES_A_PARAMETER = 16  # weight, gradient and Adam's two moments in float32


def plan_run(recipe: Recipe, timed_updates: int = 5) -> dict[str, Any]:
    """
    What training by `recipe` will be like. Reads the corpus, builds the model, makes a few updates on the device that
    training would use, and writes nothing.

    Returns:
        Values by name; sizes in GiB, times in seconds, minutes or hours as the names say.

    Raises:
        ValueError, OSError: what `train` would raise before its first update.
    """
    run = prepare_run(recipe, evaluate=lambda *_, **__: {})
    options, order = recipe.optimization, run.order
    parameters = sum(parameter.numel() for parameter in run.learner.core.parameters())
    pairs = order.corpus.epoch(order.epoch)
    updates = order.steps_per_epoch
    plan = {
        "parameters": parameters,
        "state_gib": parameters * _BYTES_A_PARAMETER / 2**30,
        "pairs_an_epoch": len(pairs),
        "updates_an_epoch": updates,
        "epochs": options.max_steps / updates,
        "batches_an_update": order.batches_per_step,
        "source_tokens_an_update": float(pairs.source_lengths.sum()) / updates,
        "target_tokens_an_update": float(pairs.target_lengths.sum()) / updates,
        "peak_learning_rate": _peak(recipe),
        "peak_at_update": options.warmup_steps,
    }
    seconds = statistics.median(run.time_updates(_WARM_UP + timed_updates)[_WARM_UP:])
    hours = seconds * options.max_steps / 3600.0
    if options.max_minutes is not None:
        hours = min(hours, options.max_minutes / 60.0)
    memory = peak_memory_gib(run.accelerator.device)
    return plan | {"seconds_an_update": seconds, "peak_memory_gib": memory, "hours_without_validation": hours}


def _peak(recipe: Recipe) -> float:
    options = recipe.optimization
    if options.lr_scheduler != PAPER_SCHEDULE:
        return options.learning_rate or 0.0
    return noam_lambda(recipe.model.d_model, options.warmup_steps, options.learning_rate_scale)(
        options.warmup_steps - 1
    )
