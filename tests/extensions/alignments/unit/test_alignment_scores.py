"""The alignment error rate against its definition, and the command that prints it."""

import pytest

from vanilla_transformer.cli import main
from vanilla_transformer.extensions.alignments.alignment_scores import score_alignments
from vanilla_transformer.extensions.alignments.word_alignments import GoldAlignment


def sure(*links):
    return GoldAlignment({*links}, {*links})


POSSIBLE = GoldAlignment({(0, 0)}, {(0, 0), (1, 1)})


@pytest.mark.parametrize(
    "links, gold, expected",
    [
        # one minus F1 if all links are sure
        (
            [{(0, 0), (1, 1)}, {(2, 2)}],
            [sure((0, 0), (2, 1)), sure((2, 2), (3, 3))],
            (1 - 4 / 7, 2 / 3, 2 / 4),
        ),
        # Possible links are neither required nor wrong.
        ([{(0, 0)}], [POSSIBLE], (0.0, 1.0, 1.0)),
        ([{(0, 0), (1, 1)}], [POSSIBLE], (0.0, 1.0, 1.0)),
        ([{(1, 1)}], [POSSIBLE], (0.5, 1.0, 0.0)),  # 1 - (0 + 1) / (1 + 1)
        ([{(0, 0)}], [sure((1, 1))], (1.0, 0.0, 0.0)),
        ([set()], [sure((1, 1))], (1.0, 1.0, 0.0)),
        ([set()], [sure()], (0.0, 1.0, 1.0)),
    ],
)
def test_score_alignments_follows_the_definition(links, gold, expected):
    assert score_alignments(links, gold) == pytest.approx(expected)


TEXTS = {"en": "a b c\nd\n", "de": "x y\nz\n", "gold": "0-0 2p1\n0-0\n"}


def run(folder, alignments, **texts):
    for name, text in (TEXTS | texts | {"align": alignments}).items():
        (folder / name).write_text(text)
    files = {"source": "en", "target": "de"}
    files |= {"alignments": "align", "gold_alignments": "gold"}
    words = []
    for flag, name in files.items():
        words += [f"--{flag}", str(folder / name)]
    return main(["evaluate-alignments", *words])


def test_evaluate_alignments_prints_error_rate_precision_and_recall(tmp_path, capsys):
    assert run(tmp_path, "0-0 1-1\n\n") == 0
    printed = capsys.readouterr().out
    scores = "AER 50.00  precision 50.00  recall 50.00"
    assert printed == f"{scores}  (2 sentences, 2 links)\n"


@pytest.mark.parametrize(
    ("alignments", "texts", "message"),
    [
        ("0-0\n", {}, "align must have a line for each of 2 pairs of sentences, got 1"),
        ("0-0\n0-1\n", {}, ("pairs such as 0-1 of 1 words of the source and 1 of the target, got "
            "'0-1' in line 2 of")),
        ("0-0\n0:0\n", {}, "got '0:0' in line 2 of"),
        ("0-0\n0-0\n", {"gold": "0-0\n0-0\n\n"}, ("gold must have a line for each of 2 pairs of "
            "sentences, got 3")),
        ("0-0\n0-0\n", {"gold": "0-0\n0p7\n"}, "in line 2 of"),
        ("0-0\n0-0\n", {"de": "x y\n"}, "same number of lines"),
    ],
)  # fmt: skip
def test_evaluate_alignments_answers_wrong_files_in_one_line(
    alignments, texts, message, tmp_path, capsys
):
    assert run(tmp_path, alignments, **texts) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: ") and message in shown and shown.count("\n") == 1
