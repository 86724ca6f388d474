"""
Predict a run without training: sizes that follow from the recipe, the time of a few steps, and rules of thumb.
"""

import statistics
import time
from contextlib import closing
from itertools import islice
from typing import Any, NamedTuple

from .lr_scheduler import NOAM, noam_lambda
from .metrics import peak_memory_gib
from .model_creation import BYTES_PER_PARAMETER, ModelClass
from .run_arguments import Recipe, flatten
from .run_folder import RunFolder
from .schedule import Pace
from .train_state import TrainState
from .train_step import train_step
from .trainer import PreparedRun, apply_settings, prepare_run

_WARM_UP = 2  # the first steps allocate memory and are slower
_BYTES = 4  # of a number of a checkpoint


def plan_run(
    recipe: Recipe,
    timed_steps: int = 5,
    model_class: ModelClass | None = None,
) -> dict[str, Any]:
    """Read the data, create the model, make a few steps on the device that training would use, and write nothing.

    Returns:
        Values by name; sizes in GiB, times in seconds or hours as the names say; "advice" is lines of text. On a CPU
        the peak of memory counts the copy of a checkpoint, which is in the same memory.
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
    pairs = batches.sampler.corpus.epoch(batches.position.epoch)
    steps = batches.position.steps_per_epoch
    stages = {
        f"pairs_per_epoch_of_stage_{stage + 1}": len(batches.sampler.corpus.epoch(batches.position.epoch, stage))
        for stage in range(1, len(batches.sampler.stages))
    }
    plan = {
        "parameters": parameters,
        "state_gib": parameters * BYTES_PER_PARAMETER / 2**30,
        "checkpoint_copy_gib": numbers * _BYTES / 2**30,
        "pairs_per_epoch": len(pairs),
        **stages,
        "steps_per_epoch": steps,
        "batches_per_step": batches.sampler.batches_per_step,
        "source_tokens_per_step": float(pairs.source_lengths.sum()) / steps,
        "target_tokens_per_step": float(pairs.target_lengths.sum()) / steps,
        "peak_learning_rate": _peak(state),
        "peak_at_step": state.schedule.warmup_steps,
    }
    seconds = statistics.median(_time_steps(run, _WARM_UP + timed_steps)[_WARM_UP:])
    planned = Pace(steps, seconds).planned_steps(recipe.optimization.max_minutes, state.schedule.max_steps)
    plan |= {"planned_steps": planned, "epochs": planned / steps, "seconds_per_step": seconds}
    device = state.accelerator.device
    peak = peak_memory_gib(device) + (plan["checkpoint_copy_gib"] if device.type == "cpu" else 0.0)
    plan |= {"peak_memory_gib": peak, "hours_without_validation": planned * seconds / 3600.0}
    return plan | {"advice": advise(recipe, len(pairs), planned / steps)}


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


class _Rule(NamedTuple):
    """Values that suit corpora of at most so many pairs."""

    most_pairs: float
    values: dict[str, Any]


_ANY = float("inf")


def _layers(number: int) -> dict[str, int]:
    return {"encoder_layers": number, "decoder_layers": number}


_FROM_SCRATCH = (
    _Rule(20_000, {"d_model": 128, **_layers(3), "vocab_size": 4000, "dropout": 0.3, "epochs": 100}),
    _Rule(60_000, {"d_model": 256, **_layers(3), "vocab_size": 6000, "dropout": 0.2, "epochs": 100}),
    _Rule(300_000, {"d_model": 256, **_layers(3), "vocab_size": 8000, "dropout": 0.1, "epochs": 50}),
    _Rule(2_000_000, {"d_model": 512, **_layers(6), "vocab_size": 16_000, "dropout": 0.1, "epochs": 30}),
    _Rule(_ANY, {"d_model": 512, **_layers(6), "vocab_size": 32_000, "dropout": 0.1, "epochs": 20}),
)
_FINE_TUNING = (
    _Rule(2000, {"learning_rate": 5e-5, "freeze": ["embeddings"], "epochs": 20}),
    _Rule(50_000, {"learning_rate": 1e-4, "freeze": None, "epochs": 10}),
    _Rule(_ANY, {"learning_rate": 1e-4, "freeze": None, "epochs": 3}),
)
_FEW_PAIRS = 20_000
_APPROXIMATE = ("epochs", "learning_rate")  # where half and twice as much are no other choice


def advise(recipe: Recipe, pairs: int, epochs: float) -> list[str]:
    """Return rules of thumb for a corpus of `pairs` sentence pairs as lines of text, with what the recipe has instead.

    Args:
        epochs: Epochs that the run will have.
    """
    from_scratch = recipe.fine_tuning.init_from is None
    rules = _FROM_SCRATCH if from_scratch else _FINE_TUNING
    values = next(rule.values for rule in rules if pairs <= rule.most_pairs)
    given = flatten(recipe) | {"epochs": epochs}
    lines = [f"Rules of thumb for {'training on' if from_scratch else 'fine-tuning on'} {pairs:,} pairs:"]
    lines += [f"  {name} {_show(value)}{_instead(name, value, given[name])}" for name, value in values.items()]
    if from_scratch and pairs < _FEW_PAIRS:
        lines.append("So few pairs teach a new model little. Start from a trained one by --init_from.")
    return lines


def _instead(name: str, advised: Any, given: Any) -> str:
    close = name in _APPROXIMATE and given is not None and 0.5 <= given / advised <= 2.0
    return "" if close or advised == given else f" (here {_show(given)})"


def _show(value: Any) -> str:
    if value is None:
        return "none"
    return (
        ", ".join(value) if isinstance(value, list) else f"{value:,.3g}" if isinstance(value, float) else f"{value:,}"
    )
