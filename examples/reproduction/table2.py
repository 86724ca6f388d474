"""Table 2 of the paper: BLEU and the floating-point operations of training, of a run beside the
paper's rows.

python examples/reproduction/table2.py --model runs/mine
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from experiment import MODEL, Experiment

from vanilla_transformer.errors import UserError
from vanilla_transformer.evaluation.plots import new_figure
from vanilla_transformer.training.metrics import METRICS_FILE, read_entries

# The paper's rows: BLEU on newstest2014 from English to German and to French, and operations of
# training for both.
PAPER: tuple[tuple[str, float | None, float | None, float | None, float | None], ...] = (
    ("ByteNet", 23.75, None, None, None),
    ("Deep-Att + PosUnk", None, 39.2, None, 1.0e20),
    ("GNMT + RL", 24.6, 39.92, 2.3e19, 1.4e20),
    ("ConvS2S", 25.16, 40.46, 9.6e18, 1.5e20),
    ("MoE", 26.03, 40.56, 2.0e19, 1.2e20),
    ("Deep-Att + PosUnk, ensemble", None, 40.4, None, 8.0e20),
    ("GNMT + RL, ensemble", 26.30, 41.16, 1.8e20, 1.1e21),
    ("ConvS2S, ensemble", 26.36, 41.29, 7.7e19, 1.2e21),
    ("Transformer (base)", 27.3, 38.1, 3.3e18, 3.3e18),
    ("Transformer (big)", 28.4, 41.8, 2.3e19, 2.3e19),
)
_SIZE, _ROUNDS = 1024, 5  # of the matrices that measure this machine


def runs(options: Any) -> dict[str, Callable[[Path], dict[str, Any]]]:
    """Return the one run."""
    return {"run": partial(measure, options.model, options.budget)}


def identity(options: Any) -> dict[str, Any]:
    """Return the run and the scores of its final model."""
    return {"model": options.model, "final": _final_entry(options.model)}


def _final_entry(name: str | None) -> dict[str, Any]:
    """Return the last entry with BLEU of a run."""
    if name is None or not Path(name, METRICS_FILE).is_file():
        raise UserError(f"Name the folder of a run of `train` by --model, got {name}.")
    scored = [entry for entry in read_entries(Path(name)) if "bleu" in entry]
    if not scored:
        raise UserError(f"{name} must have validated BLEU, as `train` does with a validation text.")
    return scored[-1]


def measure(name: str, rounds: int, folder: Path) -> dict[str, Any]:
    """Return BLEU of the run's final model, its hours, and operations as the paper estimates them.

    The paper multiplies the training time, the number of GPUs and an estimate of the operations per
    second that each one sustains. Here these are measured, by products of matrices on the device
    that training would use.
    """
    final, machine = _final_entry(name), Path(name, "machine.json")
    processes = (
        json.loads(machine.read_text(encoding="utf-8"))["processes"] if machine.is_file() else 1
    )
    seconds, speed = 60 * final["minutes"], sustained(rounds)
    return {
        "run": Path(name).name,
        "bleu": final["bleu"],
        "hours": seconds / 3600,
        "processes": processes,
        "operations_per_second": speed,
        "operations": seconds * processes * speed,
    }


def sustained(rounds: int) -> float:
    """Return the floating-point operations per second of products of matrices in float32: the
    median of rounds.
    """
    device = (
        torch.accelerator.current_accelerator()
        if torch.accelerator.is_available()
        else torch.device("cpu")
    )
    matrix, speeds = torch.randn(_SIZE, _SIZE, device=device), []
    for _ in range(rounds + 1):  # the first one warms up
        started = time.perf_counter()
        float((matrix @ matrix)[0, 0])  # which waits for the device
        speeds.append(2 * _SIZE**3 / (time.perf_counter() - started))
    return sorted(speeds[1:])[rounds // 2]


def rows(values: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the paper's rows, and the row of the run."""
    heads = ("model", "BLEU EN-DE", "BLEU EN-FR", "FLOPs EN-DE", "FLOPs EN-FR")
    table = [
        dict(zip(heads, row, strict=True)) | {"BLEU here": None, "FLOPs here": None}
        for row in PAPER
    ]
    run = values["run"]
    name = f"{run['run']}, {run['hours']:.2g} hours"
    here = {"model": name, "BLEU here": run["bleu"], "FLOPs here": run["operations"]}
    return [*table, dict.fromkeys(table[0]) | here]


def draw(table: Sequence[Mapping[str, Any]]) -> Any:
    """Return a figure of BLEU over the operations of training."""
    figure = new_figure(8, 5)
    axes = figure.subplots()
    for direction, marker in (("EN-DE", "o"), ("EN-FR", "s"), ("here", "*")):
        bleu, operations = f"BLEU {direction}", f"FLOPs {direction}"
        points = [row for row in table if None not in (row[bleu], row[operations])]
        places = [[row[name] for row in points] for name in (operations, bleu)]
        axes.plot(
            *places, marker, label=direction if direction == "here" else f"paper, {direction}"
        )
        for row, x, y in zip(points, *places, strict=True):
            # Other labels would hide each other.
            if direction == "here" or row["model"].startswith("Transformer"):
                axes.annotate(row["model"], (x, y), xytext=(5, 5), textcoords="offset points")
    axes.set(xlabel="floating-point operations of training", ylabel="BLEU", xscale="log")
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


TITLE = (
    "BLEU and the floating-point operations of training (table 2), of a run beside the paper's rows"
)
UNIT = "measurements of this machine's speed"
EXPERIMENT = Experiment("table2", TITLE, 5, UNIT, runs, rows, draw, MODEL, identity)
if __name__ == "__main__":
    EXPERIMENT.run_script()
