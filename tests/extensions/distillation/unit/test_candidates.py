"""The translations of a teacher: which are chosen, their warnings and scores, and the corpora of a student."""

import json

import pytest

from vanilla_transformer.extensions.distillation.student import Row, write_student_corpora
from vanilla_transformer.extensions.distillation.teacher import Candidate, choose_targets, measure_candidates
from vanilla_transformer.text.translation_warnings import WarningLimits

DOG, MAN, SHORT = "Ein Hund läuft schnell.", "Ein Mann schläft dort.", "Ein Mann schläft."


@pytest.mark.parametrize(
    ("kind", "texts", "chosen"),
    [
        ("beam", [DOG, MAN, " ", SHORT], [DOG]),
        ("n_best", [DOG, MAN, " ", SHORT, DOG], [DOG, MAN, SHORT]),
        ("interpolated", [DOG, MAN, " ", SHORT], [SHORT]),
        ("interpolated", ["abc", "xyz"], ["abc"]),  # the likelier one of equals
        *((kind, ["", " "], []) for kind in ("beam", "n_best", "interpolated")),
    ],
)
def test_choose_targets(kind, texts, chosen):
    answers = [{"translation_text": text} for text in texts]
    assert choose_targets(answers, SHORT, kind) == chosen
    if kind == "beam":  # the pipeline returns one answer alone
        assert choose_targets(answers[0], SHORT, kind) == chosen


def test_measure_candidates_scores_the_chosen_ones():
    scored = []

    def score(pairs):
        scored.extend(pairs)
        return [-float(len(pair.target)) for pair in pairs]

    sources, chosen = ["A man.", "Is 25?", "x"], [["Ein Mann.", "Mann."], ["Ist 26?"], []]
    assert measure_candidates(sources, chosen, WarningLimits(), score) == [
        [Candidate("Ein Mann.", [], -9.0), Candidate("Mann.", [], -5.0)],
        [Candidate("Ist 26?", ["numbers"], -7.0)],
        [],
    ]
    assert scored == [("A man.", "Ein Mann."), ("A man.", "Mann."), ("Is 25?", "Ist 26?")]
    assert measure_candidates(["A"], [["C"]], WarningLimits(), None) == [[Candidate("C", [], None)]]


ROWS = [
    Row(0, "one", [Candidate("eins", [], -1.0), Candidate("ein", [], -4.0)]),
    Row(0, "two\tof\nthem", [Candidate("zwei", ["length", "copy"], -9.0)]),
    Row(1, "three", []),
    Row(1, "four", [Candidate("vier", [], -2.0)]),
    Row(1, "five", [Candidate("fünf", [], -3.0)]),
]


def written(folder, drop_warnings=True, share=0.0, rows=ROWS, corpora=2):
    report = write_student_corpora(folder, lambda: iter(rows), corpora, drop_warnings, share)
    return report, [(folder / f"corpus-{number}.tsv").read_text() for number in range(corpora)]


@pytest.mark.parametrize(("share", "lowest"), [(0.0, None), (0.2, None), (0.25, -3.0), (0.5, -2.0), (0.74, -2.0)])
def test_write_student_corpora_drops_a_share_of_the_lowest_scores(tmp_path, share, lowest):
    assert written(tmp_path / "corpora", share=share)[0].least_score == lowest


def test_write_student_corpora_drops_warnings_first(tmp_path):
    report, texts = written(tmp_path / "corpora", share=0.25)
    assert texts == ["one\teins\n", "four\tvier\nfive\tfünf\n"]
    assert (report.sentences, report.untranslated, report.translations, report.kept) == (5, 1, 5, 3)
    assert report.dropped == {"score": 1, "length": 1} and report.least_score == -3.0
    assert report.examples["score"] == [["one", "ein"]]
    stored = json.loads((tmp_path / "corpora" / "report.json").read_text())
    assert stored["dropped"] == report.dropped


def test_write_student_corpora_keeps_warnings(tmp_path):
    report, texts = written(tmp_path / "corpora", drop_warnings=False)
    assert texts[0] == "one\teins\none\tein\ntwo of them\tzwei\n" and report.kept == 5
    assert report.reasons() == "none was dropped"


def test_write_student_corpora_needs_pairs_of_each_corpus(tmp_path):
    with pytest.raises(ValueError, match="must leave translations of each corpus .* none of corpus 1: 1 by length."):
        written(tmp_path / "corpora", rows=ROWS[1:])
    assert not (tmp_path / "corpora").exists()
