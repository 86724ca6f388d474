"""Load the models of an ensemble, which have one vocabulary."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .engine.ensemble import Ensemble, check_weights
from .pretrained import check_same_vocabulary, load_seq2seq, load_tokenizer


def load_ensemble(
    model: Any, tokenizer: Any, names: Sequence[str | Path] | None, weights: Sequence[float] | None = None
) -> Any:
    """Load the models that decode with a first one, and return them together; without any names, the first one.

    Args:
        model, tokenizer: The first model, and its tokenizer.
        names: Folders or Hub names of the other models.
        weights: Of all models, the first one included; see [`Ensemble`].

    Raises:
        ValueError: The models have different vocabularies, one is no translation model, or the weights do not fit.
        OSError: There is no such model, or it is damaged.
    """
    if names is None and weights is not None:
        raise ValueError("`ensemble_weights` needs `ensemble`, the other models.")
    if names is None:
        return model
    if isinstance(names, str | Path) or not names:
        raise ValueError(f"`ensemble` must be a list of one or more folders or Hub names, got {names!r}.")
    check_weights(weights, len(names) + 1)
    others = [load_seq2seq(name, "translates", dtype=model.dtype).to(model.device) for name in names]
    for name in names:
        check_same_vocabulary(tokenizer, load_tokenizer(name), name, "The models of an ensemble")
    return Ensemble([model, *others], weights)


def ensemble_arguments(names: Sequence[str], weights: Sequence[float] | None) -> dict[str, Any]:
    """Return the arguments of the pipeline that combine a first model with others; without others, none.

    Args:
        names, weights: See [`load_ensemble`].
    """
    given = {"ensemble": list(names) or None, "ensemble_weights": weights}
    return {name: value for name, value in given.items() if value is not None}


__all__ = ["ensemble_arguments", "load_ensemble"]
