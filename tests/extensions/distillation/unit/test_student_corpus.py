"""Translations of a teacher are filtered, and written as the corpora of a student."""

import json

import pytest

from vanilla_transformer.extensions.distillation.student import Row, write_student_corpora
from vanilla_transformer.extensions.distillation.teacher import Candidate

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
