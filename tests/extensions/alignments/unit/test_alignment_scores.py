"""The alignment error rate against its definition, and the command that prints it."""

import pytest

from vanilla_transformer.cli import main
from vanilla_transformer.extensions.alignments.alignment_scores import score_alignments
from vanilla_transformer.extensions.alignments.word_alignments import GoldAlignment


def sure(*links):
    return GoldAlignment({*links}, {*links})


def test_score_alignments_is_one_minus_f1_if_all_links_are_sure():
    found, gold = [{(0, 0), (1, 1)}, {(2, 2)}], [sure((0, 0), (2, 1)), sure((2, 2), (3, 3))]
    assert score_alignments(found, gold) == pytest.approx((1 - 4 / 7, 2 / 3, 2 / 4))


def test_score_alignments_neither_requires_nor_punishes_possible_links():
    gold = [GoldAlignment({(0, 0)}, {(0, 0), (1, 1)})]
    assert score_alignments([{(0, 0)}], gold) == (0.0, 1.0, 1.0)
    assert score_alignments([{(0, 0), (1, 1)}], gold) == (0.0, 1.0, 1.0)
    assert score_alignments([{(1, 1)}], gold) == (0.5, 1.0, 0.0)  # 1 - (0 + 1) / (1 + 1)


def test_score_alignments_of_wrong_and_of_no_links():
    assert score_alignments([{(0, 0)}], [sure((1, 1))]) == (1.0, 0.0, 0.0)
    assert score_alignments([set()], [sure((1, 1))]) == (1.0, 1.0, 0.0)
    assert score_alignments([set()], [sure()]) == (0.0, 1.0, 1.0)
    with pytest.raises(ValueError):
        score_alignments([], [sure()])


TEXTS = {"en": "a b c\nd\n", "de": "x y\nz\n", "gold": "0-0 2p1\n0-0\n"}


def run(folder, alignments, **texts):
    for name, text in (TEXTS | texts | {"align": alignments}).items():
        (folder / name).write_text(text)
    files = {"source": "en", "target": "de", "alignments": "align", "gold_alignments": "gold"}
    return main(
        ["evaluate-alignments", *(word for flag, name in files.items() for word in (f"--{flag}", str(folder / name)))]
    )


def test_evaluate_alignments_prints_error_rate_precision_and_recall(tmp_path, capsys):
    assert run(tmp_path, "0-0 1-1\n\n") == 0
    assert capsys.readouterr().out == "AER 50.00  precision 50.00  recall 50.00  (2 sentences, 2 links)\n"


@pytest.mark.parametrize(
    ("alignments", "texts", "message"),
    [
        ("0-0\n", {}, "align must have a line for each of 2 pairs of sentences, got 1"),
        ("0-0\n0-1\n", {}, "pairs such as 0-1 of 1 words of the source and 1 of the target, got '0-1' in line 2 of"),
        ("0-0\n0:0\n", {}, "got '0:0' in line 2 of"),
        ("0-0\n0-0\n", {"gold": "0-0\n0-0\n\n"}, "gold must have a line for each of 2 pairs of sentences, got 3"),
        ("0-0\n0-0\n", {"gold": "0-0\n0p7\n"}, "in line 2 of"),
        ("0-0\n0-0\n", {"de": "x y\n"}, "same number of lines"),
    ],
)  # fmt: skip
def test_evaluate_alignments_answers_wrong_files_in_one_line(alignments, texts, message, tmp_path, capsys):
    assert run(tmp_path, alignments, **texts) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: ") and message in shown and shown.count("\n") == 1
