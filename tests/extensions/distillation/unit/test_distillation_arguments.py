"""Keys and flags of a distillation, and the mistakes that end with one line."""

import os

import pytest

from vanilla_transformer.extensions.distillation.distillation_arguments import parse_distillation

FILES = ["train_source", "train_target", "test_source", "test_target"]


def parsed(recipe="", **changes):
    values = dict.fromkeys(FILES, "a.txt") | {"teacher": "big", "output_dir": "out"} | changes
    flags = [
        word
        for name, value in values.items()
        if value is not None
        for word in (f"--{name}", str(value))
    ]
    return parse_distillation([*([recipe] if recipe else []), *flags])


def test_parse_distillation_reads_keys_of_training_too():
    recipe, options = parsed(d_model=32, teacher_targets="n_best")
    assert recipe.model.d_model == 32 and recipe.data.train_source == "a.txt"
    assert options.teacher == ["big"] and options.hypotheses == 4
    assert parsed()[1].hypotheses == 1


MONOLINGUAL = {"train_target": None}
CANDIDATES = dict.fromkeys(["teacher", *FILES]) | {"candidates": "a.jsonl"}


@pytest.mark.parametrize(
    ("changes", "file"),
    [
        (CANDIDATES, "a.jsonl"),
        (MONOLINGUAL, "a.txt"),
        (MONOLINGUAL | {"reverse_model": "back"}, "a.txt"),
        ({}, None),
    ],
)
def test_parse_distillation_takes_text_without_translations(changes, file):
    recipe, options = parsed(**changes)
    assert options.candidates == file and options.teacher == (
        [] if changes is CANDIDATES else ["big"]
    )
    corpora = None if file is None else [{"file": "out/distillation/corpora/corpus-0.tsv"}]
    assert recipe.data.corpora == corpora and recipe.data.train_source == (
        None if file else "a.txt"
    )


BOTH, WEIGHTED = ["big", "other"], "\nteacher_weights: [2, 1]\n"


@pytest.mark.parametrize(
    ("recipe", "changes", "teacher", "weights"),
    [
        (f"teacher: [big, other]{WEIGHTED}", {"teacher": None}, BOTH, [2.0, 1.0]),
        (f"teacher: ['big', \"other\"]{WEIGHTED}", {"teacher": None}, BOTH, [2.0, 1.0]),
        (
            "distillation: {teacher: big}\ndata: {vocab_size: 70}\n",
            {"teacher": None},
            ["big"],
            None,
        ),
        ("d_model: 32\n", {"teacher": "big,other"}, BOTH, None),
    ],
)
def test_parse_distillation_reads_an_ensemble_and_its_section(
    tmp_path, recipe, changes, teacher, weights
):
    (tmp_path / "recipe.yaml").write_text(recipe)
    found, options = parsed(str(tmp_path / "recipe.yaml"), **changes)
    assert (options.teacher, options.teacher_weights) == (teacher, weights)
    assert found.data.vocab_size == 70 or "data" not in recipe


def test_parse_distillation_names_the_section_of_a_key(tmp_path):
    (tmp_path / "recipe.yaml").write_text("output: {teacher: big}\n")
    with pytest.raises(
        ValueError, match="`teacher` must be in the section `distillation`, got it in `output`"
    ):
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
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="A pipe is one input"):
        parsed(
            **CANDIDATES
            | {
                "candidates": tmp_path / "pipe",
                "test_source": tmp_path / "pipe",
                "test_target": "b",
            }
        )
