"""Minimum Bayes risk, against its definition with sacrebleu's sentence scores."""

import math

import pytest
from sacrebleu.metrics import BLEU, CHRF

from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.decoding.sentences import Sentence
from vanilla_transformer.decoding.translations import Translation
from vanilla_transformer.extensions.reranking.minimum_bayes_risk import (
    choose,
    choose_by_risk,
    expected_utilities,
    risk_candidates,
)

METRICS = {"chrf": CHRF(), "bleu": BLEU(effective_order=True)}
TEXTS = ["Ein Mann schläft.", "Ein Mann, der schläft", "Der Mann schlief."]
TEXTS += ["Ein Mann schläft.", "", "a", " b  b b b b"]
WEIGHTS = [0.0, -1.0, -2.5, 0.3, -0.7, -9.0, 0.1]


def literal(utility, weights):
    shares = [math.exp(weight) for weight in weights]
    metric, utilities = METRICS[utility], []
    for text in TEXTS:
        expected = 0.0
        for other, share in zip(TEXTS, shares, strict=True):
            expected += share * metric.sentence_score(text, [other]).score
        utilities.append(expected / sum(shares))
    return utilities


EQUAL = [0.0] * len(TEXTS)


@pytest.mark.parametrize("utility", METRICS)
@pytest.mark.parametrize("weights", [EQUAL, WEIGHTS], ids=["samples", "n-best"])
def test_expected_utilities_are_sacrebleus(utility, weights):
    utilities = expected_utilities(TEXTS, weights, utility).tolist()
    assert utilities == pytest.approx(literal(utility, weights), abs=1e-9)


@pytest.mark.parametrize("utility", METRICS)
def test_choose_takes_the_highest_expected_utility(utility):
    expected = literal(utility, EQUAL)
    translations = [*map(Translation, TEXTS)]
    best = choose(translations, utility, by_probability=False)
    assert best.text == TEXTS[expected.index(max(expected))]
    translations = [*map(Translation, TEXTS, [1.0] * len(TEXTS), WEIGHTS)]
    expected = literal(utility, WEIGHTS)
    best = choose(translations, utility, by_probability=True)
    assert best.text == TEXTS[expected.index(max(expected))]
    assert best.score == pytest.approx(max(expected))
    assert best.log_probability in WEIGHTS


@pytest.mark.parametrize("texts", [["a b", "c d"], ["c d", "a b"]])
def test_choose_takes_the_first_of_a_tie(texts):
    best = choose([*map(Translation, texts)], "chrf", by_probability=False)
    assert best.text == texts[0]


@pytest.mark.parametrize(
    ("risk", "options", "text"),
    [
        ({"mbr": "chrf"}, {"num_beams": 1}, "`mbr` needs 2 or more candidates, got `num_beams=1`"),
        (
            {"mbr": "chrf", "mbr_samples": 4},
            {"num_beams": 4},
            "`num_beams` .* or `mbr_samples`, not both",
        ),
        ({"mbr": "chrf"}, {"num_return_sequences": 2}, "With `mbr` there is one translation"),
    ],
)
def test_risk_options_name_mistakes(risk, options, text):
    with pytest.raises(ValueError, match=text):
        risk_candidates(TranslationOptions.resolve(risk | options))


def test_a_step_asks_the_decode_inside_for_candidates_and_reports_once():
    def decode(sentences, options, report):
        assert options.count == 3
        assert options.do_sample
        report(len(sentences))
        samples = [*map(Translation, ("a b", "a c", "a b"))]
        return [samples for _ in sentences]

    reports = []
    options = TranslationOptions.resolve({"mbr": "chrf", "mbr_samples": 3})
    step, sentence = choose_by_risk(decode), Sentence("x", "", [1])
    ((best,),) = step([sentence], options, reports.append)
    assert best.text == "a b"
    assert reports == [1]
