"""The translations of a teacher on which a student is trained, with their warnings and scores."""

import pytest

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
    assert choose_targets([{"translation_text": text} for text in texts], SHORT, kind) == chosen


def test_choose_targets_takes_a_single_answer():
    assert choose_targets({"translation_text": DOG}, SHORT, "beam") == [DOG]


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
