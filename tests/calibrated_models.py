"""A tiny model with a calibrated confidence and limits of its warnings."""

from dataclasses import asdict

from tests.tiny import tiny_model
from vanilla_transformer.decoding.confidence import Calibration
from vanilla_transformer.text.translation_warnings import WarningLimits

CALIBRATION = Calibration(
    {"mean_log_probability": 0.2, "log_length_ratio": 0.01, "aligned_share": 0.1},
    0.9,
    [-1.0, 0.5, 1.0],
    [0.1, 0.3, 1.0],
)
LIMITS = WarningLimits(0.9, 1.1, ["LATIN"])


def calibrated_model():
    model = tiny_model()
    model.config.alignment_heads = [[0, 1]]
    model.config.confidence, model.config.warning_limits = asdict(CALIBRATION), asdict(LIMITS)
    return model


__all__ = ["CALIBRATION", "LIMITS", "calibrated_model"]
