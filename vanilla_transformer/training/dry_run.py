"""
Predict a run without training: sizes that follow from the recipe, the time of a few steps, and
rules of thumb.
"""

import math
import statistics
import time
from contextlib import closing
from itertools import islice
from typing import Any

from .lr_scheduler import NOAM, noam_lambda
from .metrics import peak_memory_gib
from .model_creation import BYTES_PER_PARAMETER, ModelClass
from .run_arguments import Recipe, flatten
from .run_folder import RunFolder
from .schedule import Pace
from .train_step import train_step
from .trainer import PreparedRun, apply_settings, prepare_run

_WARM_UP = 2  # the first steps allocate memory and are slower
_BYTES = 4  # of a number of a checkpoint


def plan_run(
    recipe: Recipe,
    timed_steps: int = 5,
    model_class: ModelClass | None = None,
) -> dict[str, Any]:
    """Read the data, create the model, make a few steps on the device that training would use, and
    write nothing.

    Returns:
        Values by name; sizes in GiB, times in seconds or hours as the names say; "advice" is lines
        of text. On a CPU the peak of memory counts the copy of a checkpoint, which is in the same
        memory.
    """
    with apply_settings(recipe.optimization.threads):
        run = prepare_run(recipe, RunFolder(recipe), model_class=model_class)
        return _plan(run, timed_steps)


def _plan(run: PreparedRun, timed_steps: int) -> dict[str, Any]:
    state, batches, recipe = run.state, run.batches, run.state.recipe
    weights = list(state.unwrapped_model.parameters())
    parameters = sum(weight.numel() for weight in weights)
    averages = [] if state.ema is None else list(state.ema.state_dict().values())
    moments = 2 * [weight for weight in weights if weight.requires_grad]  # of Adam
    numbers = sum(tensor.numel() for tensor in [*weights, *moments, *averages])  # of a checkpoint
    # The first window stands for an epoch of several.
    sampler, position = batches.sampler, batches.position
    count = len(sampler.corpus.epoch(position.epoch))
    steps = position.steps_per_epoch
    stages = {
        f"pairs_per_epoch_of_stage_{stage + 1}": len(sampler.corpus.epoch(position.epoch, stage))
        for stage in range(1, len(batches.sampler.stages))
    }
    peak = recipe.optimization.learning_rate or 0.0
    warmup_steps = state.schedule.warmup_steps
    if recipe.optimization.lr_scheduler == NOAM:
        scale = state.schedule.learning_rate_scale
        peak = noam_lambda(state.unwrapped_model.config.d_model, warmup_steps, scale)(
            warmup_steps - 1
        )
    plan = {
        "parameters": parameters,
        "state_gib": parameters * BYTES_PER_PARAMETER / 2**30,
        "checkpoint_copy_gib": numbers * _BYTES / 2**30,
        "pairs_per_epoch": count,
        **stages,
        "steps_per_epoch": steps,
        "batches_per_step": batches.sampler.batches_per_step,
        "source_tokens_per_step": float(sampler.pairs.source_lengths.sum()) / position.steps,
        "target_tokens_per_step": float(sampler.pairs.target_lengths.sum()) / position.steps,
        "peak_learning_rate": peak,
        "peak_at_step": warmup_steps,
    }
    times = []
    with closing(iter(batches)) as micro_batches:
        for step in islice(
            micro_batches, _WARM_UP + timed_steps
        ):  # which change the weights in memory
            started = time.monotonic()
            train_step(state, step)
            state.read_steps()  # waits for the device
            times.append(time.monotonic() - started)
    seconds = statistics.median(times[_WARM_UP:])
    planned = Pace(steps, seconds).planned_steps(
        recipe.optimization.max_minutes, state.schedule.max_steps
    )
    plan |= {"planned_steps": planned, "epochs": planned / steps, "seconds_per_step": seconds}
    device = state.accelerator.device
    memory = peak_memory_gib(device) + (
        plan["checkpoint_copy_gib"] if device.type == "cpu" else 0.0
    )
    plan |= {"peak_memory_gib": memory, "hours_without_validation": planned * seconds / 3600.0}
    return plan | {"advice": advise(recipe, count, planned / steps)}


# Values that suit corpora of at most so many pairs.
_NAMES = ("d_model", "encoder_layers", "decoder_layers", "vocab_size", "dropout", "epochs")
_FROM_SCRATCH: dict[float, tuple[Any, ...]] = {
    20_000: (128, 3, 3, 4000, 0.3, 100),
    60_000: (256, 3, 3, 6000, 0.2, 100),
    300_000: (256, 3, 3, 8000, 0.1, 50),
    2_000_000: (512, 6, 6, 16_000, 0.1, 30),
    math.inf: (512, 6, 6, 32_000, 0.1, 20),
}
_NAMES_OF_TUNING = ("learning_rate", "freeze", "epochs")
_FINE_TUNING: dict[float, tuple[Any, ...]] = {
    2000: (5e-5, ["embeddings"], 20),
    50_000: (1e-4, None, 10),
    math.inf: (1e-4, None, 3),
}
_FEW_PAIRS = 20_000
_APPROXIMATE = ("epochs", "learning_rate")  # where half and twice as much are no other choice


def advise(recipe: Recipe, pairs: int, epochs: float) -> list[str]:
    """Return rules of thumb for a corpus of `pairs` sentence pairs as lines of text, with what the
    recipe has instead.

    Args:
        epochs: Epochs that the run will have.
    """
    from_scratch = recipe.fine_tuning.init_from is None
    names, rules = (_NAMES, _FROM_SCRATCH) if from_scratch else (_NAMES_OF_TUNING, _FINE_TUNING)
    values = next(values for most_pairs, values in rules.items() if pairs <= most_pairs)
    lines = [
        f"Rules of thumb for {'training on' if from_scratch else 'fine-tuning on'} {pairs:,} pairs:"
    ]
    for name, advised in zip(names, values, strict=True):
        value = epochs if name == "epochs" else flatten(recipe)[name]
        close = name in _APPROXIMATE and value is not None and 0.5 <= value / advised <= 2.0
        line = f"  {name} {_show(advised)}"
        if not close and advised != value:
            line += f" (here {_show(value)})"
        lines.append(line)
    if from_scratch and pairs < _FEW_PAIRS:
        lines.append(
            "So few pairs teach a new model little. Start from a trained one by --init_from."
        )
    return lines


def _show(value: Any) -> str:
    if value is None or isinstance(value, list):
        return ", ".join(value or ["none"])
    return f"{value:,.3g}" if isinstance(value, float) else f"{value:,}"
