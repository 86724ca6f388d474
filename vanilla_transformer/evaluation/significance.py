"""Confidence intervals, significance of differences, use of terms, and the report of all scores of
a test set.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest

from vanilla_transformer.evaluation.metric_labels import METRIC_LABELS, OF_N_BEST

from .scores import check_same_length, corpus_metrics, sentence_chrf, without_blanks

SIGNIFICANT = 0.05  # p-value of a difference, below which it counts
Scoring = Callable[[Sequence[str]], Mapping[str, Metric]]  # returns metrics by name, for references


class Estimate(NamedTuple):
    """A corpus score from 0 to 100.

    The 95 % confidence interval of resampled scores is `mean` ± `margin`.
    """

    score: float
    mean: float
    margin: float
    signature: str

    @property
    def low(self) -> float:
        return max(0.0, self.mean - self.margin)

    @property
    def high(self) -> float:
        return self.mean + self.margin


class SystemComparison(NamedTuple):
    """Two systems compared by one metric.

    `p_value` is the probability of a difference at least this large, in either direction, if the
    systems are equally good. Values below 0.05 are usually called significant.
    """

    system: Estimate
    baseline: Estimate
    p_value: float


@dataclass(frozen=True)
class Report:
    """Scores of a system by metric, the comparison with a baseline, if given, further metrics and
    the use of terms.
    """

    sentences: int
    samples: int
    estimates: dict[str, Estimate]
    comparisons: dict[str, SystemComparison]
    metrics: Mapping[str, float] = field(default_factory=dict)  # without confidence intervals
    term_uses: Sequence[Any] = ()  # of the system and the baseline, as a glossary measures them

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: `scores` by metric, and `comparison` by metric or None."""
        comparisons = dict[str, Any]()
        for name, comparison in self.comparisons.items():
            baseline = comparison.baseline._asdict()
            comparisons[name] = {"baseline": baseline, "p_value": comparison.p_value}
        values: dict[str, Any] = {
            "sentences": self.sentences,
            "bootstrap_samples": self.samples,
            "scores": {name: estimate._asdict() for name, estimate in self.estimates.items()},
            "comparison": comparisons or None,
        }
        if self.metrics:
            values["metrics"] = dict(self.metrics)
        if self.term_uses:
            values["terms"] = [use.as_dict() for use in self.term_uses]
        return values

    def lines(self) -> Iterator[str]:
        """Yield one line per metric, the meaning of ±, and one line per comparison."""
        for name, estimate in self.estimates.items():
            yield f"{METRIC_LABELS[name]} {_format(estimate)}  {estimate.signature}"
        for name, value in self.metrics.items():
            yield f"{name} {value:.4f}"
        yield (
            f"±: half of the 95 % confidence interval, from {self.samples} resamples of "
            f"{self.sentences} sentences"
        )
        for name, one in self.comparisons.items():
            difference = one.system.score - one.baseline.score
            yield (
                f"{METRIC_LABELS[name]} {one.system.score:.2f} against {_format(one.baseline)}: "
                f"{difference:+.2f}, p = {one.p_value:.4f}"
            )
        for use, name in zip(self.term_uses, ("", ", baseline"), strict=False):
            yield f"Terms{name}: {use} ({use.terms} in {use.sentences} sentences)"


def build_report(
    hypotheses: Sequence[str],
    references: Sequence[str],
    baseline: Sequence[str] | None = None,
    scoring: Scoring = corpus_metrics,
    samples: int = 1000,
    metrics: Mapping[str, float] | None = None,
    further_references: Sequence[Sequence[str]] = (),
    n_best: Sequence[str] | None = None,
) -> Report:
    """Score `hypotheses` and, if given, compare them with the translations of a `baseline` system.

    Intervals and p-values are of sacreBLEU's paired bootstrap resampling (Koehn, 2004).

    Args:
        scoring: [`corpus_metrics`] or a partial of it; returns the metrics for references.
        samples: Number of resamples.
        metrics: Values of further metrics, which the report shows as they are.
        further_references: Further translations of each sentence, of which a blank one does not
            count.
        n_best: All translations of each sentence, a line each, for the metrics that need several.
    """
    systems = [("hypotheses", hypotheses)]
    if baseline is not None:
        systems = [("baseline", baseline), *systems]
    for _, translations in systems:
        check_same_length(translations, references)
    estimates, comparisons = dict[str, Estimate](), dict[str, SystemComparison]()
    for name, metric in scoring(references).items():
        # sacreBLEU keys its results by the metric's name, which is "BLEU" for three of ours, so
        # each gets a call. All calls have the same seed and so the same resamples.
        compared = systems
        if n_best is not None and name in OF_N_BEST:
            compared = [("hypotheses", n_best)]
        signatures, results = PairedTest(
            compared,
            {"": metric},
            [references, *map(without_blanks, further_references)],
            test_type="bs",
            n_samples=samples,
        )()
        ((label, signature),) = signatures.items()
        rows: Any = results[label]
        estimates_of_systems = []
        for row in rows:
            numbers = (float(row.score), float(row.mean), float(row.ci))
            estimates_of_systems.append(Estimate(*numbers, str(signature)))
        theirs, ours = estimates_of_systems[0], estimates_of_systems[-1]
        estimates[name] = ours
        if baseline is not None:
            # For two identical systems sacreBLEU returns 1 / (samples + 1), as if their difference
            # were significant.
            p_value = 1.0 if ours == theirs else rows[-1].p_value
            comparisons[name] = SystemComparison(ours, theirs, p_value)
    return Report(len(references), samples, estimates, comparisons, metrics or {})


def worst_translations(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[str],
    further_references: Sequence[Sequence[str]] = (),
    count: int = 3,
) -> list[dict[str, Any]]:
    """Return the translations with the lowest chrF, worst first: `source`, `translation`,
    `reference` and `chrf`.
    """
    scores = sentence_chrf(hypotheses, references, *further_references)
    rows: list[dict[str, Any]] = []
    columns = zip(sources, hypotheses, references, scores, strict=True)
    for source, text, reference, score in columns:
        if reference.strip():
            row = {"source": source, "translation": text, "reference": reference}
            rows.append({**row, "chrf": round(score, 2)})
    return sorted(rows, key=lambda row: row["chrf"])[:count]


def _format(estimate: Estimate) -> str:
    return f"{estimate.score:.2f} ± {estimate.margin:.2f}"
