"""Rules of thumb for a recipe by the size of its corpus, which `--dry_run` prints."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from .arguments import Recipe, flatten


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
    values = _find(_FROM_SCRATCH if from_scratch else _FINE_TUNING, pairs)
    given = flatten(recipe) | {"epochs": epochs}
    lines = [f"Rules of thumb for {'training on' if from_scratch else 'fine-tuning on'} {pairs:,} pairs:"]
    lines += [f"  {name} {_show(value)}{_instead(name, value, given[name])}" for name, value in values.items()]
    if from_scratch and pairs < _FEW_PAIRS:
        lines.append("So few pairs teach a new model little. Start from a trained one by --init_from.")
    return lines


def _find(rules: Sequence[_Rule], pairs: int) -> dict[str, Any]:
    return next(rule.values for rule in rules if pairs <= rule.most_pairs)


def _instead(name: str, advised: Any, given: Any) -> str:
    close = name in _APPROXIMATE and given is not None and 0.5 <= given / advised <= 2.0
    return "" if close or advised == given else f" (here {_show(given)})"


def _show(value: Any) -> str:
    if value is None:
        return "none"
    return (
        ", ".join(value) if isinstance(value, list) else f"{value:,.3g}" if isinstance(value, float) else f"{value:,}"
    )


__all__ = ["advise"]
