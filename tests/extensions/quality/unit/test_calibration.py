"""The fit of confidence to chrF, its agreement with chrF, and the configuration that stores it."""

import json
import math
import random
import sys
from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest

from vanilla_transformer.data.corpus import SentencePair
from vanilla_transformer.decoding.confidence import Calibration, measure_features
from vanilla_transformer.decoding.protection.stand_ins import StandIns
from vanilla_transformer.decoding.translations import Link
from vanilla_transformer.errors import UserError
from vanilla_transformer.extensions.quality.calibration import (
    CalibratedModel,
    calibrate,
    cross_validate,
    fit_calibration,
    measure_agreement,
    spearman_correlation,
    store_calibration,
)
from vanilla_transformer.text.languages import NO_DIRECTION, Direction
from vanilla_transformer.text.translation_warnings import WarningLimits


def noisy_features(count):
    """Return features and scores that rise with both log-probabilities, in a curve and with
    noise.
    """
    draw = random.Random(0)
    features, scores = [], []
    for _ in range(count):
        mean, ratio = -draw.random(), -3 * draw.random()
        names = ("mean_log_probability", "log_length_ratio", "aligned_share")
        features.append(dict(zip(names, (mean, ratio, 1.0), strict=True)))
        score = 0.9 + 0.5 * mean + 0.1 * ratio + draw.gauss(0, 0.05)
        scores.append(min(1.0, max(0.0, score)) ** 2)
    return features, scores


def test_fit_calibration_predicts_the_mean_score():
    calibration = fit_calibration(*noisy_features(2000))
    sums, confidences = calibration.sums, calibration.confidences
    assert sums == sorted({*sums})
    assert len(sums) < 200
    assert confidences == sorted(confidences)
    assert calibration.weights.keys() == {"mean_log_probability", "log_length_ratio"}
    assert not calibration.needs_alignments
    for mean, ratio in [(-0.1, -0.5), (-0.4, -1.0), (-0.7, -2.5)]:
        features = {"mean_log_probability": mean, "log_length_ratio": ratio}
        expected = (0.9 + 0.5 * mean + 0.1 * ratio) ** 2
        assert calibration.predict(features) == pytest.approx(expected, abs=0.03)


def test_fit_calibration_is_unsure_of_text_unlike_the_fitted_one():
    features = [{"mean_log_probability": -number / 100} for number in range(101)]
    scores = [1 - 0.3 * number / 100 for number in range(101)]
    calibration = fit_calibration(features, scores)
    for value, expected in [(0.0, 1.0), (-1.0, 0.7), (-2.0, 0.4), (-9.0, 0.0)]:
        confidence = calibration.predict({"mean_log_probability": value})
        assert confidence == pytest.approx(expected, abs=0.01)


def test_fit_calibration_never_falls():
    features, scores = [], []
    for number in range(100):
        mean = -1.0 / (1 + number)
        features.append({"mean_log_probability": mean, "aligned_share": 0.5})
        scores.append(number % 7 / 7)
    calibration = fit_calibration(features, scores)
    confidences = [*map(calibration.predict, features)]
    assert sorted(confidences) in (confidences, confidences[::-1])
    assert np.mean(confidences) == pytest.approx(3 / 7, abs=0.02)


def test_cross_validate_agrees_with_the_scores():
    features, scores = noisy_features(500)
    agreement = measure_agreement(cross_validate(features, scores), scores)
    assert agreement.correlation > 0.9 and agreement.error < 0.02


def test_cross_validate_does_not_fit_to_the_score_that_it_predicts():
    features, scores = noisy_features(200)
    before = cross_validate(features, scores)
    scores[0] = 1.0 - scores[0]
    after = cross_validate(features, scores)
    assert after[0] == before[0]
    assert after[1] != before[1]


def test_measure_agreement_of_groups():
    confidences = [number / 100 for number in range(100)]
    reversed_scores = [1 - confidence for confidence in confidences]
    agreement = measure_agreement(confidences, confidences)
    assert agreement == pytest.approx((1.0, 0.0))
    agreement = measure_agreement(confidences, reversed_scores)
    assert agreement == pytest.approx((-1.0, 0.5), abs=0.01)
    agreement = measure_agreement([0.5] * 3, [0.0, 0.5, 1.0])
    assert agreement.error == pytest.approx(1 / 3)


