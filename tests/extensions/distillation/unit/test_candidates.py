"""The translations of a teacher on which a student is trained, with their warnings and scores."""

import pytest

from vanilla_transformer.data.readers import SentencePair
from vanilla_transformer.decoding.corpus_shards import CorpusShards
from vanilla_transformer.extensions.distillation.teacher import (
    CandidatePair,
    as_line,
    choose_targets,
    read_candidates,
    write_candidates,
)
from vanilla_transformer.text.translation_warnings import WarningLimits

HYPOTHESES = ["Ein Hund läuft schnell.", "Ein Mann schläft dort.", " ", "Ein Mann schläft."]


@pytest.mark.parametrize(
    ("kind", "chosen"),
    [
        ("beam", ["Ein Hund läuft schnell."]),
        ("n_best", ["Ein Hund läuft schnell.", "Ein Mann schläft dort.", "Ein Mann schläft."]),
        ("interpolated", ["Ein Mann schläft."]),
    ],
)
def test_choose_targets(kind, chosen):
    assert choose_targets(HYPOTHESES, "Ein Mann schläft.", kind) == chosen
    assert choose_targets(["", " "], "Ein Mann schläft.", kind) == []


def test_choose_targets_prefers_the_likelier_of_equals():
    assert choose_targets(["abc", "xyz"], "Ein Mann.", "interpolated") == ["abc"]


def test_write_candidates_scores_the_chosen_ones(tmp_path):
    pairs = [SentencePair("A man.", "Ein Mann."), SentencePair("Is 25?", "25?"), SentencePair("x", "y")]
    hypotheses = [["Ein Mann.", "Mann."], ["Ist 26?"], [""]]
    shards, scored = CorpusShards(tmp_path / "shards", {}, 2), []

    def score(given):
        scored.extend(given)
        return [-float(len(pair.target)) for pair in given]

    shards.open(resume=True)
    lines = [as_line(pair, texts) for pair, texts in zip(pairs, hypotheses, strict=True)]
    write_candidates(shards, lines, 3, "n_best", WarningLimits(), score)
    assert [*read_candidates(shards, 3)] == [
        [CandidatePair("Ein Mann.", [], -9.0), CandidatePair("Mann.", [], -5.0)],
        [CandidatePair("Ist 26?", ["numbers"], -7.0)],
        [],
    ]
    assert scored == [("A man.", "Ein Mann."), ("A man.", "Mann."), ("Is 25?", "Ist 26?")]


def test_write_candidates_needs_no_scores(tmp_path):
    shards = CorpusShards(tmp_path / "shards", {})
    shards.open(resume=True)
    write_candidates(shards, [as_line(SentencePair("A", "B"), ["C"])], 1, "beam", WarningLimits(), None)
    assert [*read_candidates(shards, 1)] == [[CandidatePair("C", [], None)]]
