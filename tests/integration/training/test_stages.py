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
    path = tmp_path / "more.tsv"
    lines = [f"{letter} f\t{letter.upper()} F\n" for letter in "fgh"]
    path.write_text("".join(lines * 10))
    source, target = str(corpus / "train.a"), str(corpus / "train.b")
    corpora = [{"name": "more", "file": str(path)}]
    corpora.append({"name": "letters", "source": source, "target": target})
    stages = [{"corpora": {"more": 1}, "until_step": 4}]
    stages.append({"corpora": {"more": 1, "letters": 3}})
    changes = {"corpora": json.dumps(corpora), "stages": json.dumps(stages)}
    changes |= {"ema_decay": 0.9, "save_steps": 1, "max_steps": 8}
    changes |= {"train_source": None, "train_target": None}
    return changes | {"augment": "{typos: 0.3}"}


def recipe_of(corpus, folder, **options):
    return parse_recipe(flags(corpus, folder, **options))


def test_train_resumes_across_a_change_of_stage(corpus, text, tmp_path, monkeypatch, caplog):
    recipe = recipe_of(corpus, tmp_path / "straight", **text)
    with caplog.at_level(logging.INFO, "vanilla_transformer"):
        straight = train(recipe, evaluate=no_scores)
    assert [line for line in caplog.messages if "stage" in line] == [
        "Step 1: stage 1 of 2, until step 4: 100% of more.",
        "Step 5: stage 2 of 2, until the end of the run: 25% of more, 75% of letters.",
    ]
    losses = [entry for entry in entries(straight) if "loss" in entry]
    assert [entry["stage"] for entry in losses] == [1] * 4 + [2] * 4
    recipe = recipe_of(corpus, tmp_path / "killed", **text)
    # The checkpoint is at the end of the first stage.
    kill_at_step(recipe, monkeypatch, 4)
    assert_same_run(straight, train(recipe, evaluate=no_scores))


def test_plan_run_counts_the_pairs_of_each_stage(corpus, text, tmp_path):
    plan = plan_run(recipe_of(corpus, tmp_path / "out", **text), timed_steps=1)
    assert plan["pairs_per_epoch"] == 30 and plan["pairs_per_epoch_of_stage_2"] == 70
    assert not (tmp_path / "out").exists()


def test_plan_run_refuses_a_stage_without_pairs(corpus, text, tmp_path):
    """Empty its corpus by cleaning."""
    (tmp_path / "more.tsv").write_text("a b c d e f g h i j\ta\n" * 9)
    recipe = recipe_of(corpus, tmp_path / "out", **text, max_length_ratio=2)
    message = "The corpus more of `stages` must have pairs, but cleaning has left none."
    with pytest.raises(ValueError, match=f"^{message}$"):
        plan_run(recipe, timed_steps=1)


NO_CORPORA = {"corpora": None, "train_source": "a", "train_target": "b"}
NO_LETTER = "Stage 1 of `stages`: There is no corpus 'letter'. Did you mean 'letters'?"
NO_STEPS = r"Stage 2 must end after its beginning, step 4, got step 4 \(`max_steps`\)"
REFUSED = [
    (NO_CORPORA, "`stages` must be given with `corpora`"),
    (
        {"corpora": '[{"file": "more.tsv", "weight": 2}]'},
        "`weight` must be left out .* got 2 for more.tsv.",
    ),
    ({"stages": '[{"corpora": {"letter": 1}}]'}, NO_LETTER),
    ({"stages": "[{corpora: "}, "`stages` must be a list or a mapping in YAML or JSON"),
    ({"max_steps": 4}, NO_STEPS),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_parse_recipe_refuses_stages(corpus, text, tmp_path, changes, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        recipe_of(corpus, tmp_path / "out", **text | changes)


SHARES = [{"corpora": {"more": 1}, "until_share": 0.5}, {"corpora": {"letters": 1}}]


def test_check_same_run_keeps_the_steps_of_shares(corpus, text, tmp_path):
    """Refuse others, of which stages have a share."""
    for stages, refused in ((text["stages"], False), (json.dumps(SHARES), True)):
        options = text | {"stages": stages}
        before = flatten(recipe_of(corpus, tmp_path / "a", **options))
        now = flatten(recipe_of(corpus, tmp_path / "a", **options, seed=0))
        now["max_steps"] = 16
        if refused:
            message = "different values of max_steps was 8 and is 16"
            with pytest.raises(ValueError, match=message):
                check_same_run(before, now)
        else:
            check_same_run(before, now)
