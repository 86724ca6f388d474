"""
Attention for long sequences: time and memory of a training step over the length, and a task at equal training time.

Linear attention (Katharopoulos et al., 2020), LSH attention and reversible layers (Kitaev et al., 2020), and segments
with a memory (Dai et al., 2019), beside the paper's attention. The steps are on the CPU, in float32.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from vanilla_transformer.errors import UserFileError
from vanilla_transformer.evaluation.plots import new_figure
from vanilla_transformer.training.metrics import peak_memory_gib
from vanilla_transformer.utils.import_utils import child_environment

from .layer_costs import growth_exponent
from .recall import ANSWERS, SEGMENT, build, draw_texts, read_text, set_length, train_recall

VARIANTS: dict[str, dict[str, Any]] = {
    "full attention, eager": {"layer_types": "full_attention", "attn_implementation": "eager"},
    "full attention, sdpa": {"layer_types": "full_attention", "attn_implementation": "sdpa"},
    "reversible layers, sdpa": {"layer_types": "full_attention", "attn_implementation": "sdpa", "reversible": True},
    "linear attention": {"layer_types": "linear_attention", "decoder_attention_heads": 1},  # its sums grow with width
    "LSH attention": {"layer_types": "lsh_attention", "lsh_attn_chunk_length": 64, "num_hashes": 2},
    "Transformer-XL": {"layer_types": "transfo_xl_attention"},
}
LENGTHS = (256, 512, 1024, 2048, 4096)
_TASK_LENGTH = 1024
_ROUND_SECONDS, _FITTED = 0.3, 3
_MEASUREMENT = f"import json, sys; from {__name__} import measure_costs; print(json.dumps(measure_costs(sys.argv[1])))"


def runs(options: Any, budget: int) -> Mapping[str, Callable[[Path], dict[str, Any]]]:
    """Return a run for the cost of each kind of attention, and one for its training and seed."""
    slugs = {name: name.lower().replace(",", "").replace(" ", "-") for name in VARIANTS}
    costs = {f"{slug}-cost": partial(_measure_alone, name) for name, slug in slugs.items()}
    trained = {
        f"{slug}-recall-seed-{seed}": partial(_train, name, seed, budget)
        for seed in range(options.seeds)
        for name, slug in slugs.items()
    }
    return costs | trained


def plan(options: Any, budget: int) -> list[str]:
    """Return the hours of training."""
    hours = options.seeds * len(VARIANTS) * budget / 3600
    return [f"{hours:.1f} hours of training and some minutes of measurements, at most about 4 GiB of memory."]


def measure_costs(name: str, lengths: Sequence[int] = LENGTHS) -> dict[str, Any]:
    """Return the milliseconds of a training step, and the MiB that it adds, for each length, in increasing order."""
    torch.manual_seed(0)
    model, found = build(VARIANTS[name]).train(), {}
    step = partial(_train_step, model)
    step(*draw_texts(1, SEGMENT))  # allocates the gradients
    before = peak_memory_gib(model.device)
    for length in lengths:
        set_length(model, length)
        texts = draw_texts(1, length)
        step(*texts)
        memory = max(0.0, 1024 * (peak_memory_gib(model.device) - before))
        seconds = [_seconds(step, texts)]
        while sum(seconds) < _ROUND_SECONDS:
            seconds.append(_seconds(step, texts))
        found[str(length)] = {"milliseconds": 1e3 * min(seconds), "mebibytes": memory}
    return {"attention": name, "costs": found}


def _measure_alone(name: str, folder: Path | None = None) -> dict[str, Any]:
    """Measure in a new interpreter, whose peak of memory is its own. In its own session, Ctrl-C ends it quietly."""
    command = [sys.executable, "-c", _MEASUREMENT, name]
    environment = child_environment()
    ended = subprocess.run(command, capture_output=True, text=True, start_new_session=True, env=environment)
    if ended.returncode:
        reason = ended.stderr.strip().splitlines()[-1:] or [f"status {ended.returncode}"]
        raise UserFileError(f"The measurement of {name} failed: {reason[0]}")
    return json.loads(ended.stdout)


def _train_step(model: Any, ids: torch.Tensor, labels: torch.Tensor) -> None:
    read_text(model, ids, labels).loss.backward()


def _seconds(step: Callable[..., None], texts: tuple[torch.Tensor, torch.Tensor]) -> float:
    started = time.perf_counter()
    step(*texts)
    return time.perf_counter() - started


def _train(name: str, seed: int, seconds: int, folder: Path | None = None) -> dict[str, Any]:
    return {"attention": name, "seed": seed, **train_recall(VARIANTS[name], seed, seconds, _TASK_LENGTH)}


def rows(values: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each kind of attention, with means over the seeds."""
    table = []
    for name in VARIANTS:
        own = [each for each in values.values() if each["attention"] == name]
        costs = next(each["costs"] for each in own if "costs" in each)
        trained = [each for each in own if "accuracy" in each]
        lengths = [int(length) for length in costs]
        row: dict[str, Any] = {"attention": name}
        for what, unit in (("milliseconds", "ms"), ("mebibytes", "MiB")):
            curve = [cost[what] for cost in costs.values()]
            row |= {f"{unit} at n = {length:,}": curve[lengths.index(length)] for length in (lengths[0], lengths[-1])}
            positive = [max(value, 1e-3) for value in curve[-_FITTED:]]
            row[f"growth of {unit}"] = f"n^{growth_exponent(lengths[-_FITTED:], positive):.1f}"
            row[what] = [*zip(lengths, curve, strict=True)]
        for key, head in (("updates", "updates"), ("length", "length reached"), ("accuracy", "recall, %")):
            mean = sum(each[key] for each in trained) / len(trained)
            row[head] = 100 * mean if key == "accuracy" else round(mean)
        table.append(row)
    return table


def draw(table: Sequence[Mapping[str, Any]]) -> Any:
    """Return a figure with time and memory over the length, and the share of recalled symbols."""
    figure = new_figure(13, 4)
    time_axes, memory_axes, recall_axes = figure.subplots(1, 3)
    for axes, what, label in (
        (time_axes, "milliseconds", "training step, ms"),
        (memory_axes, "mebibytes", "memory of a step, MiB"),
    ):
        for row in table:
            axes.plot(*zip(*row[what], strict=True), marker="o", markersize=3, label=row["attention"])
        axes.set(xlabel="length n", ylabel=label)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.grid(alpha=0.3)
    memory_axes.legend(fontsize="x-small")
    names = [row["attention"] for row in table]
    recall_axes.barh(names, [row["recall, %"] for row in table], color=[f"C{index}" for index in range(len(names))])
    recall_axes.axvline(100 / ANSWERS, color="gray", linestyle=":", label="guessing")
    recall_axes.set(xlabel=f"recalled symbols, %, {_TASK_LENGTH:,} tokens", xlim=(0, 100))
    recall_axes.invert_yaxis()
    recall_axes.legend(fontsize="x-small")
    return figure
