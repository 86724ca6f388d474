"""How far scores are due to the choice of test sentences: intervals, and two systems compared."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest

from .scores import check_paired, corpus_metrics


class Estimate(NamedTuple):
    """A corpus score from 0 to 100; 95 % of the resampled scores lie within `mean` ± `margin`."""

    score: float
    mean: float
    margin: float
    signature: str


class Comparison(NamedTuple):
    """
    Two systems by one metric. `p_value` is the probability of a difference as large as theirs, in either direction,
    between systems that are equally good: below 0.05 it is usually called significant.
    """

    system: Estimate
    baseline: Estimate
    p_value: float


def estimate_scores(
    hypotheses: Sequence[str], references: Sequence[str], paper_language: str | None = None, samples: int = 1000
) -> dict[str, Estimate]:
    """
    Scores by metric (`bleu`, `chrf`, with a language `paper_bleu` and `tokenized_bleu`), with intervals from
    `samples` bootstrap resamples of the test set.

    Raises:
        ValueError: there is nothing to score, not one reference for each hypothesis, no rules for the language, or
            `samples` is not positive.
        OSError: `paper_language` is given, but sacremoses is not installed.
    """
    check_paired(hypotheses, references)
    metrics = corpus_metrics(paper_language)
    return {name: _resample([hypotheses], references, metric, samples)[0][0] for name, metric in metrics.items()}


def compare_systems(
    hypotheses: Sequence[str],
    baseline: Sequence[str],
    references: Sequence[str],
    paper_language: str | None = None,
    samples: int = 1000,
) -> dict[str, Comparison]:
    """
    Paired bootstrap resampling (Koehn, 2004) of two systems' translations of one test set, by sacreBLEU; metrics and
    errors are those of `estimate_scores`.
    """
    check_paired(hypotheses, references)
    check_paired(baseline, references)
    metrics = corpus_metrics(paper_language)
    return {name: _compare(hypotheses, baseline, references, metric, samples) for name, metric in metrics.items()}


def _compare(
    hypotheses: Sequence[str], baseline: Sequence[str], references: Sequence[str], metric: Metric, samples: int
) -> Comparison:
    (theirs, _), (ours, p_value) = _resample([baseline, hypotheses], references, metric, samples)
    # Of two systems that never differ sacreBLEU says 1 / (samples + 1), as if their difference were certain.
    return Comparison(ours, theirs, 1.0 if ours == theirs else p_value)


def _resample(
    systems: Sequence[Sequence[str]], references: Sequence[str], metric: Metric, samples: int
) -> list[tuple[Estimate, float]]:
    """
    Each system's estimate and its p-value against the first. One metric at a time, since sacreBLEU files results under
    the names that metrics give themselves, which is BLEU for three of ours; it draws the same resamples for each.
    """
    if samples < 1:
        raise ValueError(f"There must be at least one bootstrap resample, got {samples}.")
    named: list[tuple[str, Sequence[str]]] = [(f"system {number}", one) for number, one in enumerate(systems)]
    test = PairedTest(named, {"metric": metric}, [references], test_type="bs", n_samples=samples)
    signatures, scores = test()
    ((name, signature),) = signatures.items()
    return [_estimate(result, str(signature)) for result in scores[name]]


def _estimate(result: Any, signature: str) -> tuple[Estimate, float]:
    """Of the first system the p-value is None, which nobody reads."""
    return Estimate(float(result.score), float(result.mean), float(result.ci), signature), result.p_value
