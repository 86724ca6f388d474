"""Compute bootstrap confidence intervals of scores, and the significance of differences between two systems."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest

from .bleu_counts import corpus_bleu, count_ngrams
from .scores import check_same_length, corpus_metrics

_SEED = 12345  # the default of sacreBLEU


class Estimate(NamedTuple):
    """A corpus score from 0 to 100. The 95 % confidence interval of resampled scores is `mean` ± `margin`."""

    score: float
    mean: float
    margin: float
    signature: str


class SystemComparison(NamedTuple):
    """Two systems compared by one metric.

    `p_value` is the probability of a difference at least this large, in either direction, if the systems are equally
    good. Values below 0.05 are usually called significant.
    """

    system: Estimate
    baseline: Estimate
    p_value: float


def estimate_scores(
    hypotheses: Sequence[str], references: Sequence[str], paper_language: str | None = None, samples: int = 1000
) -> dict[str, Estimate]:
    """Estimate the scores of `corpus_metrics` with confidence intervals from `samples` bootstrap resamples.

    Raises:
        ValueError: there are no sentences, the numbers of hypotheses and references differ, the language is not
            supported, or `samples` is not positive.
        OSError: `paper_language` is given, but sacremoses is not installed.
    """
    check_same_length(hypotheses, references)
    metrics = corpus_metrics(paper_language)
    return {name: _resample([hypotheses], references, metric, samples)[0][0] for name, metric in metrics.items()}


def compare_systems(
    hypotheses: Sequence[str],
    baseline: Sequence[str],
    references: Sequence[str],
    paper_language: str | None = None,
    samples: int = 1000,
) -> dict[str, SystemComparison]:
    """Compare two systems' translations of a test set by sacreBLEU's paired bootstrap resampling (Koehn, 2004).

    Metrics and errors are the same as in `estimate_scores`.
    """
    check_same_length(hypotheses, references)
    check_same_length(baseline, references)
    metrics = corpus_metrics(paper_language)
    return {name: _compare(hypotheses, baseline, references, metric, samples) for name, metric in metrics.items()}


class MeanComparison(NamedTuple):
    """The BLEU of a system and the mean BLEU of others, with a p-value as in [`SystemComparison`]."""

    system: float
    mean: float
    p_value: float


def compare_with_mean(
    hypotheses: Sequence[str], others: Sequence[Sequence[str]], references: Sequence[str], samples: int = 1000
) -> MeanComparison:
    """
    Compare a system's BLEU with the mean BLEU of other systems, by paired bootstrap resampling.

    Each resample draws the same sentences for all systems. For one other system this is sacreBLEU's test.

    Raises:
        ValueError: there are no sentences or systems, their numbers differ, or `samples` is not positive.
    """
    if samples < 1 or not others:
        raise ValueError(f"There must be other systems and resamples, got {len(others)} and {samples}.")
    systems = np.stack([count_ngrams(each, references) for each in (hypotheses, *others)])  # (systems, sentences, 10)

    def scores(sums: np.ndarray) -> tuple[float, float]:
        ours, *theirs = (corpus_bleu(each) for each in sums)
        return ours, sum(theirs) / len(theirs)

    ours, theirs = scores(systems.sum(axis=1))
    draws = np.random.default_rng(_SEED).integers(len(references), size=(samples, len(references)))
    differences = np.array([abs(np.subtract(*scores(systems[:, draw].sum(axis=1)))) for draw in draws])
    extreme = int((differences - differences.mean() > abs(ours - theirs)).sum())
    # As in `_compare`, equal systems do not differ.
    return MeanComparison(ours, theirs, (extreme + 1) / (samples + 1) if differences.any() else 1.0)


def _compare(
    hypotheses: Sequence[str], baseline: Sequence[str], references: Sequence[str], metric: Metric, samples: int
) -> SystemComparison:
    (theirs, _), (ours, p_value) = _resample([baseline, hypotheses], references, metric, samples)
    # For two identical systems sacreBLEU returns 1 / (samples + 1), as if their difference were significant.
    return SystemComparison(ours, theirs, 1.0 if ours == theirs else p_value)


def _resample(
    systems: Sequence[Sequence[str]], references: Sequence[str], metric: Metric, samples: int
) -> list[tuple[Estimate, float]]:
    """Return each system's estimate and its p-value against the first system.

    sacreBLEU keys its results by the metric's own name, which is "BLEU" for three of ours, so each metric gets its own
    call. sacreBLEU seeds every call equally, so all metrics see the same resamples.
    """
    if samples < 1:
        raise ValueError(f"There must be at least one bootstrap resample, got {samples}.")
    named: list[tuple[str, Sequence[str]]] = [(f"system {number}", one) for number, one in enumerate(systems)]
    test = PairedTest(named, {"metric": metric}, [references], test_type="bs", n_samples=samples)
    signatures, scores = test()
    ((name, signature),) = signatures.items()
    return [_estimate(result, str(signature)) for result in scores[name]]


def _estimate(result: Any, signature: str) -> tuple[Estimate, float]:
    """Convert sacreBLEU's result. The baseline has no p-value."""
    return Estimate(float(result.score), float(result.mean), float(result.ci), signature), result.p_value
