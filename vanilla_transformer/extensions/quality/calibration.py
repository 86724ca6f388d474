"""Fit the confidence and the limits of warnings of a model to validation text."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from transformers.utils import CONFIG_NAME

from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.decoding.confidence import Calibration, measure_features
from vanilla_transformer.decoding.protection.stand_ins import StandIns, direction_key
from vanilla_transformer.errors import UserError
from vanilla_transformer.evaluation.scores import sentence_chrf
from vanilla_transformer.files.hashes import update_json
from vanilla_transformer.files.json_files import read_json
from vanilla_transformer.machine.imports import requires_extra
from vanilla_transformer.text.languages import Direction
from vanilla_transformer.text.translation_warnings import WarningLimits, measure_limits

if TYPE_CHECKING:
    from vanilla_transformer.decoding.translation_pipeline import TranslationPipeline

LEAST_SENTENCES = 100
# Sentences whose mean is one point of the curve before it is made monotone.
_PER_POINT = 10
_FOLDS = 5
_GROUPS = 10
_DIGITS = 5


class Agreement(NamedTuple):
    """
    How confidence agrees with sentence chrF, from 0 to 1.

    Attributes:
        correlation: Spearman's rank correlation.
        error: Mean difference between the mean of both, in 10 groups of sentences of similar
            confidence.
    """

    correlation: float
    error: float


class CalibratedModel(NamedTuple):
    """The calibration of a model, the limits of its warnings, and the agreement on text left out of
    the fit.
    """

    calibration: Calibration
    limits: WarningLimits
    agreement: Agreement


def calibrate(translate: "TranslationPipeline", pairs: Sequence[SentencePair]) -> CalibratedModel:
    """Translate text that was not used in training by a pipeline, and fit the confidence to the
    translations' chrF.
    """
    check_enough(pairs)
    with requires_extra("evaluation", "Calibration"):
        import scipy.stats  # noqa: F401, better missing now than after translation
    sources = [pair.source for pair in pairs]
    targets = [pair.target for pair in pairs]
    has_heads = bool(getattr(translate.model.config, "alignment_heads", None))
    answers = translate(sources, return_tokens=True, return_alignments=has_heads)
    texts = [answer["translation_text"] for answer in answers]
    features = []
    for source, answer in zip(sources, answers, strict=True):
        log_probabilities = [token["log_probability"] for token in answer["tokens"]]
        links = answer.get("alignment", [])
        text = answer["translation_text"]
        features.append(measure_features(source, text, log_probabilities, links))
    scores = [score / 100 for score in sentence_chrf(texts, targets)]
    agreement = measure_agreement(cross_validate(features, scores), scores)
    calibration = fit_calibration(features, scores)
    return CalibratedModel(calibration, measure_limits(sources, targets), agreement)


def check_enough(pairs: Sequence[SentencePair]) -> None:
    """Check that there is enough text to calibrate a model."""
    if len(pairs) < LEAST_SENTENCES:
        enough = f"{LEAST_SENTENCES} sentences or more, such as the validation text"
        raise UserError(f"There must be {enough}, to calibrate a model, got {len(pairs)}.")


def store_calibration(
    folder: str | Path, calibrated: CalibratedModel, direction: Direction, words: StandIns
) -> None:
    """Write `confidence`, `warning_limits` and `stand_ins` to the configuration of a model folder,
    with the stand-ins of other directions that it has.

    Args:
        direction: Direction of the request.
        words: Words that the model copies in it.
    """
    config = read_json(Path(folder) / CONFIG_NAME)
    stand_ins = config.get("stand_ins") or {}
    stand_ins |= {direction_key(direction): words._asdict()}
    entries = {
        "confidence": asdict(calibrated.calibration),
        "warning_limits": asdict(calibrated.limits),
        "stand_ins": stand_ins,
    }
    update_json(Path(folder) / CONFIG_NAME, entries)


def fit_calibration(
    features: Sequence[Mapping[str, float]], scores: Sequence[float]
) -> Calibration:
    """
    Fit weights of the features by least squares, and a curve from weighted sums to scores by
    isotonic regression.

    The curve goes from 0 to 1 and never falls. A feature that never differs gets no weight.
    """
    with requires_extra("evaluation", "Calibration"):
        from scipy.optimize import isotonic_regression
    names = []
    columns = []
    for name in features[0]:
        column = [row[name] for row in features]
        if len(set(column)) > 1:
            names.append(name)
            columns.append(column)
    constant = [1.0] * len(features)
    matrix = np.array([*columns, constant]).T  # (sentences, features + 1)
    targets = np.array(scores)
    *weights, intercept = np.linalg.lstsq(matrix, targets)[0].round(_DIGITS)
    sums = matrix @ [*weights, intercept]
    order = np.argsort(sums, kind="stable")
    groups = np.array_split(order, len(order) // _PER_POINT)
    means = [targets[group].mean() for group in groups]
    blocks = isotonic_regression(means, weights=[*map(len, groups)]).blocks
    pools = [np.concatenate(groups[begin:end]) for begin, end in pairwise(blocks)]
    xs = [float(sums[pool].mean()) for pool in pools]
    ys = [float(targets[pool].mean()) for pool in pools]
    # Sums estimate scores, so scores change with them where there are no sentences: in text unlike
    # the fitted one.
    xs = [xs[0] - ys[0], *xs, xs[-1] + 1 - ys[-1]]
    ys = [0.0, *ys, 1.0]
    weight_of = dict(zip(names, map(float, weights), strict=True))
    xs = [round(x, _DIGITS) for x in xs]
    ys = [round(y, _DIGITS) for y in ys]
    return Calibration(weight_of, float(intercept), xs, ys)


def cross_validate(features: Sequence[Mapping[str, float]], scores: Sequence[float]) -> list[float]:
    """Return the confidence of each translation by a fit to the others: 4 of 5 parts of the
    text.
    """
    confidences = [0.0] * len(scores)
    for fold in range(_FOLDS):
        rows = [row for row in range(len(scores)) if row % _FOLDS != fold]
        other_features = [features[row] for row in rows]
        other_scores = [scores[row] for row in rows]
        calibration = fit_calibration(other_features, other_scores)
        for row in range(fold, len(scores), _FOLDS):
            confidences[row] = calibration.predict(features[row])
    return confidences


def measure_agreement(confidences: Sequence[float], scores: Sequence[float]) -> Agreement:
    """Compare confidences with scores. The correlation is NaN if one of them never differs."""
    groups = group_means(confidences, scores, _GROUPS)
    errors = [abs(confidence - score) for confidence, score in groups]
    error = sum(errors) / len(errors)
    return Agreement(spearman_correlation(confidences, scores), error)


def group_means(
    confidences: Sequence[float], scores: Sequence[float], count: int
) -> list[tuple[float, float]]:
    """Return the mean confidence and the mean score of groups of sentences of similar confidence,
    lowest first.
    """
    xs, ys = np.array(confidences), np.array(scores)
    groups = np.array_split(np.argsort(xs, kind="stable"), min(count, len(xs)))
    return [(float(xs[group].mean()), float(ys[group].mean())) for group in groups]


def spearman_correlation(here: Sequence[float], there: Sequence[float]) -> float:
    """Return Spearman's rank correlation, or NaN if one side never differs."""
    if len({*here}) < 2 or len({*there}) < 2:
        return math.nan  # scipy warns of it
    with requires_extra("evaluation", "Rank correlation"):
        from scipy.stats import spearmanr
    return float(spearmanr(here, there).statistic)
