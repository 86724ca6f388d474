"""Going on with a run that was cut off: which values of its recipe may have changed since."""

import logging
from dataclasses import asdict
from typing import Any

from .arguments import Recipe

logger = logging.getLogger(__name__)

# What changes how long a run lasts, what it records and on what it runs, but not what it computes. Processes ×
# accumulation is what an update has; the run itself tells what became of that.
_FREE = {"output_dir", "overwrite_output_dir", "logging_steps", "eval_steps", "save_steps", "save_minutes", "dry_run"}
_FREE |= {"keep_last", "keep_best", "best_metric", "average_checkpoints", "report_to", "max_minutes", "max_steps"}
_FREE |= {"early_stopping_patience", "torch_compile", "attn_implementation", "fsdp", "sharded_checkpoints"}
_FREE |= {"gradient_accumulation_steps"}
# Schedules whose rate depends on where the run ends.
_NEEDS_THE_END = {"linear", "cosine", "cosine_with_restarts", "polynomial", "cosine_with_min_lr"}


def flatten(recipe: Recipe) -> dict[str, Any]:
    """All values of a recipe by name; its parts have no name in common."""
    return {name: value for part in asdict(recipe).values() for name, value in part.items()}


def check_same_run(before: dict[str, Any], now: dict[str, Any]) -> None:
    """
    Lists what has changed in the recipe of a run that goes on.

    Raises:
        ValueError: a change would make it another run; the text names each value before and now.
    """
    names = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    free = _FREE - ({"max_steps"} if now.get("lr_scheduler") in _NEEDS_THE_END else set())
    refused = [name for name in names if name not in free]
    if refused:
        raise ValueError(
            f"The run in {now['output_dir']} has not ended, and cannot go on with other values of what it computes: "
            f"{_changes(refused, before, now)}. Put them back, choose another --output_dir, or start anew with "
            "--overwrite_output_dir."
        )
    if names:
        logger.info("Changed since the run began: %s.", _changes(names, before, now))


def _changes(names: list[str], before: dict[str, Any], now: dict[str, Any]) -> str:
    return ", ".join(f"{name} was {before.get(name)!r} and is {now.get(name)!r}" for name in names)
