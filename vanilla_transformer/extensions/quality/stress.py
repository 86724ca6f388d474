"""Stress tests: how scores, warnings and confidence change on text that is written in another way."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.evaluation.scores import Scores, score, sentence_chrf
from vanilla_transformer.text.translation_warnings import WARNINGS, WarningLimits, find_warnings

from .calibration import group_means, spearman_correlation

_SHORT_SHARE = 20  # one in twenty pairs is short
_JOINED = 5  # pairs in a row that become one
_GROUPS = 5
_CONFIDENCE_COLUMNS = ("confidence", "correlation")


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
        bleu_change, chrf_change: The difference to the same pairs unchanged. None if these are not the same pairs.
        warnings: The share of the translations with each of the `WARNINGS`.
        confidence: Its mean. None for a model that was not calibrated.
        correlation: Spearman's correlation between confidence and sentence chrF. None if one of them never differs.
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
        groups: The mean confidence and the mean chrF, from 0 to 1, of each fifth of the plain text by confidence.
    """

    rows: list[StressRow]
    groups: list[tuple[float, float]]


class _Translated(NamedTuple):
    texts: list[str]
    confidences: list[float]


def stress_texts(pairs: Sequence[SentencePair], seed: int = 0) -> Iterator[StressText]:
    """Yield the text itself, the pairs that each perturbation changes, the shortest twentieth, and joined pairs."""
    from vanilla_transformer.extensions.augmentation.perturbations import PERTURBATIONS, perturb

    yield StressText("plain", [*pairs], [*range(len(pairs))])
    for name in PERTURBATIONS:
        changed = [perturb(name, pair, f"{seed} {row}") for row, pair in enumerate(pairs)]
        rows = [row for row, pair in enumerate(pairs) if changed[row].source != pair.source]
        yield StressText(name, [changed[row] for row in rows], rows)
    by_length = sorted(range(len(pairs)), key=lambda row: len(pairs[row].source))
    rows = sorted(by_length[: -(-len(pairs) // _SHORT_SHARE)])
    yield StressText("short", [pairs[row] for row in rows], rows)
    groups = [pairs[start : start + _JOINED] for start in range(0, len(pairs), _JOINED)]
    joined = [SentencePair(*(" ".join(side) for side in zip(*group, strict=True))) for group in groups]
    yield StressText("joined", joined, None)


def measure_stress(
    translate: Any,
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
    is_calibrated, limits = getattr(config, "confidence", None) is not None, WarningLimits.from_config(config)
    rows, groups, plain = list[StressRow](), list[tuple[float, float]](), list[str]()
    for text in stress_texts(pairs):
        if not text.pairs:
            continue
        answers = translate([pair.source for pair in text.pairs], return_confidence=is_calibrated)
        confidences = [answer["confidence"] for answer in answers if "confidence" in answer]
        found = _Translated([answer["translation_text"] for answer in answers], confidences)
        targets = [pair.target for pair in text.pairs]
        before = None
        if text.name == "plain":
            plain = found.texts
            if is_calibrated:
                shares = [chrf / 100 for chrf in sentence_chrf(plain, targets)]
                groups = group_means(found.confidences, shares, _GROUPS)
        elif text.rows is not None:
            before = score([plain[row] for row in text.rows], [pairs[row].target for row in text.rows])
        rows.append(_build_row(text, found, limits, before))
        report(rows[-1])
    return StressTable(rows, groups)


def format_header() -> str:
    """Return the header of a table for a terminal."""
    columns = ["pairs", "BLEU", "change", "chrF", "change", *WARNINGS, *_CONFIDENCE_COLUMNS]
    return f"{'text':<15}" + "".join(f"{column:>{_width(column)}}" for column in columns)


def format_row(row: StressRow) -> str:
    """Return a row of a table for a terminal. Warnings are in percent."""
    cells = {
        "pairs": str(row.pairs),
        "BLEU": f"{row.bleu:.2f}",
        "BLEU change": _signed(row.bleu_change),
        "chrF": f"{row.chrf:.2f}",
        "chrF change": _signed(row.chrf_change),
        **{name: f"{100 * row.warnings[name]:.1f}" for name in WARNINGS},
        "confidence": _fixed(row.confidence),
        "correlation": _fixed(row.correlation),
    }
    return f"{row.name:<15}" + "".join(f"{cell:>{_width(name.split()[-1])}}" for name, cell in cells.items())


def _build_row(text: StressText, found: _Translated, limits: WarningLimits, before: Scores | None) -> StressRow:
    sources, targets = ([getattr(pair, side) for pair in text.pairs] for side in ("source", "target"))
    scores = score(found.texts, targets)
    warned = [find_warnings(source, each, limits) for source, each in zip(sources, found.texts, strict=True)]
    confidence = correlation = None
    if found.confidences:
        confidence = sum(found.confidences) / len(found.confidences)
        found_correlation = spearman_correlation(found.confidences, sentence_chrf(found.texts, targets))
        correlation = None if math.isnan(found_correlation) else found_correlation
    return StressRow(
        text.name,
        len(text.pairs),
        scores.bleu,
        scores.chrf,
        None if before is None else scores.bleu - before.bleu,
        None if before is None else scores.chrf - before.chrf,
        {name: sum(name in each for each in warned) / len(warned) for name in WARNINGS},
        confidence,
        correlation,
    )


def _width(column: str) -> int:
    return max(8, len(column) + 2)


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2f}"


def _fixed(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
