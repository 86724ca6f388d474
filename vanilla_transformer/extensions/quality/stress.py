"""Stress tests: how scores, warnings and confidence change on text that is written in another
way.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.evaluation.scores import score, sentence_chrf
from vanilla_transformer.text.translation_warnings import OF_TEXT, WarningLimits, find_warnings

from .calibration import group_means, spearman_correlation

if TYPE_CHECKING:
    from vanilla_transformer.decoding.translation_pipeline import TranslationPipeline

_SHORT_SHARE = 20  # one in twenty pairs is short
_JOINED = 5  # pairs in a row that become one
_GROUPS = 5
_COLUMNS = ("pairs", "BLEU", "change", "chrF", "change", *OF_TEXT, "confidence", "correlation")
PLAIN = "plain"


class StressText(NamedTuple):
    """
    Changed pairs of a text.

    Attributes:
        rows: The place of each one in the text; None if they were joined.
    """

    name: str
    pairs: list[SentencePair]
    rows: list[int] | None


class StressRow(NamedTuple):
    """
    The translations of a changed text.

    Attributes:
        name: "plain", a perturbation of the extension augmentation, "short" or "joined".
        pairs: Their number.
        bleu, chrf: Corpus scores.
        bleu_change, chrf_change: The difference to the same pairs unchanged. None if these are not
            the same pairs.
        warnings: The share of the translations with each of `OF_TEXT`.
        confidence: Its mean. None for a model that was not calibrated.
        correlation: Spearman's correlation between confidence and sentence chrF. None if one of
            them never differs.
    """

    name: str
    pairs: int
    bleu: float
    chrf: float
    bleu_change: float | None
    chrf_change: float | None
    warnings: dict[str, float]
    confidence: float | None
    correlation: float | None


class StressTable(NamedTuple):
    """
    The rows of a stress test.

    Attributes:
        groups: The mean confidence and the mean chrF, from 0 to 1, of each fifth of the plain text
            by confidence.
    """

    rows: list[StressRow]
    groups: list[tuple[float, float]]


def stress_texts(pairs: Sequence[SentencePair], seed: int = 0) -> Iterator[StressText]:
    """Yield the text itself, the pairs that each perturbation changes, the shortest twentieth, and
    joined pairs.
    """
    from vanilla_transformer.extensions.augmentation.perturbations import PERTURBATIONS, perturb

    yield StressText(PLAIN, [*pairs], [*range(len(pairs))])
    for name in PERTURBATIONS:
        perturbed = [perturb(name, pair, f"{seed} {row}") for row, pair in enumerate(pairs)]
        rows = []
        for row, pair in enumerate(pairs):
            if perturbed[row].source != pair.source:
                rows.append(row)
        yield StressText(name, [perturbed[row] for row in rows], rows)
    by_length = sorted(range(len(pairs)), key=lambda row: len(pairs[row].source))
    rows = sorted(by_length[: -(-len(pairs) // _SHORT_SHARE)])
    yield StressText("short", [pairs[row] for row in rows], rows)
    joined = []
    for start in range(0, len(pairs), _JOINED):
        group = pairs[start : start + _JOINED]
        source = " ".join(pair.source for pair in group)
        target = " ".join(pair.target for pair in group)
        joined.append(SentencePair(source, target))
    yield StressText("joined", joined, None)


def measure_stress(
    translate: "TranslationPipeline",
    pairs: Sequence[SentencePair],
    report: Callable[[StressRow], None] = lambda row: None,
) -> StressTable:
    """
    Translate a text and its changes, and return their scores, warnings and confidence.

    Args:
        translate: The [`TranslationPipeline`] of the model.
        report: Called with each row once it is there. Changes that touch no pair have none.
    """
    config = translate.model.config
    is_calibrated = getattr(config, "confidence", None) is not None
    limits = WarningLimits.from_config(config)
    rows: list[StressRow] = []
    groups: list[tuple[float, float]] = []
    plain: list[str] = []
    for name, changed, indices in stress_texts(pairs):
        if not changed:
            continue
        sources = [pair.source for pair in changed]
        targets = [pair.target for pair in changed]
        answers = translate(sources, return_confidence=is_calibrated)
        texts = [answer["translation_text"] for answer in answers]
        scores = score(texts, targets)
        confidences = [answer["confidence"] for answer in answers if "confidence" in answer]
        confidence = correlation = None
        if confidences:
            chrf = sentence_chrf(texts, targets)
            confidence = sum(confidences) / len(confidences)
            correlation = spearman_correlation(confidences, chrf)
            if math.isnan(correlation):
                correlation = None
            if name == PLAIN:
                shares = [value / 100 for value in chrf]
                groups = group_means(confidences, shares, _GROUPS)
        bleu_change = chrf_change = None
        if name == PLAIN:
            plain = texts
        elif indices is not None:
            plain_texts = [plain[index] for index in indices]
            before = score(plain_texts, [pairs[index].target for index in indices])
            bleu_change = scores.bleu - before.bleu
            chrf_change = scores.chrf - before.chrf
        counts = dict.fromkeys(OF_TEXT, 0)
        for source, text in zip(sources, texts, strict=True):
            for warning in find_warnings(source, text, limits):
                counts[warning] += 1
        warnings = {warning: count / len(texts) for warning, count in counts.items()}
        row = StressRow(
            name,
            len(changed),
            scores.bleu,
            scores.chrf,
            bleu_change,
            chrf_change,
            warnings,
            confidence,
            correlation,
        )
        rows.append(row)
        report(row)
    return StressTable(rows, groups)


def format_header() -> str:
    """Return the header of a table for a terminal."""
    return _format("text", _COLUMNS)


def format_row(row: StressRow) -> str:
    """Return a row of a table for a terminal. Warnings are in percent."""

    def show(value: float | None, form: str) -> str:
        return "–" if value is None else f"{value:{form}}"

    scores = [
        f"{row.bleu:.2f}",
        show(row.bleu_change, "+.2f"),
        f"{row.chrf:.2f}",
        show(row.chrf_change, "+.2f"),
    ]
    warnings = [f"{100 * row.warnings[name]:.1f}" for name in OF_TEXT]
    quality = [show(row.confidence, ".3f"), show(row.correlation, ".3f")]
    return _format(row.name, [str(row.pairs), *scores, *warnings, *quality])


def _format(name: str, cells: Sequence[str]) -> str:
    widths = [max(8, len(column) + 2) for column in _COLUMNS]
    line = f"{name:<15}"
    for cell, width in zip(cells, widths, strict=True):
        line += f"{cell:>{width}}"
    return line
