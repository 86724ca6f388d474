"""A reversible model with LSH attention trains on two processes as on one; time limits."""

import pytest

from tests.tiny_runs import assert_two_processes_match_one, entries, flags, no_scores
from vanilla_transformer.training.metrics import MetricsLogger
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.trainer import train

LONG = {
    "layer_types": "lsh_attention",
    "num_buckets": 2,
    "reversible": True,
    "normalize_before": True,
}


def test_reversible_model_on_two_processes(corpus, tmp_path):
    assert_two_processes_match_one(corpus, tmp_path, **LONG)


def test_train_max_minutes_sets_progress_bar(corpus, tmp_path, monkeypatch):
    bars = []
    exit_block = MetricsLogger.__exit__
    monkeypatch.setattr(
        MetricsLogger,
        "__exit__",
        lambda logger, *error: bars.append(logger.bar) or exit_block(logger, *error),
    )
    rare = {
        "eval_steps": 10_000,
        "save_steps": 10_000,
    }  # so that a busy machine has time for enough steps
    recipe = parse_recipe(
        flags(corpus, tmp_path / "out", max_steps=1_000_000, max_minutes=0.05, **rare)
    )
    folder = train(recipe, evaluate=no_scores)
    steps = entries(folder)[-1]["step"]
    assert 10 < steps < 100_000
    assert bars[0].total == pytest.approx(steps, rel=0.2)
