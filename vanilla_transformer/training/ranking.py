"""Which model of a run is the best by its validation: the one to keep, and the final one."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from vanilla_transformer.evaluation.metric_labels import LOWER_IS_BETTER

_LEAST_BLEU = 5.0
# Times the root of BLEU / sentences: half of the 95 % interval, as bootstrap resampling measures it
_INTERVAL = 8.0
# Metric, chrF and loss, each higher for a better model; without the metric, infinite
Rank = tuple[float, float, float]


def rank(entry: Mapping[str, Any], metric: str) -> Rank:
    value = entry.get("validation_loss" if metric == "loss" else metric)
    if value is None:
        return -math.inf, -math.inf, -math.inf
    return (
        -value if metric in LOWER_IS_BETTER else value,
        entry.get("chrf", -math.inf),
        -entry["validation_loss"],
    )


def choose_best(ranks: Sequence[Rank], metric: str, sentences: int) -> tuple[int, str]:
    """Return the index of the best model, the first one of equal ones, and what decided.

    That is the metric. If the best BLEU is below 5, or differs from another one by less than its
    interval on so many sentences, it is chrF or, without chrF, the loss.
    """
    top, _, _ = max(ranks)
    interval = math.inf if top < _LEAST_BLEU else _INTERVAL * math.sqrt(top / sentences)
    close = [rank for rank in ranks if interval == math.inf or top - rank[0] < interval]
    if metric != "bleu" or len(close) == 1:
        return ranks.index(max(ranks)), metric
    best = max(close, key=lambda rank: rank[1:])
    name, column = ("loss", 2) if best[1] == -math.inf else ("chrf", 1)
    scores = ", ".join(f"{rank[0]:.2f}" for rank in close)
    values = ", ".join(f"{abs(rank[column]):.2f}" for rank in close)
    reason = f"differs by less than {interval:.2f}"
    if interval == math.inf:
        reason = f"is below {_LEAST_BLEU:g}"
    return ranks.index(best), f"{name} ({values}), since BLEU ({scores}) {reason}"
