"""The section `score` of a recipe: mistakes, and corpora without it."""

import pytest

from vanilla_transformer.data.cleaning_rules import ScoreRule
from vanilla_transformer.data.data_arguments import DataArguments, check_data_arguments, cleaning_rules

MODELS = {"forward": "there", "backward": "back"}


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{forward: a}", "`score` must name either a model `quality`, or both models"),
        (MODELS, "`score` must have either `min_score` or `keep`"),
        ({"quality": "a"}, "`score` must have either `min_score` or `keep`"),
        ({"quality": 1, "keep": 0.5}, "`quality` of `score` must be text, got 1"),
        (MODELS | {"quality": "a", "keep": 0.5}, "`score` must name either a model `quality`, or both models"),
        (MODELS | {"min_score": 0.1, "keep": 0.5}, "`score` must have either `min_score` or `keep`"),
        (MODELS | {"keep": 0}, r"`keep` of `score` must be a number in \(0, 1\], got 0"),
        (MODELS | {"min_score": "high"}, r"`min_score` of `score` must be a number in \(0, 1\], got 'high'"),
        (MODELS | {"kep": 1}, "There is no key of `score` 'kep'. Did you mean 'keep'"),
        ([1], r"`score` must be a mapping, such as .* got \[1\]"),
    ],
)
def test_check_data_arguments_refuses_a_wrong_score(section, message):
    with pytest.raises(ValueError, match=message):
        check_data_arguments(DataArguments(corpora=[{"file": "a.tsv"}], score=section))


def test_cleaning_rules_of_an_entry_take_the_score_of_the_recipe_away():
    data = DataArguments(corpora=[{"file": "a.tsv", "score": None}, {"file": "b.tsv"}], score=MODELS | {"keep": 0.5})
    assert [each.score for each in cleaning_rules(data)] == [
        None,
        ScoreRule(forward="there", backward="back", keep=0.5),
    ]
