"""An encoder with and without positions, on tokens and on the same ones with the last one first
(section 3.5).

python examples/reproduction/positions.py
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from experiment import Experiment

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.evaluation.plots import new_figure
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerModel

KINDS = ("none", "sinusoidal", "learned")
_SIZES = {
    "vocab_size": 100,
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "init_std": 0.1,
}
_SIZES |= {f"{side}_ffn_dim": 128 for side in ("encoder", "decoder")}
_SIZES |= {f"{side}_attention_heads": 4 for side in ("encoder", "decoder")}


def runs(options: Any) -> dict[str, Callable[[Path], dict[str, Any]]]:
    """Return a run for each kind of positions and each seed."""
    return {
        f"{kind}-seed-{seed}": partial(measure, kind, seed, options.budget)
        for kind in KINDS
        for seed in range(options.seeds)
    }


@torch.no_grad()
def measure(kind: str, seed: int, longest: int, folder: Path) -> dict[str, Any]:
    """Return by length how far the states of permuted tokens are from the permuted states, relative
    to their norm.
    """
    torch.manual_seed(seed)
    config: Any = VanillaTransformerConfig(
        **_SIZES, position_embedding_type=kind, max_position_embeddings=longest + 1
    )
    encoder = VanillaTransformerModel(config).eval().encoder
    distances = {}
    for length in sorted({2, *range(4, longest + 1, 4), longest}):
        ids, order = torch.randint(4, config.vocab_size, (1, length)), torch.arange(length).roll(1)
        states, permuted = (
            encoder(ids).last_hidden_state[0],
            encoder(ids[:, order]).last_hidden_state[0],
        )
        distances[str(length)] = float((permuted - states[order]).norm() / states.norm())
    return {"positions": kind, "distances": distances}


def rows(values: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each length, with the largest distance of all seeds for each kind of
    positions.
    """
    lengths = next(iter(values.values()))["distances"]
    return [
        {"tokens": int(length)}
        | {
            kind: max(
                run["distances"][length] for run in values.values() if run["positions"] == kind
            )
            for kind in KINDS
        }
        for length in lengths
    ]


def draw(table: Sequence[Mapping[str, Any]]) -> Any:
    """Return a figure of the distances over the length."""
    figure = new_figure(6, 4)
    axes = figure.subplots()
    for kind in KINDS:
        axes.plot(
            [row["tokens"] for row in table], [row[kind] for row in table], marker="o", label=kind
        )
    axes.set(
        xlabel="tokens",
        ylabel="relative change of the states",
        title="Tokens in another order",
        ylim=(0, None),
    )
    axes.grid(alpha=0.3)
    axes.legend(title="positions")
    return figure


TITLE = "Attention alone does not know the order of its input (section 3.5)"
EXPERIMENT = Experiment("positions", TITLE, 16, "tokens of the longest source", runs, rows, draw)
if __name__ == "__main__":
    EXPERIMENT.run_script()
