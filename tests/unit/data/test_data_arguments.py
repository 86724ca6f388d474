"""The section `data` of a recipe: the rules of each corpus, and mistakes, in one line each."""

import pytest

from vanilla_transformer.data.cleaning_rules import CleaningRules, ScoreRule
from vanilla_transformer.data.data_arguments import (
    DataArguments,
    check_data_arguments,
    cleaning_rules,
    corpus_specs,
    named_files,
)
from vanilla_transformer.errors import UserError
from vanilla_transformer.files.formats import corpus_endings

MODELS = {"forward": "there", "backward": "back"}


def test_cleaning_rules_of_an_entry_change_the_ones_of_the_recipe_in_both_directions():
    first = {"file": "a.tsv", "both_directions": True, "drop": ["identical"]}
    entries = [first | {"max_length": 9, "score": None}, {"file": "b.tsv"}]
    drop, score = ["duplicates", "identical"], MODELS | {"keep": 0.5}
    changed = CleaningRules(drop=["identical"], max_length=9)
    other = CleaningRules(drop=drop[::-1], score=ScoreRule(**score))
    rules = cleaning_rules(DataArguments(corpora=entries, drop=drop, score=score))
    assert rules == [changed, changed, other]


def test_prepared_corpus_is_no_text_of_other_commands():
    data = DataArguments(train_data="prepared")
    check_data_arguments(data)
    assert named_files(data) == []
    with pytest.raises(UserError, match="must be in files or a dataset here, got `train_data`"):
        corpus_specs(data)


def test_training_text_may_be_one_file_with_both_sides():
    data = DataArguments(train_source="a.tmx", source_language="en", target_language="de")
    check_data_arguments(data)
    (spec,) = corpus_specs(data)
    assert (spec.file, spec.source) == ("a.tmx", None)
    assert spec.direction == ("en", "de")
    for source, target in (("a.en", None), ("a.tmx", "a.de"), (None, "a.tmx")):
        named = DataArguments(train_source=source, train_target=target)
        if None in (source, target):
            with pytest.raises(UserError, match="must be given .*: the path of a text file"):
                check_data_arguments(named)
        else:
            check_data_arguments(named)


FILE = {"file": "a.tsv"}
ENTRIES = {  # of `corpora`
    "needs `source` and `target`, or `file`, or `dataset`; got none of them": [{"file": None}],
    "got `file` and `dataset`": [FILE | {"dataset": "x"}],
    "together, got only a.en": [{"source": "a.en"}],
    f"must end with {', '.join(corpus_endings('one file'))} .*got a.csv": [{"file": "a.csv"}],
    "must end with": [{"file": "a.parquet.gz"}],
    "`file` of a corpus must be text, got 3": [{"file": 3}],
    "`weight` of a corpus must be a number above 0, got": [
        FILE | {"weight": weight} for weight in (0, "two", 1e6)
    ],
    "`weight` must be a number above 0, got True": [FILE | {"weight": True}],
    "`both_directions` of a corpus must be true or false": [FILE | {"both_directions": "yes"}],
    "`both_directions` of a corpus must be without": [
        FILE | {"both_directions": True, "reverse": True}
    ],
    "`reverse` of a corpus must be true or false, got 1": [FILE | {"reverse": 1}],
    "no key of a corpus 'drops'. Did you mean 'drop'": [FILE | {"drops": ["duplicates"]}],
    "no key of a corpus 'forgetting'": [FILE | {"forgetting": True}],
    "`drop` must name kinds of pairs of invalid_unicode, .*, got 'duplicate'. Did you mean "
    "'duplicates'": [FILE | {"drop": ["duplicate"]}],
    r"`drop` must be a list of names, such as \[empty, duplicates\], got True": [
        FILE | {"drop": True}
    ],
    r"`min_letter_ratio` must be a number in \[0, 1\], got 2": [FILE | {"min_letter_ratio": 2}],
    "`max_characters` must be an integer of 1 or more, got 0": [FILE | {"max_characters": 0}],
    "`max_character_ratio` must be a number of 1 or more, got 0.5": [
        FILE | {"max_character_ratio": 0.5}
    ],
    "`min_score` must be a number, got 'high'": [FILE | {"min_score": "high"}],
    "`max_length` must be an integer of 1 or more, got 0": [FILE | {"max_length": 0}],
}
SCORES = {
    "`score` must name either a model `quality`, or both models": [
        "{forward: a}",
        MODELS | {"quality": "a", "keep": 0.5},
    ],
    "`score` must have either `min_score` or `keep`": [
        MODELS,
        {"quality": "a"},
        MODELS | {"min_score": 0.1, "keep": 0.5},
    ],
    "`quality` of `score` must be text, got 1": [{"quality": 1, "keep": 0.5}],
    r"`keep` of `score` must be a number in \(0, 1\], got 0": [MODELS | {"keep": 0}],
    r"`min_score` of `score` must be a number in \(0, 1\], got 'high'": [
        MODELS | {"min_score": "high"}
    ],
    "There is no key of `score` 'kep'. Did you mean 'keep'": [MODELS | {"kep": 1}],
    r"`score` must be a mapping, such as .* got \[1\]": [[1]],
}
VALUES = {
    "`sampling_temperature` must be a number of 1 or more, got 0.5": {"sampling_temperature": 0.5},
    "`sampling_temperature` must be left out with `stages`": {
        "sampling_temperature": 5.0,
        "stages": [{}],
    },
    r"`validation` must be a list with a corpus in it, got \[\]": {"validation": []},
    "There is no key of a corpus 'sorce'": {"validation": "[{file: a.tsv, sorce: b}]"},
    "There is no key of a corpus 'drop'": {"validation": [FILE | {"drop": "empty"}]},
    "Give either `validation` or `validation_source`": {
        "validation": [FILE],
        "validation_source": "a",
        "validation_target": "b",
    },
}
WRONG_TAGS = {"[<B T>]": "'<B T>'", "['']": "''", "[1]": "1", "{a: b}": "{'a': 'b'}"}
for tags, shown in WRONG_TAGS.items():
    message = f"`source_tags` must be words, such as <BT>, got {shown}"
    VALUES[message] = {"source_tags": tags}
MISTAKES = [(message, {"corpora": [FILE]} | values) for message, values in VALUES.items()]
for message, entries in ENTRIES.items():
    MISTAKES += [(message, {"corpora": [entry]}) for entry in entries]
for message, scores in SCORES.items():
    MISTAKES += [(message, {"corpora": [FILE], "score": score}) for score in scores]


@pytest.mark.parametrize(("message", "values"), MISTAKES, ids=str)
def test_data_arguments_refuse_values_that_cannot_work(message, values):
    with pytest.raises(ValueError, match=message) as caught:
        check_data_arguments(DataArguments(**values))
    assert "\n" not in str(caught.value)
