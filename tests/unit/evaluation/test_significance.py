"""Confidence intervals and p-values, compared with sacreBLEU's."""

import json
from functools import partial

import pytest
import sacrebleu

from vanilla_transformer.evaluation.scores import corpus_metrics, score, score_paper_bleu
from vanilla_transformer.evaluation.significance import build_report

PAPER = partial(corpus_metrics, paper_language="de")
REFERENCES = [
    f"Der Mann mit der Nummer {number} liest heute ein altes Buch." for number in range(60)
]
GOOD = [
    text.replace("altes", "gutes") if number % 6 == 0 else text
    for number, text in enumerate(REFERENCES)
]
BAD = [
    text.replace("liest heute", "kauft") if number % 3 else text
    for number, text in enumerate(REFERENCES)
]


def test_build_report_adds_an_interval_to_each_score():
    estimates = build_report(GOOD, REFERENCES, None, PAPER, samples=200).estimates
    plain, paper = score(GOOD, REFERENCES), score_paper_bleu(GOOD, REFERENCES)
    assert list(estimates) == ["bleu", "chrf", "paper_bleu", "tokenized_bleu"]
    assert [one.score for one in estimates.values()] == pytest.approx([*plain[:2], *paper[:2]])
    assert all(0 < one.margin < 10 and abs(one.mean - one.score) < 1 for one in estimates.values())


def test_build_report_has_the_interval_of_sacrebleu():
    estimate = build_report(BAD, REFERENCES, samples=150).estimates["bleu"]
    bleu = sacrebleu.BLEU()
    formatted = bleu.corpus_score(BAD, [REFERENCES], n_bootstrap=150).format(score_only=True)
    assert formatted == f"{estimate.score:.2f} (μ = {estimate.mean:.2f} ± {estimate.margin:.2f})"
    assert estimate.signature == str(bleu.get_signature())


def test_build_report_finds_only_clear_differences_significant():
    clear = build_report(GOOD, REFERENCES, BAD, samples=200).comparisons.values()
    assert all(one.p_value < 0.05 and one.system.score > one.baseline.score for one in clear)
    other = [
        text.replace("Buch", "Heft") if number % 6 == 1 else text
        for number, text in enumerate(REFERENCES)
    ]
    assert all(
        one.p_value > 0.05
        for one in build_report(GOOD, REFERENCES, other, samples=200).comparisons.values()
    )
    same = build_report(GOOD, REFERENCES, list(GOOD), PAPER, samples=50).comparisons.values()
    assert [one.p_value for one in same] == [1.0] * 4


def test_build_report_estimates_each_system_as_alone():
    compared = build_report(GOOD, REFERENCES, BAD, PAPER, samples=100)
    assert compared == build_report(GOOD, REFERENCES, BAD, PAPER, samples=100)
    ours, theirs = (
        build_report(texts, REFERENCES, None, PAPER, samples=100).estimates for texts in (GOOD, BAD)
    )
    for name, one in compared.comparisons.items():
        assert one.system.signature == ours[name].signature
        assert one.system[:3] == pytest.approx(ours[name][:3], abs=1e-4)
        assert one.baseline[:3] == pytest.approx(theirs[name][:3], abs=1e-4)


@pytest.mark.parametrize(("hypotheses", "baseline"), [(GOOD, BAD[:-1]), (GOOD[:-1], BAD)])
def test_build_report_refuses_different_lengths(hypotheses, baseline):
    with pytest.raises(ValueError, match="got 59 for 60"):
        build_report(hypotheses, REFERENCES, baseline)


def test_build_report_has_lines_and_json():
    found = build_report(GOOD, REFERENCES, BAD, PAPER, samples=50)
    lines = list(found.lines())
    labels = ["BLEU", "chrF", "paper's BLEU", "tokenized BLEU"]
    assert [line.rsplit(" ±")[0].rsplit(" ", 1)[0] for line in lines[:4]] == labels
    assert "50 resamples of 60 sentences" in lines[4]
    assert all(
        line.startswith(f"{label} ") and "p = " in line
        for label, line in zip(labels, lines[5:], strict=True)
    )
    data = json.loads(json.dumps(found.as_dict()))
    assert data["sentences"] == 60 and data["bootstrap_samples"] == 50
    assert (
        data["scores"].keys()
        == data["comparison"].keys()
        == corpus_metrics(paper_language="de").keys()
    )
    assert data["scores"]["bleu"]["score"] == pytest.approx(score(GOOD, REFERENCES).bleu)
    assert data["comparison"]["bleu"]["baseline"]["score"] == pytest.approx(
        score(BAD, REFERENCES).bleu
    )
    assert 0 < data["comparison"]["chrf"]["p_value"] < 1
    alone = build_report(GOOD, REFERENCES, samples=50)
    assert alone.as_dict()["comparison"] is None and not [
        line for line in alone.lines() if "p = " in line
    ]
