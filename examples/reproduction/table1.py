"""Table 1 of the paper: operations, sequential steps and path length of four kinds of layers, over
the length.

python examples/reproduction/table1.py
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from experiment import Experiment
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from vanilla_transformer.errors import UserError
from vanilla_transformer.evaluation.plots import new_figure

# Kinds of layers with the paper's complexity per layer, sequential operations and maximum path
# length. The paper gives log_k(n) for dilated convolutions; these are contiguous ones.
FORMULAS = {
    "self-attention": ("n² · d", "1", "1"),
    "recurrent": ("n · d²", "n", "n"),
    "convolutional": ("k · n · d²", "1", "n / k"),
    "restricted self-attention": ("r · n · d", "1", "n / r"),
}
_WIDTH, _KERNEL, _NEIGHBORS = 32, 3, 17  # d, k, and r, which is odd: as many on both sides
_LEAST, _LONGEST_PATH = 32, 128  # positions
_ROUNDS = 3


def runs(options: Any) -> dict[str, Callable[[Path], dict[str, Any]]]:
    """Return a run for each kind of layer and length."""
    if options.budget < 2 * _LEAST:
        raise UserError(f"--budget must be at least {2 * _LEAST} positions, got {options.budget}.")
    lengths = [_LEAST * 2**power for power in range(int(math.log2(options.budget / _LEAST)) + 1)]
    return {
        f"{kind.replace(' ', '-')}-{length}": partial(measure, kind, length)
        for kind in FORMULAS
        for length in lengths
    }


def measure(kind: str, length: int, folder: Path) -> dict[str, Any]:
    """Return multiplications, sequential steps, seconds and, for lengths that allow it, the path
    length.
    """
    torch.manual_seed(0)
    layer, states = _layer(kind), torch.randn(length, _WIDTH, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        output = layer(states)
    seconds = []
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        layer(states)
        seconds.append(time.perf_counter() - started)
    return {
        "layer": kind,
        "n": length,
        "operations": counter.get_total_flops() // 2,
        "sequential": _depth(output),
        "path": _path_length(kind, layer, length) if length <= _LONGEST_PATH else None,
        "seconds": min(seconds),
    }


def _layer(kind: str) -> Callable[[Tensor], Tensor]:
    """Return a layer: a function of states `(n, d)`."""
    if kind == "recurrent":
        inputs, update = (torch.randn(_WIDTH, _WIDTH) / _WIDTH**0.5 for _ in range(2))
        return lambda states: _recur(states, inputs, update)
    if kind == "convolutional":
        kernel = torch.randn(_WIDTH, _WIDTH, _KERNEL) / (_KERNEL * _WIDTH) ** 0.5
        return lambda states: (
            nn.functional.conv1d(states.T[None], kernel, padding=_KERNEL // 2)[0].T
        )
    return _attend if kind == "self-attention" else _attend_nearby


def _attend(states: Tensor) -> Tensor:
    return (states @ states.T / _WIDTH**0.5).softmax(dim=-1) @ states


def _attend_nearby(states: Tensor) -> Tensor:
    side = _NEIGHBORS // 2
    near = nn.functional.pad(states, (0, 0, side, side)).unfold(0, _NEIGHBORS, 1)  # (n, d, r)
    weights = (states[:, None] @ near / _WIDTH**0.5).softmax(dim=-1)
    return (weights @ near.transpose(1, 2))[:, 0]


def _recur(states: Tensor, inputs: Tensor, update: Tensor) -> Tensor:
    projected, hidden, outputs = states @ inputs, torch.zeros(1, _WIDTH), []
    for position in range(len(states)):
        hidden = torch.tanh(projected[position] + hidden @ update)
        outputs.append(hidden)
    return torch.cat(outputs)


def _depth(output: Tensor) -> int:
    """Return the number of operations that wait for each other, on the longest way from the input
    to the output.
    """
    depths: dict[Any, int] = {None: 0}
    stack = [output.grad_fn]
    while stack:
        node = stack[-1]
        inputs = [function for function, _ in node.next_functions]  # type: ignore[union-attr]
        missing = [function for function in inputs if function not in depths]
        if missing:
            stack.extend(missing)
        else:
            depths[stack.pop()] = 1 + max((depths[function] for function in inputs), default=0)
    return depths[output.grad_fn]


def _path_length(kind: str, layer: Callable[[Tensor], Tensor], length: int) -> int:
    """Return how many layers connect the first output to the last input; of a recurrent one, how
    many updates.
    """
    if kind == "recurrent":
        return length
    states = torch.randn(length, _WIDTH, dtype=torch.float32, requires_grad=True)
    output = states
    for place in range(length):
        output = layer(output)
        (gradient,) = torch.autograd.grad(output[0].sum(), states, retain_graph=True)
        if gradient[-1].abs().sum() > 0:
            return place + 1
    raise UserError(f"The layers must connect all positions, but {length} of them do not.")


def rows(values: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each kind: the formulas, and how the measured values grow with n, as
    exponents.
    """
    table = []
    for kind, formulas in FORMULAS.items():
        points = sorted(
            (run for run in values.values() if run["layer"] == kind), key=lambda run: run["n"]
        )
        paths, lengths = (
            [run for run in points if run["path"] is not None],
            [run["n"] for run in points],
        )
        table.append(
            {
                "layer": kind,
                "operations": formulas[0],
                "measured: n to the power of": growth_exponent(
                    lengths, [run["operations"] for run in points]
                ),
                "sequential": formulas[1],
                "measured: n to the power of ": growth_exponent(
                    lengths, [run["sequential"] for run in points]
                ),
                "path": formulas[2],
                f"measured at n = {paths[-1]['n']}": paths[-1]["path"],
                f"milliseconds at n = {points[-1]['n']}": 1000 * points[-1]["seconds"],
                "points": points,
            }
        )
    return table


def growth_exponent(lengths: Sequence[float], values: Sequence[float]) -> float:
    """Return the power of n with which positive values grow; a negative one if they fall."""
    return float(np.polyfit(np.log(lengths), np.log(values), 1)[0])


def draw(table: Sequence[Mapping[str, Any]]) -> Any:
    """Return a figure with a panel for each measured value over the length."""
    figure = new_figure(15, 4)
    labels = {
        "operations": "multiplications",
        "sequential": "operations that wait",
        "path": "layers or updates",
    }
    for axes, (name, label) in zip(figure.subplots(1, 3), labels.items(), strict=True):
        for row, marker in zip(table, "osD^", strict=True):  # markers differ, since lines meet
            points = [point for point in row["points"] if point[name] is not None]
            values = [point[name] for point in points]
            axes.plot(
                [point["n"] for point in points],
                values,
                marker,
                ls="-",
                fillstyle="none",
                label=row["layer"],
            )
        axes.set_xscale("log", base=2)
        axes.set(xlabel="n", ylabel=label, yscale="log")
        axes.grid(alpha=0.3)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=len(table))
    return figure


TITLE = "The cost of a layer (table 1): operations, sequential steps and path length"
EXPERIMENT = Experiment("table1", TITLE, 512, "positions of the longest sequence", runs, rows, draw)
if __name__ == "__main__":
    EXPERIMENT.run_script()
