"""The fit of confidence to chrF, its agreement with chrF, and the configuration that stores it."""

import math
import random
import sys
from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest

from vanilla_transformer.data.corpus import SentencePair
from vanilla_transformer.decoding.confidence import Calibration, measure_features
from vanilla_transformer.decoding.translations import Link
from vanilla_transformer.errors import UserError
from vanilla_transformer.extensions.quality.calibration import (
    calibrate,
    cross_validate,
    fit_calibration,
    measure_agreement,
    spearman_correlation,
)


def noisy_features(count):
    """Return features and scores that rise with both log-probabilities, in a curve and with
    noise.
    """
    draw = random.Random(0)
    features, scores = [], []
    for _ in range(count):
        mean, ratio = -draw.random(), -3 * draw.random()
        features.append(
            {"mean_log_probability": mean, "log_length_ratio": ratio, "aligned_share": 1.0}
        )
        scores.append(min(1.0, max(0.0, 0.9 + 0.5 * mean + 0.1 * ratio + draw.gauss(0, 0.05))) ** 2)
    return features, scores


def test_fit_calibration_predicts_the_mean_score():
    calibration = fit_calibration(*noisy_features(2000))
    assert calibration.sums == sorted(calibration.sums) and len({*calibration.sums}) == len(
        calibration.sums
    )
    assert (
        calibration.confidences == sorted(calibration.confidences) and len(calibration.sums) < 200
    )
    assert calibration.weights.keys() == {"mean_log_probability", "log_length_ratio"}
    assert not calibration.needs_alignments
    for mean, ratio in [(-0.1, -0.5), (-0.4, -1.0), (-0.7, -2.5)]:
        found = calibration.predict({"mean_log_probability": mean, "log_length_ratio": ratio})
        assert found == pytest.approx((0.9 + 0.5 * mean + 0.1 * ratio) ** 2, abs=0.03)


def test_fit_calibration_is_unsure_of_text_unlike_the_fitted_one():
    features = [{"mean_log_probability": -place / 100} for place in range(101)]
    calibration = fit_calibration(features, [1 - 0.3 * place / 100 for place in range(101)])
    found = [
        calibration.predict({"mean_log_probability": value}) for value in (0.0, -1.0, -2.0, -9.0)
    ]
    assert found == pytest.approx([1.0, 0.7, 0.4, 0.0], abs=0.01)


def test_fit_calibration_never_falls():
    features = [
        {"mean_log_probability": -1.0 / (1 + place), "aligned_share": 0.5} for place in range(100)
    ]
    calibration = fit_calibration(features, [place % 7 / 7 for place in range(100)])
    found = [calibration.predict(each) for each in features]
    assert found == sorted(found) or found == sorted(found, reverse=True)
    assert np.mean(found) == pytest.approx(3 / 7, abs=0.02)


def test_cross_validate_agrees_with_the_scores():
    features, scores = noisy_features(500)
    agreement = measure_agreement(cross_validate(features, scores), scores)
    assert agreement.correlation > 0.9 and agreement.error < 0.02


def test_cross_validate_does_not_fit_to_the_score_that_it_predicts():
    features, scores = noisy_features(200)
    before = cross_validate(features, scores)
    after = cross_validate(features, [1.0 - scores[0], *scores[1:]])
    assert after[0] == before[0] and after[1] != before[1]


def test_measure_agreement_of_groups():
    confidences = [place / 100 for place in range(100)]
    assert measure_agreement(confidences, confidences) == pytest.approx((1.0, 0.0))
    assert measure_agreement(confidences, [1 - each for each in confidences]) == pytest.approx(
        (-1.0, 0.5), abs=0.01
    )
    assert measure_agreement([0.5] * 3, [0.0, 0.5, 1.0]).error == pytest.approx(1 / 3)


def test_spearman_correlation_of_equal_values_is_nan():
    assert np.isnan(spearman_correlation([1, 1], [1, 2]))


FEATURES, SCORES = noisy_features(100)


@pytest.mark.parametrize(
    ("missing", "call"),
    [
        ("scipy.optimize", lambda: fit_calibration(FEATURES, SCORES)),
        ("scipy.stats", lambda: measure_agreement(SCORES, SCORES)),
        (
            "scipy.stats",
            lambda: calibrate(None, [SentencePair("a", "b")] * 100),
        ),  # before it translates
    ],
)
def test_calibration_names_the_extra_that_is_missing(missing, call, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(UserError, match=r"vanilla-transformer\[evaluation\]"):
        call()


def test_calibrate_fits_to_scores_from_0_to_1():
    def translate(sources, **options):
        return [
            {"translation_text": each, "tokens": [{"log_probability": -1 / len(each)}]}
            for each in sources
        ]

    translate.model = SimpleNamespace(config=SimpleNamespace())
    pairs = [
        SentencePair("a" * size, "a" * (size if size % 2 else 2 * size)) for size in range(1, 101)
    ]
    assert 0.9 < max(calibrate(translate, pairs).calibration.confidences) <= 1


def test_measure_features_counts_words_with_a_link():
    links = [Link(0, 3, 0, 3, 1.0), Link(4, 7, 4, 8, 0.5), Link(7, 8, 8, 9, 0.9)]
    features = measure_features("Two men. 漢字", "Zwei Männer. 漢字 also", [-0.5, -1.5], links)
    assert features == {
        "mean_log_probability": -1.0,
        "log_length_ratio": math.log(30 / 21),
        "aligned_share": 0.5,
    }
    blank = measure_features("", "", [], [])
    assert blank == {"mean_log_probability": 0.0, "log_length_ratio": 0.0, "aligned_share": 1.0}


def test_calibration_is_read_from_a_configuration():
    calibration = fit_calibration(FEATURES, SCORES)
    assert Calibration.from_config(SimpleNamespace(confidence=asdict(calibration))) == calibration
    with pytest.raises(
        ValueError, match="must be calibrated to return confidence. `vanilla-transformer calibrate "
    ):
        Calibration.from_config(SimpleNamespace())


DAMAGES = [{"weights": {"length": 1.0}}, {"weights": [1.0]}, {"sums": []}, {"confidences": ["a"]}]


@pytest.mark.parametrize("change", [*DAMAGES, {"intercept": None}, {"more": 1}])
def test_calibration_names_a_damaged_configuration(change):
    stored = asdict(fit_calibration(FEATURES, SCORES)) | change
    with pytest.raises(
        ValueError, match="`confidence` in the configuration is damaged. `vanilla-transformer calib"
    ):
        Calibration.from_config(SimpleNamespace(confidence=stored))
