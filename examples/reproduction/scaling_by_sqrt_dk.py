"""The softmax of random queries and keys, with and without division by √d_k (section 3.2.1).

python examples/reproduction/scaling_by_sqrt_dk.py
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from experiment import Experiment
from torch import nn

from vanilla_transformer.evaluation.plots import new_figure
from vanilla_transformer.modeling_vanilla_transformer import eager_attention_forward

WIDTHS = (1, 4, 16, 64, 256, 1024, 4096)
KEYS = 64


def runs(options: Any) -> dict[str, Callable[[Path], dict[str, Any]]]:
    """Return a run for each width and seed."""
    return {
        f"d_k-{width}-seed-{seed}": partial(measure, width, seed, options.budget)
        for width in WIDTHS
        for seed in range(options.seeds)
    }


def measure(width: int, seed: int, queries: int, folder: Path) -> dict[str, Any]:
    """Return the mean largest probability, and the mean norm of the gradient by the scores, for
    both scalings.
    """
    generator = torch.Generator().manual_seed(seed)
    query, key = (torch.randn(1, 1, count, width, generator=generator) for count in (queries, KEYS))
    values = torch.randn(1, 1, KEYS, 1, generator=generator)  # one number for each key
    results: dict[str, Any] = {"d_k": width}
    for name, scaling in (("unscaled", 1.0), ("scaled", width**-0.5)):
        # With unit vectors as keys, the products are the queries, so that their gradient can be
        # read.
        products = (query @ key.transpose(-2, -1)).requires_grad_()
        output, probabilities = eager_attention_forward(
            nn.Module(), products, torch.eye(KEYS)[None, None], values, None, scaling
        )
        (gradient,) = torch.autograd.grad(output.sum(), products)
        results[f"largest_{name}"] = probabilities.amax(dim=-1).mean().item()
        results[f"gradient_{name}"] = gradient.norm(dim=-1).mean().item() / scaling
    return results


def rows(values: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each width, with means over the seeds."""
    heads = {
        "largest probability, not divided": "largest_unscaled",
        "divided by √d_k": "largest_scaled",
        "gradient norm, not divided": "gradient_unscaled",
        "gradient norm, divided": "gradient_scaled",
    }
    table = []
    for width in WIDTHS:
        seeds = [run for run in values.values() if run["d_k"] == width]
        means = {head: statistics.fmean(run[key] for run in seeds) for head, key in heads.items()}
        table.append({"d_k": width, **means})
    return table


def draw(table: Sequence[Mapping[str, Any]]) -> Any:
    """Return a figure with a panel for probabilities and one for gradients."""
    figure = new_figure(10, 4)
    widths, heads = [row["d_k"] for row in table], [*table[0]][1:]
    for axes, pair, label in zip(
        figure.subplots(1, 2),
        (heads[:2], heads[2:]),
        ("mean largest probability", "mean gradient norm"),
        strict=True,
    ):
        for head, text in zip(pair, ("not divided", "divided by √d_k"), strict=True):
            axes.plot(widths, [row[head] for row in table], marker="o", label=text)
        axes.set(xlabel="d_k", ylabel=label, xscale="log", ylim=(0, None))
        axes.grid(alpha=0.3)
        axes.legend()
    return figure


TITLE = "The softmax without and with division by √d_k (section 3.2.1)"
EXPERIMENT = Experiment(
    "scaling_by_sqrt_dk", TITLE, 512, "random queries of each width", runs, rows, draw
)
if __name__ == "__main__":
    EXPERIMENT.run_script()
