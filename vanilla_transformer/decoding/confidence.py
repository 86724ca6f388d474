"""
The confidence of a translation: the chrF, from 0 to 1, that translations like it had on validation
text.

A [`Calibration`] computes it from features of the translation that decoding yields anyway: a
weighted sum, mapped to chrF by a curve that never falls. It is stored as `confidence` in the
configuration of a model.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vanilla_transformer.errors import UserError
from vanilla_transformer.text.translation_warnings import length_ratio
from vanilla_transformer.text.units import split_units

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

COMMAND = "`vanilla-transformer calibrate MODEL --source FILE --target FILE`"
ALIGNED_SHARE = "aligned_share"


@dataclass(frozen=True)
class Calibration:
    """
    A fit of confidence to chrF.

    Attributes:
        weights: The weight of each feature, see [`measure_features`].
        intercept: Added to the weighted sum.
        sums, confidences: Points of the curve from sums to confidences, both ascending, with
            straight lines between.
    """

    weights: dict[str, float]
    intercept: float
    sums: list[float]
    confidences: list[float]

    @classmethod
    def from_config(cls, config: "PreTrainedConfig") -> "Calibration":
        """Return the calibration of a model."""
        stored = getattr(config, "confidence", None)
        if stored is None:
            raise UserError(
                f"A model must be calibrated to return confidence. {COMMAND} does that."
            )
        try:
            calibration = cls(**stored)
            features = measure_features("", "", [], [])
            unknown = calibration.weights.keys() - features.keys()
            zeros = dict.fromkeys(calibration.weights, 0.0)
            if unknown or not np.isfinite(calibration.predict(zeros)):
                raise UserError
        except (TypeError, ValueError, AttributeError) as error:
            raise UserError(
                f"`confidence` in the configuration is damaged. {COMMAND} writes it again."
            ) from error
        return calibration

    @property
    def needs_alignments(self) -> bool:
        """Whether a feature is computed from alignments."""
        return ALIGNED_SHARE in self.weights

    def predict(self, features: Mapping[str, float]) -> float:
        """Return the confidence of a translation, from 0 to 1."""
        weighted = [weight * features[name] for name, weight in self.weights.items()]
        total = self.intercept + sum(weighted)
        return float(np.interp(total, self.sums, self.confidences))


def measure_features(
    source: str,
    translation: str,
    log_probabilities: Sequence[float],
    links: Sequence[Sequence[float]],
) -> dict[str, float]:
    """Return the features of a translation.

    - mean_log_probability: the mean over its tokens.
    - log_length_ratio: the logarithm of [`length_ratio`].
    - aligned_share: the share of the words of the source that have a link.

    The lowest log-probability of a token is none of them: with it, the fit was not better.

    Args:
        log_probabilities: Log-probabilities of the tokens of the translation, EOS included.
        links: See [`Link`]; none without alignments.
    """
    starts = []
    for start, end in split_units(source):
        if any(map(str.isalnum, source[start:end])):
            starts.append(start)
    linked = {int(link[0]) for link in links}
    aligned_share = 1.0
    if starts:
        aligned_share = sum(start in linked for start in starts) / len(starts)
    mean_log_probability = sum(log_probabilities) / max(1, len(log_probabilities))
    return {
        "mean_log_probability": mean_log_probability,
        "log_length_ratio": math.log(length_ratio(source, translation)),
        ALIGNED_SHARE: aligned_share,
    }
