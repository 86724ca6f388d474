"""Intervals and p-values are sacreBLEU's, for every metric."""

import json

import pytest
import sacrebleu

from vanilla_transformer.evaluation.report import report
from vanilla_transformer.evaluation.scores import corpus_metrics, score, score_as_the_paper
from vanilla_transformer.evaluation.significance import compare_systems, estimate_scores

REFERENCES = [f"Der Mann mit der Nummer {number} liest heute ein altes Buch." for number in range(60)]
GOOD = [text.replace("altes", "gutes") if number % 6 == 0 else text for number, text in enumerate(REFERENCES)]
BAD = [text.replace("liest heute", "kauft") if number % 3 else text for number, text in enumerate(REFERENCES)]


def test_estimates_are_the_scores_with_an_interval_around_them():
    estimates = estimate_scores(GOOD, REFERENCES, "de", samples=200)
    plain, paper = score(GOOD, REFERENCES), score_as_the_paper(GOOD, REFERENCES)
    assert list(estimates) == ["bleu", "chrf", "paper_bleu", "tokenized_bleu"]
    assert [one.score for one in estimates.values()] == pytest.approx([*plain[:2], *paper[:2]])
    assert all(0 < one.margin < 10 and abs(one.mean - one.score) < 1 for one in estimates.values())


def test_the_interval_is_that_of_sacrebleus_own_confidence():
    (estimate, *_) = estimate_scores(BAD, REFERENCES, samples=150).values()
    bleu = sacrebleu.BLEU()
    formatted = bleu.corpus_score(BAD, [REFERENCES], n_bootstrap=150).format(score_only=True)
    assert formatted == f"{estimate.score:.2f} (μ = {estimate.mean:.2f} ± {estimate.margin:.2f})"
    assert estimate.signature == str(bleu.get_signature())


def test_a_clear_difference_is_significant_and_a_small_one_is_not():
    clear = compare_systems(GOOD, BAD, REFERENCES, samples=200)
    assert all(one.p_value < 0.05 and one.system.score > one.baseline.score for one in clear.values())
    other = [text.replace("Buch", "Heft") if number % 6 == 1 else text for number, text in enumerate(REFERENCES)]
    assert all(one.p_value > 0.05 for one in compare_systems(GOOD, other, REFERENCES, samples=200).values())


def test_each_system_is_estimated_as_it_is_alone():
    compared = compare_systems(GOOD, BAD, REFERENCES, "de", samples=100)
    ours, theirs = (estimate_scores(texts, REFERENCES, "de", samples=100) for texts in (GOOD, BAD))
    for name, one in compared.items():
        assert one.system.signature == ours[name].signature
        assert one.system[:3] == pytest.approx(ours[name][:3], abs=1e-4)
        assert one.baseline[:3] == pytest.approx(theirs[name][:3], abs=1e-4)


def test_a_system_does_not_differ_from_itself():
    assert [one.p_value for one in compare_systems(GOOD, list(GOOD), REFERENCES, "de", samples=50).values()] == [
        1.0
    ] * 4


def test_the_same_call_gives_the_same_figures():
    assert compare_systems(GOOD, BAD, REFERENCES, samples=50) == compare_systems(GOOD, BAD, REFERENCES, samples=50)


def test_both_outputs_must_be_as_long_as_the_references():
    with pytest.raises(ValueError, match="got 59 for 60"):
        compare_systems(GOOD, BAD[:-1], REFERENCES)
    with pytest.raises(ValueError, match="got 59 for 60"):
        compare_systems(GOOD[:-1], BAD, REFERENCES)


def test_no_resamples_are_refused():
    with pytest.raises(ValueError, match="at least one bootstrap resample, got 0"):
        estimate_scores(GOOD, REFERENCES, samples=0)


def test_a_report_is_lines_for_people_and_data_for_programs():
    found = report(GOOD, REFERENCES, BAD, "de", samples=50)
    lines = list(found.lines())
    labels = ["BLEU", "chrF", "paper's BLEU", "tokenized BLEU"]
    assert [line.rsplit(" ±")[0].rsplit(" ", 1)[0] for line in lines[:4]] == labels
    assert "50 resamples of 60 sentences" in lines[4]
    assert all(line.startswith(f"{label} ") and "p = " in line for label, line in zip(labels, lines[5:], strict=True))
    data = json.loads(json.dumps(found.as_dict()))
    assert data["sentences"] == 60 and data["bootstrap_samples"] == 50
    assert data["scores"].keys() == data["comparison"].keys() == corpus_metrics("de").keys()
    assert data["scores"]["bleu"]["score"] == pytest.approx(score(GOOD, REFERENCES).bleu)
    assert data["comparison"]["bleu"]["baseline"]["score"] == pytest.approx(score(BAD, REFERENCES).bleu)
    assert 0 < data["comparison"]["chrf"]["p_value"] < 1


def test_without_a_second_system_nothing_is_compared():
    found = report(GOOD, REFERENCES, samples=50)
    assert found.as_dict()["comparison"] is None and found.as_dict()["scores"].keys() == {"bleu", "chrf"}
    assert not [line for line in found.lines() if "p = " in line]