def test_spearman_correlation_of_equal_values_is_nan():
    assert np.isnan(spearman_correlation([1, 1], [1, 2]))


FEATURES, SCORES = noisy_features(100)


MISSING = [
    ("scipy.optimize", lambda: fit_calibration(FEATURES, SCORES)),
    ("scipy.stats", lambda: measure_agreement(SCORES, SCORES)),
    # Before it translates
    ("scipy.stats", lambda: calibrate(None, [SentencePair("a", "b")] * 100)),
]


@pytest.mark.parametrize(("missing", "call"), MISSING)
def test_calibration_names_the_extra_that_is_missing(missing, call, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(UserError, match=r"vanilla-transformer\[evaluation\]"):
        call()


def test_calibrate_fits_to_scores_from_0_to_1():
    def translate(sources, **options):
        answers = []
        for source in sources:
            tokens = [{"log_probability": -1 / len(source)}]
            answers.append({"translation_text": source, "tokens": tokens})
        return answers

    translate.model = SimpleNamespace(config=SimpleNamespace())
    pairs = []
    for size in range(1, 101):
        target_size = size if size % 2 else 2 * size
        pairs.append(SentencePair("a" * size, "a" * target_size))
    calibration = calibrate(translate, pairs).calibration
    assert 0.9 < max(calibration.confidences) <= 1


def test_measure_features_counts_words_with_a_link():
    links = [(0, 3, 0, 3, 1.0), (4, 7, 4, 8, 0.5), (7, 8, 8, 9, 0.9)]
    links = [Link(*link) for link in links]
    source, target = "Two men. 漢字", "Zwei Männer. 漢字 also"
    features = measure_features(source, target, [-0.5, -1.5], links)
    names = ("mean_log_probability", "log_length_ratio", "aligned_share")
    expected = (-1.0, math.log(30 / 21), 0.5)
    assert features == dict(zip(names, expected, strict=True))
    blank = measure_features("", "", [], [])
    assert blank == dict(zip(names, (0.0, 0.0, 1.0), strict=True))


def test_calibration_is_read_from_a_configuration():
    calibration = fit_calibration(FEATURES, SCORES)
    config = SimpleNamespace(confidence=asdict(calibration))
    assert Calibration.from_config(config) == calibration
    message = "must be calibrated to return confidence. `vanilla-transformer calibrate "
    with pytest.raises(ValueError, match=message):
        Calibration.from_config(SimpleNamespace())


DAMAGES = [{"weights": {"length": 1.0}}, {"weights": [1.0]}, {"sums": []}]
DAMAGES += [{"confidences": ["a"]}, {"intercept": None}, {"more": 1}]


@pytest.mark.parametrize("change", DAMAGES)
def test_calibration_names_a_damaged_configuration(change):
    stored = asdict(fit_calibration(FEATURES, SCORES)) | change
    message = "`confidence` in the configuration is damaged. `vanilla-transformer calib"
    with pytest.raises(ValueError, match=message):
        Calibration.from_config(SimpleNamespace(confidence=stored))


def test_store_calibration_keeps_the_words_of_other_directions(tmp_path):
    (tmp_path / "config.json").write_text('{"d_model": 16}')
    calibration = fit_calibration(FEATURES, SCORES)
    calibrated = CalibratedModel(calibration, WarningLimits(0.5), None)
    words = {
        Direction("en", "de"): StandIns(("Tom",)),
        Direction("de", "en"): StandIns(("Anna",), ("47",)),
        NO_DIRECTION: StandIns(),
    }
    for direction, stand_ins in words.items():
        store_calibration(tmp_path, calibrated, direction, stand_ins)
    config = SimpleNamespace(**json.loads((tmp_path / "config.json").read_text()))
    for direction, stand_ins in words.items():
        assert StandIns.from_config(config, direction) == stand_ins
    assert Calibration.from_config(config) == calibration
    assert WarningLimits.from_config(config).shortest == 0.5
    assert config.d_model == 16
