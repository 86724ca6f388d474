"""Report an evaluation as text and as JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sacrebleu

from vanilla_transformer.resources import METRIC_LABELS
from vanilla_transformer.text.glossary import Glossary

from .significance import Estimate, SystemComparison, compare_systems, estimate_scores
from .term_use import TermUse, measure_term_use


@dataclass(frozen=True)
class Report:
    """Scores of a system by metric, and the comparison with a baseline, if given; and the use of terms."""

    sentences: int
    samples: int
    estimates: dict[str, Estimate]
    comparisons: dict[str, SystemComparison]
    term_uses: Sequence[TermUse] = ()  # of the system and the baseline

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: `scores` by metric, and `comparison` by metric or None."""
        return {
            "sentences": self.sentences,
            "bootstrap_samples": self.samples,
            "scores": {name: estimate._asdict() for name, estimate in self.estimates.items()},
            "comparison": {
                name: {"baseline": one.baseline._asdict(), "p_value": one.p_value}
                for name, one in self.comparisons.items()
            }
            or None,
        } | ({} if not self.term_uses else {"terms": [each.as_dict() for each in self.term_uses]})

    def lines(self) -> Iterator[str]:
        """Yield one line per metric, the meaning of ±, and one line per comparison."""
        for name, estimate in self.estimates.items():
            yield f"{METRIC_LABELS[name]} {_format(estimate)}  {estimate.signature}"
        yield f"±: half of the 95 % confidence interval, from {self.samples} resamples of {self.sentences} sentences"
        for name, one in self.comparisons.items():
            difference = one.system.score - one.baseline.score
            yield (
                f"{METRIC_LABELS[name]} {one.system.score:.2f} against {_format(one.baseline)}: {difference:+.2f}, "
                f"p = {one.p_value:.4f}"
            )
        for use, name in zip(self.term_uses, ("", ", baseline"), strict=False):
            yield f"Terms{name}: {use} ({use.terms} in {use.sentences} sentences)"


def build_report(
    hypotheses: Sequence[str],
    references: Sequence[str],
    baseline: Sequence[str] | None = None,
    paper_language: str | None = None,
    samples: int = 1000,
) -> Report:
    """Score `hypotheses` and, if given, compare them with the translations of a `baseline` system.

    Raises the errors of `estimate_scores`.
    """
    if baseline is None:
        estimates = estimate_scores(hypotheses, references, paper_language, samples)
        return Report(len(references), samples, estimates, {})
    comparisons = compare_systems(hypotheses, baseline, references, paper_language, samples)
    return Report(len(references), samples, {name: one.system for name, one in comparisons.items()}, comparisons)


def add_term_use(
    report: Report,
    glossary: Glossary,
    sources: Sequence[str],
    hypotheses: Sequence[str],
    baseline: Sequence[str] | None = None,
) -> Report:
    """Return a report with the use of a glossary's terms by the system and, if given, the baseline."""
    systems = [hypotheses, *([] if baseline is None else [baseline])]
    return replace(report, term_uses=[measure_term_use(glossary, sources, each) for each in systems])


def worst_translations(
    sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str], count: int = 3
) -> list[dict[str, Any]]:
    """Return the translations with the lowest chrF, worst first: `source`, `translation`, `reference` and `chrf`."""
    metric = sacrebleu.CHRF()
    rows = [
        {"source": source, "translation": text, "reference": reference}
        | {"chrf": round(metric.sentence_score(text, [reference]).score, 2)}
        for source, text, reference in zip(sources, hypotheses, references, strict=True)
        if reference.strip()
    ]
    return sorted(rows, key=lambda row: row["chrf"])[:count]


def _format(estimate: Estimate) -> str:
    return f"{estimate.score:.2f} ± {estimate.margin:.2f}"
