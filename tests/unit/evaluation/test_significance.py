"""Confidence intervals and p-values, compared with sacreBLEU's."""

import json
from functools import partial

import pytest
import sacrebleu

from vanilla_transformer.evaluation.scores import corpus_metrics, score, score_paper_bleu
from vanilla_transformer.evaluation.significance import (
    build_report,
    compare_systems,
    estimate_scores,
)

PAPER = partial(corpus_metrics, paper_language="de")
REFERENCES = [f"Der Mann mit der Nummer {number} liest heute ein altes Buch." for number in range(60)]
GOOD = [text.replace("altes", "gutes") if number % 6 == 0 else text for number, text in enumerate(REFERENCES)]
BAD = [text.replace("liest heute", "kauft") if number % 3 else text for number, text in enumerate(REFERENCES)]


def test_estimate_scores_adds_an_interval_to_each_score():
    estimates = estimate_scores(GOOD, REFERENCES, PAPER, samples=200)
    plain, paper = score(GOOD, REFERENCES), score_paper_bleu(GOOD, REFERENCES)
    assert list(estimates) == ["bleu", "chrf", "paper_bleu", "tokenized_bleu"]
    assert [one.score for one in estimates.values()] == pytest.approx([*plain[:2], *paper[:2]])
    assert all(0 < one.margin < 10 and abs(one.mean - one.score) < 1 for one in estimates.values())


def test_estimate_scores_has_the_interval_of_sacrebleu():
    (estimate, *_) = estimate_scores(BAD, REFERENCES, samples=150).values()
    bleu = sacrebleu.BLEU()
    formatted = bleu.corpus_score(BAD, [REFERENCES], n_bootstrap=150).format(score_only=True)
    assert formatted == f"{estimate.score:.2f} (μ = {estimate.mean:.2f} ± {estimate.margin:.2f})"
    assert estimate.signature == str(bleu.get_signature())


def test_compare_systems_finds_only_clear_differences_significant():
    clear = compare_systems(GOOD, BAD, REFERENCES, samples=200)
    assert all(one.p_value < 0.05 and one.system.score > one.baseline.score for one in clear.values())
    other = [text.replace("Buch", "Heft") if number % 6 == 1 else text for number, text in enumerate(REFERENCES)]
    assert all(one.p_value > 0.05 for one in compare_systems(GOOD, other, REFERENCES, samples=200).values())


def test_compare_systems_estimates_each_system_as_alone():
    compared = compare_systems(GOOD, BAD, REFERENCES, PAPER, samples=100)
    ours, theirs = (estimate_scores(texts, REFERENCES, PAPER, samples=100) for texts in (GOOD, BAD))
    for name, one in compared.items():
        assert one.system.signature == ours[name].signature
        assert one.system[:3] == pytest.approx(ours[name][:3], abs=1e-4)
        assert one.baseline[:3] == pytest.approx(theirs[name][:3], abs=1e-4)


def test_compare_systems_with_itself_has_p_value_one():
    assert [one.p_value for one in compare_systems(GOOD, list(GOOD), REFERENCES, PAPER, samples=50).values()] == [
        1.0
    ] * 4


def test_compare_systems_is_deterministic():
    assert compare_systems(GOOD, BAD, REFERENCES, samples=50) == compare_systems(GOOD, BAD, REFERENCES, samples=50)


def test_compare_systems_refuses_different_lengths():
    with pytest.raises(ValueError, match="got 59 for 60"):
        compare_systems(GOOD, BAD[:-1], REFERENCES)
    with pytest.raises(ValueError, match="got 59 for 60"):
        compare_systems(GOOD[:-1], BAD, REFERENCES)


def test_estimate_scores_refuses_zero_resamples():
    with pytest.raises(ValueError, match="at least one bootstrap resample, got 0"):
        estimate_scores(GOOD, REFERENCES, samples=0)


def test_build_report_has_lines_and_json():
    found = build_report(GOOD, REFERENCES, BAD, PAPER, samples=50)
    lines = list(found.lines())
    labels = ["BLEU", "chrF", "paper's BLEU", "tokenized BLEU"]
    assert [line.rsplit(" ±")[0].rsplit(" ", 1)[0] for line in lines[:4]] == labels
    assert "50 resamples of 60 sentences" in lines[4]
    assert all(line.startswith(f"{label} ") and "p = " in line for label, line in zip(labels, lines[5:], strict=True))
    data = json.loads(json.dumps(found.as_dict()))
    assert data["sentences"] == 60 and data["bootstrap_samples"] == 50
    assert data["scores"].keys() == data["comparison"].keys() == corpus_metrics(paper_language="de").keys()
    assert data["scores"]["bleu"]["score"] == pytest.approx(score(GOOD, REFERENCES).bleu)
    assert data["comparison"]["bleu"]["baseline"]["score"] == pytest.approx(score(BAD, REFERENCES).bleu)
    assert 0 < data["comparison"]["chrf"]["p_value"] < 1


def test_build_report_has_further_metrics_of_sacrebleu():
    found = build_report(GOOD, REFERENCES, BAD, partial(corpus_metrics, further=["chrf++", "ter"]), samples=50)
    scores = {name: one["score"] for name, one in found.as_dict()["scores"].items()}
    assert scores["chrf++"] == sacrebleu.corpus_chrf(GOOD, [REFERENCES], word_order=2).score
    assert scores["ter"] == sacrebleu.corpus_ter(GOOD, [REFERENCES]).score
    assert scores.keys() == {"bleu", "chrf", "chrf++", "ter"}
    assert [line.split()[0] for line in found.lines()][:4] == ["BLEU", "chrF", "chrF++", "TER"]


def test_build_report_without_baseline_has_no_comparison():
    found = build_report(GOOD, REFERENCES, samples=50)
    assert found.as_dict()["comparison"] is None and found.as_dict()["scores"].keys() == {"bleu", "chrf"}
    assert not [line for line in found.lines() if "p = " in line]
