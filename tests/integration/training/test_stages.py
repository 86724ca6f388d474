"""Runs in stages change their mix at the given step, say so, and resume bit for bit across the
change.
"""

import json
import logging

import pytest

from tests.tiny_runs import assert_same_run, entries, flags, kill_at_step, no_scores
from vanilla_transformer.training.dry_run import plan_run
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.recipe_checks import check_same_run
from vanilla_transformer.training.run_arguments import flatten
from vanilla_transformer.training.trainer import train


@pytest.fixture
def text(corpus, tmp_path):
    """Write a second corpus of other words, and return the recipe of a run in two stages."""
    (tmp_path / "more.tsv").write_text(
        "".join(f"{'fgh'[row % 3]} f\t{'FGH'[row % 3]} F\n" for row in range(30))
    )
    corpora = [
        {"name": "more", "file": str(tmp_path / "more.tsv")},
        {"name": "letters", "source": str(corpus / "train.a"), "target": str(corpus / "train.b")},
    ]
    stages = [{"corpora": {"more": 1}, "until_step": 4}, {"corpora": {"more": 1, "letters": 3}}]
    changes = {
        "corpora": json.dumps(corpora),
        "stages": json.dumps(stages),
        "ema_decay": 0.9,
        "save_steps": 1,
    }
    return changes | {
        "train_source": None,
        "train_target": None,
        "max_steps": 8,
        "augment": "{typos: 0.3}",
    }


def test_train_resumes_across_a_change_of_stage_bit_for_bit(
    corpus, text, tmp_path, monkeypatch, caplog
):
    with caplog.at_level(logging.INFO, "vanilla_transformer"):
        straight = train(
            parse_recipe(flags(corpus, tmp_path / "straight", **text)), evaluate=no_scores
        )
    assert [line for line in caplog.messages if "stage" in line] == [
        "Step 1: stage 1 of 2, until step 4: 100% of more.",
        "Step 5: stage 2 of 2, until the end of the run: 25% of more, 75% of letters.",
    ]
    assert [entry["stage"] for entry in entries(straight) if "loss" in entry] == [1] * 4 + [2] * 4
    recipe = parse_recipe(flags(corpus, tmp_path / "killed", **text))
    kill_at_step(recipe, monkeypatch, 4)  # whose checkpoint is at the end of the first stage
    assert_same_run(straight, train(recipe, evaluate=no_scores))


def test_plan_run_counts_the_pairs_of_each_stage(corpus, text, tmp_path):
    plan = plan_run(parse_recipe(flags(corpus, tmp_path / "out", **text)), timed_steps=1)
    assert plan["pairs_per_epoch"] == 30 and plan["pairs_per_epoch_of_stage_2"] == 70
    assert not (tmp_path / "out").exists()


def test_plan_run_refuses_a_stage_whose_corpus_cleaning_has_emptied(corpus, text, tmp_path):
    (tmp_path / "more.tsv").write_text("a b c d e f g h i j\ta\n" * 9)
    with pytest.raises(
        ValueError,
        match="^The corpus more of `stages` must have pairs, but cleaning has left none.$",
    ):
        plan_run(
            parse_recipe(flags(corpus, tmp_path / "out", **text, max_length_ratio=2)), timed_steps=1
        )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"corpora": None, "train_source": "a", "train_target": "b"},
            "`stages` must be given with `corpora`",
        ),
        (
            {"corpora": '[{"file": "more.tsv", "weight": 2}]'},
            "`weight` must be left out .* got 2 for more.tsv.",
        ),
        (
            {"stages": '[{"corpora": {"letter": 1}}]'},
            "Stage 1 of `stages`: There is no corpus 'letter'. Did you mean 'letters'?",
        ),
        ({"stages": "[{corpora: "}, "`stages` must be a list or a mapping in YAML or JSON"),
        (
            {"max_steps": 4},
            r"Stage 2 must end after its beginning, step 4, got step 4 \(`max_steps`\)",
        ),
    ],
)
def test_parse_recipe_refuses_stages_that_cannot_work(corpus, text, tmp_path, changes, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        parse_recipe(flags(corpus, tmp_path / "out", **text | changes))


def test_check_same_run_keeps_the_steps_of_which_stages_have_a_share(corpus, text, tmp_path):
    shares = '[{"corpora": {"more": 1}, "until_share": 0.5}, {"corpora": {"letters": 1}}]'
    for stages, refused in ((text["stages"], False), (shares, True)):
        options = text | {"stages": stages}
        before, now = (
            flatten(parse_recipe(flags(corpus, tmp_path / "a", **options, **more)))
            for more in ({}, {"seed": 0})
        )
        now["max_steps"] = 16
        if refused:
            with pytest.raises(ValueError, match="different values of max_steps was 8 and is 16"):
                check_same_run(before, now)
        else:
            check_same_run(before, now)
