"""Compare a new model with an old one on a test set, and say whether the new one may replace it."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

from vanilla_transformer.decoding import TranslationPipeline
from vanilla_transformer.errors import UserError
from vanilla_transformer.text.protection import find_kept
from vanilla_transformer.text.translation_warnings import WarningLimits, find_warnings

from .metric_labels import METRIC_LABELS
from .scores import sentence_chrf
from .significance import SIGNIFICANT, Report
from .tables import render_table
from .test_sets import TestSet, evaluate_test_set, translate_timed


class ModelOutput(NamedTuple):
    """
    The translations of a test set by a model.

    Attributes:
        seconds: Time of translation, without the time to load the model.
        parameters: Number of the model's parameters.
    """

    translations: list[str]
    seconds: float
    parameters: int


class Change(NamedTuple):
    """A sentence that two models translate in other words, and how much its chrF changed."""

    source: str
    reference: str
    old: str
    new: str
    chrf: float


class WorstLosses(NamedTuple):
    """
    How much worse a new model may be.

    Attributes:
        score: Points of BLEU and of chrF, if the difference is significant (p < 0.05).
        lost: Further sentences with lost numbers, and further texts to keep or terms that are lost.
        time: The time of the new model divided by that of the old one; None for any.
        size: Its parameters divided by the old one's; None for any.
    """

    score: float = 0.0
    lost: int = 0
    time: float | None = None
    size: float | None = None


@dataclass(frozen=True)
class ModelComparison:
    """
    Two models on one test set.

    Attributes:
        report: Scores of the new model, and its comparison with the old one.
        lost: The numbers, texts to keep and terms that the old and the new model lost, counted.
        changes: The sentences that changed, the ones whose chrF changed most first.
    """

    old: ModelOutput
    new: ModelOutput
    report: Report
    lost: dict[str, tuple[int, int]]
    changes: list[Change]

    def find_losses(self, worst: WorstLosses) -> list[str]:
        """Return a line for each way in which the new model is worse than `worst` permits."""
        losses: list[str] = []
        for metric, comparison in self.report.comparisons.items():
            drop = comparison.baseline.score - comparison.system.score
            if drop > worst.score and comparison.p_value < SIGNIFICANT:
                name = METRIC_LABELS[metric]
                losses.append(f"{name} is {drop:.2f} lower (p = {comparison.p_value:.4f})")
        for name, (before, after) in self.lost.items():
            if after > before + worst.lost:
                losses.append(f"{name}: {after:,} instead of {before:,}")
        for name, earlier, later, limit in self._ratios(worst):
            if limit is not None and later > limit * earlier:
                losses.append(f"{name}: {later / earlier:.2f} times as much, above {limit:g}")
        return losses

    def _ratios(self, worst: WorstLosses) -> Iterator[tuple[str, float, float, float | None]]:
        yield "seconds", self.old.seconds, self.new.seconds, worst.time
        yield "parameters", self.old.parameters, self.new.parameters, worst.size

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of a table of both models."""
        rows: list[dict[str, Any]] = []
        for metric, comparison in self.report.comparisons.items():
            scores = {"old": comparison.baseline.score, "new": comparison.system.score}
            cells = {name: f"{score:.2f}" for name, score in scores.items()}
            rows.append({"": METRIC_LABELS[metric], **cells, "p": f"{comparison.p_value:.4f}"})
        for name, (before, after) in self.lost.items():
            rows.append({"": name, "old": f"{before:,}", "new": f"{after:,}", "p": ""})
        for name, earlier, later, _ in self._ratios(WorstLosses()):
            rows.append({"": name, "old": f"{earlier:,.5g}", "new": f"{later:,.5g}", "p": ""})
        return rows

    def as_dict(self, losses: Sequence[str], shown: int) -> dict[str, Any]:
        """Return plain values for JSON, with at most `shown` changes."""
        lost = {name: {"old": old, "new": new} for name, (old, new) in self.lost.items()}
        models = {}
        for name, output in (("old", self.old), ("new", self.new)):
            models[name] = {"seconds": output.seconds, "parameters": output.parameters}
        return {
            **self.report.as_dict(),
            "lost": lost,
            "models": models,
            "changed_sentences": len(self.changes),
            "changes": [change._asdict() for change in self.changes[:shown]],
            "is_worse_by": list(losses),
        }

    def markdown(self, losses: Sequence[str], shown: int) -> str:
        """Return a page: the verdict, the table, and at most `shown` changes."""
        verdict = "The new model is not worse than the limits permit."
        if losses:
            verdict = "\n".join(["The new model is worse:", "", *(f"- {loss}" for loss in losses)])
        count = f"{len(self.changes):,} of {self.report.sentences:,} translations changed."
        blocks = [verdict, render_table(self.rows()), count]
        for change in self.changes[:shown]:
            lines = [f"- chrF {change.chrf:+.1f}: {change.source}"]
            for name in ("reference", "old", "new"):
                lines.append(f"  - {name}: {getattr(change, name)}")
            blocks.append("\n".join(lines))
        return "\n\n".join(blocks)


def translate_test_set(
    opening: AbstractContextManager[TranslationPipeline], sources: list[str]
) -> ModelOutput:
    """Translate a test set by a model that is closed afterward, so that the next one has its
    memory.
    """
    with opening as translate:
        timed = translate_timed(translate, sources)
        return ModelOutput(*timed, translate.decoded_model.num_parameters())


def compare_outputs(
    texts: TestSet, old: ModelOutput, new: ModelOutput, samples: int = 1000, glossary: Any = None
) -> ModelComparison:
    """
    Compare the translations of two models.

    Args:
        texts: The test set, with its source text.
        samples: Number of resamples for p-values.
        glossary: Terms whose losses are counted.
    """
    if not texts.sources:
        raise UserError("Models are compared on a source text, got none. Give one.")
    both = texts._replace(hypotheses=new.translations, baseline=old.translations)
    report = evaluate_test_set(both, samples=samples, glossary=glossary).report
    counts = []
    for output in (old, new):
        numbers = kept = 0
        for source, translation in zip(texts.sources, output.translations, strict=True):
            numbers += "numbers" in find_warnings(source, translation, WarningLimits())
            kept += count_lost_texts(source, translation)
        counts.append((numbers, kept))
    (old_numbers, old_kept), (new_numbers, new_kept) = counts
    lost = {
        "sentences with lost numbers": (old_numbers, new_numbers),
        "lost texts to keep": (old_kept, new_kept),
    }
    if report.term_uses:
        new_use, old_use = report.term_uses
        lost["lost terms"] = (old_use.terms - old_use.inflected, new_use.terms - new_use.inflected)
    changes = find_changes(texts, old.translations, new.translations)
    return ModelComparison(old, new, report, lost, changes)


def count_lost_texts(source: str, translation: str) -> int:
    """Count the texts of a source, such as links, that its translation must have and lacks."""
    return sum(text not in translation for text in find_kept(source))


def find_changes(texts: TestSet, old: Sequence[str], new: Sequence[str]) -> list[Change]:
    """Return the sentences with other translations, the ones whose chrF changed most first."""
    references = (texts.references, *texts.further_references)
    old_scores = sentence_chrf(old, *references)
    new_scores = sentence_chrf(new, *references)
    changes: list[Change] = []
    for row, source in enumerate(texts.sources):
        if old[row] != new[row]:
            chrf = round(new_scores[row] - old_scores[row], 2)
            changes.append(Change(source, texts.references[row], old[row], new[row], chrf))
    return sorted(changes, key=lambda change: -abs(change.chrf))
