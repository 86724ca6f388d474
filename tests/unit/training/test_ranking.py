"""The choice of the best model by its validations."""

import pytest

from vanilla_transformer.evaluation.significance import build_report
from vanilla_transformer.training.ranking import choose_best, rank


def best_of(*pairs, metric="bleu", sentences=1000):
    entries = [(bleu, chrf, -loss) for bleu, chrf, loss in pairs]
    return choose_best(entries, metric, sentences)


def test_choose_best_ignores_a_low_bleu():
    index, reason = best_of((0.54, 11.0, 3.0), (0.48, 14.0, 2.5))
    assert index == 1
    assert reason == "chrf (11.00, 14.00), since BLEU (0.54, 0.48) is below 5"


@pytest.mark.parametrize(("sentences", "index"), [(1000, 1), (100_000, 0)])
def test_choose_best_ignores_a_difference_within_the_interval_of_bleu(sentences, index):
    pairs = [(30.0, 50.0, 2.0), (29.0, 51.0, 2.0), (20.0, 60.0, 2.0)]
    best, reason = best_of(*pairs, sentences=sentences)
    assert best == index
    assert ("since BLEU (30.00, 29.00) differs by less than 1.39" in reason) == bool(index)


def test_choose_best_goes_by_the_loss_without_chrf():
    low = {"bleu": 0.5, "validation_loss": 3.0}
    high = {"bleu": 0.4, "validation_loss": 2.0}
    index, reason = choose_best([rank(low, "bleu"), rank(high, "bleu")], "bleu", 1000)
    assert (index, reason) == (1, "loss (3.00, 2.00), since BLEU (0.50, 0.40) is below 5")


def test_choose_best_goes_by_other_metrics_whatever_they_are():
    assert best_of((0.54, 11.0, 3.0), (0.48, 14.0, 2.5), metric="chrf") == (0, "chrf")


def test_choose_best_takes_the_first_model_without_validation():
    assert choose_best([rank({}, "bleu")] * 2, "bleu", 0)[0] == 0


def test_rank_is_higher_for_a_lower_loss():
    low = {"validation_loss": 1.0, "bleu": 1.0, "chrf": 2.0}
    high = low | {"validation_loss": 2.0}
    assert rank(low, "loss") > rank(high, "loss")
    assert rank(low, "bleu") > rank(high, "bleu")


def test_choose_best_knows_the_interval_of_bootstrap_resampling():
    references, hypotheses = [], []
    for row in range(400):
        words = [f"w{(7 * row + 3 * column) % 40}" for column in range(12)]
        references.append(" ".join(words))
        wrong = row % 13  # from none to all words of a sentence
        hypotheses.append(" ".join(["x"] * wrong + words[wrong:]))
    estimate = build_report(hypotheses, references, samples=200).estimates["bleu"]
    pairs = [(estimate.score, 1.0, 1.0), (estimate.score, 2.0, 1.0)]
    _, reason = best_of(*pairs, sentences=400)
    assert float(reason.rsplit(" ", 1)[1]) == pytest.approx(estimate.margin, rel=0.5)
