"""Keys and flags of a distillation, and the mistakes that end with one line."""

import os

import pytest

from vanilla_transformer.extensions.distillation.distillation_arguments import parse_distillation

FILES = ["train_source", "train_target", "test_source", "test_target"]


def parsed(recipe="", **changes):
    values = dict.fromkeys(FILES, "a.txt")
    values |= {"teacher": "big", "output_dir": "out"} | changes
    words = [recipe] if recipe else []
    for name, value in values.items():
        if value is not None:
            words += [f"--{name}", str(value)]
    return parse_distillation(words)


def test_parse_distillation_reads_keys_of_training_too():
    recipe, options = parsed(d_model=32, teacher_targets="n_best")
    assert recipe.model.d_model == 32 and recipe.data.train_source == "a.txt"
    assert options.teacher == ["big"] and options.hypotheses == 4
    assert parsed()[1].hypotheses == 1


MONOLINGUAL = {"train_target": None}
CANDIDATES = dict.fromkeys(["teacher", *FILES]) | {"candidates": "a.jsonl"}


TEXTS = [
    (CANDIDATES, "a.jsonl"),
    (MONOLINGUAL, "a.txt"),
    (MONOLINGUAL | {"reverse_model": "back"}, "a.txt"),
    ({}, None),
]


@pytest.mark.parametrize(("changes", "file"), TEXTS)
def test_parse_distillation_takes_text_without_translations(changes, file):
    recipe, options = parsed(**changes)
    assert options.candidates == file
    assert options.teacher == ([] if changes is CANDIDATES else ["big"])
    if file is None:
        assert recipe.data.corpora is None
        assert recipe.data.train_source == "a.txt"
    else:
        path = "out/distillation/corpora/corpus-0.tsv"
        assert recipe.data.corpora == [{"file": path}]
        assert recipe.data.train_source is None


BOTH, WEIGHTED = ["big", "other"], "\nteacher_weights: [2, 1]\n"


ENSEMBLES = [
    (f"teacher: [big, other]{WEIGHTED}", None, BOTH, [2.0, 1.0]),
    (f"teacher: ['big', \"other\"]{WEIGHTED}", None, BOTH, [2.0, 1.0]),
    ("distillation: {teacher: big}\ndata: {vocab_size: 70}\n", None, ["big"], None),
    ("d_model: 32\n", "big,other", BOTH, None),
]


@pytest.mark.parametrize(("recipe", "flag", "teacher", "weights"), ENSEMBLES)
def test_parse_distillation_reads_ensembles_and_a_section(tmp_path, recipe, flag, teacher, weights):
    (tmp_path / "recipe.yaml").write_text(recipe)
    arguments, options = parsed(str(tmp_path / "recipe.yaml"), teacher=flag)
    assert (options.teacher, options.teacher_weights) == (teacher, weights)
    assert arguments.data.vocab_size == 70 or "data" not in recipe


def test_parse_distillation_names_the_section_of_a_key(tmp_path):
    (tmp_path / "recipe.yaml").write_text("output: {teacher: big}\n")
    message = "`teacher` must be in the section `distillation`, got it in `output`"
    with pytest.raises(ValueError, match=message):
        parsed(str(tmp_path / "recipe.yaml"), teacher=None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"teacher": None}, "`teacher` must be given: the folder or Hub name of a model"),
        (
            {"teacher_target": "beam"},
            "There is no flag 'teacher_target'. Did you mean 'teacher_targets'?",
        ),
        (
            {"teacher_targets": "worst"},
            "`teacher_targets` must be one of 'beam', 'n_best', 'interpolated', 'best', got "
            "'worst'.",
        ),
        ({"teacher_n_best": 0}, "`teacher_n_best` must be an integer from 1 to 100,000, got 0."),
        ({"drop_lowest_scores": 1}, r"`drop_lowest_scores` must be a number in \[0, 1\), got 1."),
        (
            {"drop_lowest_scores": 0, "reverse_model": "back"},
            "`reverse_model` scores pairs, but `drop_lowest_scores`",
        ),
        ({"teacher": "[]"}, "`teacher` must be given"),
        ({"teacher_weights": "1,b"}, "`teacher_weights` must be a list of numbers, got 'b'."),
        ({"teacher_weights": "1,2"}, "`teacher_weights` must have 1 numbers, got 2."),
        (
            {"teacher_targets": "n_best", "teacher_num_beams": 2},
            "`teacher_n_best` must be at most .*=2, got 4.",
        ),
        (
            {"test_source": None, "test_target": None},
            "`test_source` and `test_target` must be given: teacher and",
        ),
        (
            {"candidates": "a.jsonl"},
            "`teacher` must be left out with `candidates`, which has sources and",
        ),
        (
            {"candidates": "a.jsonl", "teacher": None},
            "`train_source` must be left out with `candidates`",
        ),
        (
            CANDIDATES | {"teacher_num_beams": 2},
            "`teacher_num_beams` must be left out with `candidates`, which no",
        ),
        (
            CANDIDATES | {"teacher_targets": "interpolated"},
            "`teacher_targets: interpolated` needs references, but a",
        ),
        (MONOLINGUAL | {"teacher_targets": "interpolated"}, "needs references, but a.txt has none"),
        (
            MONOLINGUAL | {"test_source": None, "test_target": None},
            "`test_source` and `test_target` must be given",
        ),
        (MONOLINGUAL | {"teacher": None}, "`teacher` must be given"),
        (
            {"drop_lowest_scores": 0, "quality_model": "a"},
            "`quality_model` scores pairs, but `drop_lowest_scores`",
        ),
        (
            {"train_alignments": "a.align"},
            "`train_alignments` must be agreement or left out, .*, got a.align.",
        ),
    ],
)
def test_parse_distillation_refuses(changes, message):
    with pytest.raises(ValueError, match=message):
        parsed(**changes)


def test_parse_distillation_refuses_a_pipe_that_is_named_twice(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    changes = {"candidates": pipe, "test_source": pipe, "test_target": "b"}
    with pytest.raises(ValueError, match="A pipe is one input"):
        parsed(**CANDIDATES | changes)
