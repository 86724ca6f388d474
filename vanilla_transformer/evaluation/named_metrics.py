"""Metrics by name: of sacreBLEU, COMET, of the `evaluate` library, or a function
`package.module:name`.
"""

import importlib
import math
from collections.abc import Callable, Sequence
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any

from sacrebleu import CHRF, TER
from sacrebleu.metrics.base import Metric as SacreMetric
from sacrebleu.metrics.base import Score

from vanilla_transformer.errors import UserError
from vanilla_transformer.machine.cores import process_state
from vanilla_transformer.user_input.reasons import first_line

from .metric_labels import OF_N_BEST

# Scores sources, hypotheses and references, aligned.
Metric = Callable[[Sequence[str], Sequence[str], Sequence[str]], float]
OWN_METRICS = ("bleu", "chrf", "loss")


class Accuracy(SacreMetric):
    """
    Percentage of texts that equal a reference, as sacreBLEU computes metrics: with resampling and a
    signature.

    Args:
        best: Translations of each text that may be the right one: the first lines of a hypothesis.
    """

    def __init__(self, best: int = 1):
        super().__init__()
        self.best = best

    def _preprocess_segment(self, sent: str) -> str:
        return sent.strip()

    def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
        return {"references": {*filter(None, refs)}}

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict) -> list[int]:
        # Without references, a text counts as neither right nor wrong.
        references = ref_kwargs["references"]
        is_right = not references.isdisjoint(hypothesis.split("\n")[: self.best])
        return [int(is_right), int(bool(references))]

    def _aggregate_and_compute(self, stats: list[list[int]]) -> Score:
        return self._compute_score_from_stats([*map(sum, zip(*stats, strict=True))])

    def _compute_score_from_stats(self, stats: Sequence[float]) -> Score:
        return Score("accuracy", 100 * float(stats[0]) / max(1.0, float(stats[1])))


# Further metrics with intervals and signatures, by name
SACRE_METRICS: dict[str, Callable[[], SacreMetric]] = {
    "chrf++": partial(CHRF, word_order=2),
    "ter": TER,
    "accuracy": Accuracy,
    **{name: partial(Accuracy, best) for name, best in OF_N_BEST.items()},
}
COMET = "comet"
COMET_MODEL = "Unbabel/wmt22-comet-da"  # by default
_RULE = (
    "A metric must be bleu, chrf, chrf++, ter, accuracy, loss, comet, comet:MODEL, a metric of the "
    "evaluate library or a function of sources, hypotheses and references, such as "
    "package.module:name"
)
_SCORES = ("mean_score", "score")  # where COMET and metrics of sacreBLEU return the score


def load_metric(name: str) -> Metric:
    """Return the metric with this name, which is not one of `OWN_METRICS`.

    The returned function raises a `ValueError` if the metric fails or does not return one finite
    number.
    """
    module, separator, function = name.rpartition(":")
    if name in OF_N_BEST:
        raise UserError(
            f"{name} must be measured by `evaluate --metric {name}`, since it needs several "
            "translations of each text. Rank the models of a run by accuracy."
        )
    if name in SACRE_METRICS:
        return _load_sacre_metric(name)
    if COMET in (name, module):
        compute = _load_comet(function if separator else COMET_MODEL)
    elif separator:
        compute = _load_function(name, module, function)
    else:
        compute = _load_of_evaluate(name)

    def measure(
        sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]
    ) -> float:
        try:
            value = compute([*sources], [*hypotheses], [*references])
        except Exception as error:  # of any library
            reason = f"{type(error).__name__}: {first_line(error)}"
            raise UserError(f"The metric {name} failed: {reason}") from error
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value):
            raise UserError(f"The metric {name} must return one finite number, got {value!r}.")
        return float(value)

    return measure


def _load_sacre_metric(name: str) -> Metric:
    metric = SACRE_METRICS[name]()

    def measure(
        sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]
    ) -> float:
        return metric.corpus_score(hypotheses, [references]).score

    return measure


def _load_comet(model_name: str) -> Callable[..., Any]:
    from vanilla_transformer.extensions.quality.comet import Comet

    model = Comet.load(model_name)

    def compute(
        sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]
    ) -> float:
        on_device = model.to(process_state().device)
        scores = on_device.score(sources, hypotheses, references, progress_bar=True)
        return float(scores.mean())

    return compute


def _load_function(name: str, module: str, function: str) -> Callable[..., Any]:
    try:
        metric = getattr(importlib.import_module(module), function)
    except Exception as error:  # any error of the user's module
        reason = first_line(error)
        raise UserError(f"{_RULE}. {name!r} cannot be loaded: {reason}") from error
    if not callable(metric):
        kind = type(metric).__name__
        raise UserError(f"{_RULE}. {name!r} is not a function but {kind}.")
    return metric


def _load_of_evaluate(name: str) -> Callable[..., Any]:
    import evaluate

    try:
        metric = evaluate.load(name)
    except Exception as error:  # of the Hub, or of packages that the metric needs
        reason = first_line(error)
        raise UserError(f"{_RULE}. {name!r} cannot be loaded: {reason}") from error
    features = metric.features
    if isinstance(features, list):
        features = features[0]
    known = {"predictions", "references", "sources"} & {*features}

    def compute(
        sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]
    ) -> Any:
        texts = {"predictions": hypotheses, "references": references, "sources": sources}
        scores = metric.compute(**{key: texts[key] for key in known})
        # The value with the metric's name or a usual one, or the only number.
        for key in (Path(name).stem, *_SCORES):
            if key in scores:
                return scores[key]
        numbers = [value for value in scores.values() if isinstance(value, Real)]
        if len(numbers) != 1:
            names = ", ".join(map(repr, scores))
            raise UserError(f"it returns {names}. Write a function that returns one of them")
        return numbers[0]

    return compute
