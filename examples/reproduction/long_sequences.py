"""
Attention for long sequences: time and memory of a training step over the length, and a task at
equal training time.

Linear attention (Katharopoulos et al., 2020), LSH attention and reversible layers (Kitaev et al.,
2020), and segments with a memory (Dai et al., 2019), beside the paper's attention. The steps are on
the CPU, in float32.

    python examples/reproduction/long_sequences.py
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
from experiment import Experiment
from recall import ANSWERS, SEGMENT, build, draw_texts, read_text, set_length, train_recall
from table1 import growth_exponent

from vanilla_transformer.evaluation.plots import new_figure
from vanilla_transformer.training.metrics import peak_memory_gib

VARIANTS: dict[str, dict[str, Any]] = {
    "full attention, eager": {"layer_types": "full_attention", "attn_implementation": "eager"},
    "full attention, sdpa": {"layer_types": "full_attention", "attn_implementation": "sdpa"},
    "reversible layers, sdpa": {
        "layer_types": "full_attention",
        "attn_implementation": "sdpa",
        "reversible": True,
    },
    "linear attention": {
        "layer_types": "linear_attention",
        "decoder_attention_heads": 1,
    },  # its sums grow with width
    "LSH attention": {"layer_types": "lsh_attention", "lsh_attn_chunk_length": 64, "num_hashes": 2},
    "Transformer-XL": {"layer_types": "transfo_xl_attention"},
}
LENGTHS = (256, 512, 1024, 2048, 4096)
_TASK_LENGTH = 1024
_ROUND_SECONDS, _FITTED = 0.3, 3


def runs(options: Any) -> Mapping[str, Callable[[Path], dict[str, Any]]]:
    """Return a run for the cost of each kind of attention, and one for its training and seed."""
    slugs = {name: name.lower().replace(",", "").replace(" ", "-") for name in VARIANTS}
    costs = {f"{slug}-cost": partial(_measure_alone, name) for name, slug in slugs.items()}
    trained = {
        f"{slug}-recall-seed-{seed}": partial(_train, name, seed, options.budget)
        for seed in range(options.seeds)
        for name, slug in slugs.items()
    }
    return costs | trained


def plan(options: Any) -> str:
    """Return the hours of training."""
    hours = options.seeds * len(VARIANTS) * options.budget / 3600
    return (
        f"{hours:.1f} hours of training and some minutes of measurements, at most about 4 "
        "GiB of memory."
    )


def measure_costs(name: str, lengths: Sequence[int] = LENGTHS) -> dict[str, Any]:
    """Return the milliseconds of a training step, and the MiB that it adds, for each length, in
    increasing order.
    """
    torch.manual_seed(0)
    model, costs = build(VARIANTS[name]).train(), {}
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
        costs[str(length)] = {"milliseconds": 1e3 * min(seconds), "mebibytes": memory}
    return {"attention": name, "costs": costs}


def _measure_alone(name: str, folder: Path) -> dict[str, Any]:
    """Measure in a new interpreter, whose peak of memory is its own.

    In its own session, Ctrl-C ends it quietly.
    """
    command = [sys.executable, __file__, "--measure", name]
    return json.loads(
        subprocess.run(command, stdout=subprocess.PIPE, start_new_session=True, check=True).stdout
    )


def _train_step(model: Any, ids: torch.Tensor, labels: torch.Tensor) -> None:
    read_text(model, ids, labels).loss.backward()


def _seconds(step: Callable[..., None], texts: tuple[torch.Tensor, torch.Tensor]) -> float:
    started = time.perf_counter()
    step(*texts)
    return time.perf_counter() - started


def _train(name: str, seed: int, seconds: int, folder: Path) -> dict[str, Any]:
    return {
        "attention": name,
        "seed": seed,
        **train_recall(VARIANTS[name], seed, seconds, _TASK_LENGTH),
    }


def rows(values: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each kind of attention, with means over the seeds."""
    table = []
    for name in VARIANTS:
        measured = [run for run in values.values() if run["attention"] == name]
        costs = next(run["costs"] for run in measured if "costs" in run)
        trained = [run for run in measured if "accuracy" in run]
        lengths = [int(length) for length in costs]
        row: dict[str, Any] = {"attention": name}
        for what, unit in (("milliseconds", "ms"), ("mebibytes", "MiB")):
            curve = [cost[what] for cost in costs.values()]
            row |= {
                f"{unit} at n = {length:,}": curve[lengths.index(length)]
                for length in (lengths[0], lengths[-1])
            }
            positive = [max(value, 1e-3) for value in curve[-_FITTED:]]
            row[f"growth of {unit}"] = f"n^{growth_exponent(lengths[-_FITTED:], positive):.1f}"
            row[what] = [*zip(lengths, curve, strict=True)]
        for key, head in (
            ("updates", "updates"),
            ("length", "length reached"),
            ("accuracy", "recall, %"),
        ):
            mean = sum(run[key] for run in trained) / len(trained)
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
            axes.plot(
                *zip(*row[what], strict=True), marker="o", markersize=3, label=row["attention"]
            )
        axes.set(xlabel="length n", ylabel=label)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.grid(alpha=0.3)
    memory_axes.legend(fontsize="x-small")
    names = [row["attention"] for row in table]
    recall_axes.barh(
        names,
        [row["recall, %"] for row in table],
        color=[f"C{index}" for index in range(len(names))],
    )
    recall_axes.axvline(100 / ANSWERS, color="gray", linestyle=":", label="guessing")
    recall_axes.set(xlabel=f"recalled symbols, %, {_TASK_LENGTH:,} tokens", xlim=(0, 100))
    recall_axes.invert_yaxis()
    recall_axes.legend(fontsize="x-small")
    return figure


TITLE = (
    "Linear, LSH and Transformer-XL attention and reversible layers: time, memory, and "
    "a task at equal time"
)
UNIT = "seconds of processor time for each training"
EXPERIMENT = Experiment("long_sequences", TITLE, 300, UNIT, runs, rows, draw, plan=plan)
if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure_costs(sys.argv[2])))
    else:
        EXPERIMENT.run_script()
