"""A direction is zero-shot if a model is known to be trained on others only."""

import pytest

from vanilla_transformer.evaluation import directions
from vanilla_transformer.evaluation.directions import score_directions
from vanilla_transformer.text.languages import Direction, Languages

ASKED = [Direction("en", "de"), Direction("de", "fr")]
TEXTS = {"en": ["a dog"], "de": ["ein Hund"], "fr": ["un chien"]}


@pytest.mark.parametrize(
    ("trained", "zero_shot"),
    [((), [False, False]), (ASKED[:1], [False, True]), (ASKED, [False, False])],
)
def test_score_directions_knows_zero_shot_ones(trained, zero_shot, monkeypatch):
    translated = []

    def score(translate, pairs, **options):
        translated.append((pairs, options))
        return [], directions.Scores(1.0, 2.0, "", "")

    monkeypatch.setattr(directions, "translate_and_score", score)
    codes = dict.fromkeys(TEXTS, 1)
    languages = Languages(codes, codes, directions=trained)
    results = score_directions(None, languages, ASKED, TEXTS)
    assert [result.is_zero_shot for result in results] == zero_shot
    assert [result.direction for result in results] == ASKED
    assert translated == [
        ([("a dog", "ein Hund")], {"src_lang": "en", "tgt_lang": "de"}),
        ([("ein Hund", "un chien")], {"src_lang": "de", "tgt_lang": "fr"}),
    ]
