"""Confidence intervals and p-values, compared with sacreBLEU's."""

import json
from functools import partial

import pytest
import sacrebleu

from vanilla_transformer.evaluation.scores import corpus_metrics, score, score_paper_bleu
from vanilla_transformer.evaluation.significance import build_report

PAPER = partial(corpus_metrics, paper_language="de")
SENTENCE = "Der Mann mit der Nummer {} liest heute ein altes Buch."
REFERENCES = [SENTENCE.format(number) for number in range(60)]


def changed(old, new, is_changed):
    """Return the references where some of them have another word."""
    texts = [*REFERENCES]
    for number in filter(is_changed, range(60)):
        texts[number] = texts[number].replace(old, new)
    return texts


GOOD = changed("altes", "gutes", lambda number: number % 6 == 0)
BAD = changed("liest heute", "kauft", lambda number: number % 3)


def test_build_report_adds_an_interval_to_each_score():
    estimates = build_report(GOOD, REFERENCES, None, PAPER, samples=200).estimates
    plain, paper = score(GOOD, REFERENCES), score_paper_bleu(GOOD, REFERENCES)
    assert list(estimates) == ["bleu", "chrf", "paper_bleu", "tokenized_bleu"]
    scores = [one.score for one in estimates.values()]
    assert scores == pytest.approx([*plain[:2], *paper[:2]])
    for one in estimates.values():
        assert 0 < one.margin < 10
        assert abs(one.mean - one.score) < 1


def test_build_report_has_the_interval_of_sacrebleu():
    estimate = build_report(BAD, REFERENCES, samples=150).estimates["bleu"]
    bleu = sacrebleu.BLEU()
    formatted = bleu.corpus_score(BAD, [REFERENCES], n_bootstrap=150).format(score_only=True)
    assert formatted == f"{estimate.score:.2f} (μ = {estimate.mean:.2f} ± {estimate.margin:.2f})"
    assert estimate.signature == str(bleu.get_signature())


def test_build_report_finds_only_clear_differences_significant():
    clear = build_report(GOOD, REFERENCES, BAD, samples=200).comparisons
    for one in clear.values():
        assert one.p_value < 0.05
        assert one.system.score > one.baseline.score
    other = changed("Buch", "Heft", lambda number: number % 6 == 1)
    unclear = build_report(GOOD, REFERENCES, other, samples=200).comparisons
    assert all(one.p_value > 0.05 for one in unclear.values())
    same = build_report(GOOD, REFERENCES, list(GOOD), PAPER, samples=50).comparisons
    assert [one.p_value for one in same.values()] == [1.0] * 4


def test_build_report_estimates_each_system_as_alone():
    compared = build_report(GOOD, REFERENCES, BAD, PAPER, samples=100)
    assert compared == build_report(GOOD, REFERENCES, BAD, PAPER, samples=100)
    ours = build_report(GOOD, REFERENCES, None, PAPER, samples=100).estimates
    theirs = build_report(BAD, REFERENCES, None, PAPER, samples=100).estimates
    for name, one in compared.comparisons.items():
        assert one.system.signature == ours[name].signature
        assert one.system[:3] == pytest.approx(ours[name][:3], abs=1e-4)
        assert one.baseline[:3] == pytest.approx(theirs[name][:3], abs=1e-4)


@pytest.mark.parametrize(("hypotheses", "baseline"), [(GOOD, BAD[:-1]), (GOOD[:-1], BAD)])
def test_build_report_refuses_different_lengths(hypotheses, baseline):
    with pytest.raises(ValueError, match="got 59 for 60"):
        build_report(hypotheses, REFERENCES, baseline)


def test_build_report_has_lines_and_json():
    report = build_report(GOOD, REFERENCES, BAD, PAPER, samples=50)
    lines = list(report.lines())
    labels = ["BLEU", "chrF", "paper's BLEU", "tokenized BLEU"]
    for label, line, comparison in zip(labels, lines[:4], lines[5:], strict=True):
        assert line.rsplit(" ±")[0].rsplit(" ", 1)[0] == label
        assert comparison.startswith(f"{label} ") and "p = " in comparison
    assert "50 resamples of 60 sentences" in lines[4]
    data = json.loads(json.dumps(report.as_dict()))
    assert data["sentences"] == 60 and data["bootstrap_samples"] == 50
    scores, comparisons = data["scores"], data["comparison"]
    assert scores.keys() == comparisons.keys() == corpus_metrics(paper_language="de").keys()
    assert scores["bleu"]["score"] == pytest.approx(score(GOOD, REFERENCES).bleu)
    baseline = comparisons["bleu"]["baseline"]
    assert baseline["score"] == pytest.approx(score(BAD, REFERENCES).bleu)
    assert 0 < comparisons["chrf"]["p_value"] < 1
    alone = build_report(GOOD, REFERENCES, samples=50)
    assert alone.as_dict()["comparison"] is None
    assert not [line for line in alone.lines() if "p = " in line]
