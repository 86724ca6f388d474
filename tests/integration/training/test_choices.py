"""Choices of a recipe beyond the paper: schedules, EMA, best models, early stopping, trackers, and
the dry run.
"""

import math
import signal
from itertools import chain, repeat

import pytest
import torch
from safetensors.torch import load_file

from tests.sweeps import rare
from tests.tiny_runs import entries, flags, kill_at_step, train_tiny
from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.training.averaging import ExponentialMovingAverage
from vanilla_transformer.training.checkpoint import list_checkpoints
from vanilla_transformer.training.dry_run import plan_run
from vanilla_transformer.training.loss import ModelWithLoss
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.signals import StopSignal, TrainingInterrupted


def values_of(folder, name):
    """Return the logged values of a name."""
    return [entry[name] for entry in entries(folder) if name in entry]


def names_of(paths):
    return [path.name for path in paths]


def cosine(done):
    return 0.5 * (1 + math.cos(math.pi * done))


SCHEDULES = [("linear", lambda done: 1 - done), rare(("cosine", cosine))]


@pytest.mark.parametrize(("name", "share"), SCHEDULES)
def test_lr_scheduler_of_transformers_decays_to_zero(corpus, tmp_path, name, share):
    options = {"lr_scheduler": name, "learning_rate": 0.01, "warmup_steps": 1}
    folder = train_tiny(corpus, tmp_path / "out", **options)
    # The rate logged after a step is that of the next one. One of the six steps is the warm-up.
    expected = [0.01 * share((step - 1) / 5) for step in range(1, 7)]
    assert values_of(folder, "learning_rate") == pytest.approx(expected)


def test_ema_follows_its_recurrence():
    weight = torch.zeros(2)
    average = ExponentialMovingAverage({"w": weight}, decay=0.75)
    for value, expected in ((4.0, 1.0), (4.0, 1.75)):
        weight.fill_(value)
        average.update()
        assert average.state_dict()["w"].tolist() == [expected] * 2


@pytest.mark.parametrize(
    ("scores", "final"),
    [
        ((90.0, 20.0, 20.0), "mean of checkpoints"),
        (((8.0, 1.0), (8.0, 1.0), (8.0, 2.0)), "moving average"),
        (((20.0, 9.0), (90.0, 2.0), (90.0, 1.0)), "last checkpoint"),
        (((0.54, 11.0), (0.5, 12.0), (0.48, 14.0)), "moving average"),
    ],
)
def test_train_ends_with_the_best_of_mean_last_and_ema(corpus, tmp_path, scores, final):
    evaluate = scores_in_turn(*scores)
    options = {"ema_decay": 0.5, "eval_steps": 100, "save_steps": 3}
    options["average_checkpoints"] = 2
    folder = train_tiny(corpus, tmp_path / "out", evaluate, **options)
    VanillaTransformerForConditionalGeneration.from_pretrained(folder / "ema")
    assert (folder / "ema" / "tokenizer.json").exists()
    named = values_of(folder, "model")
    assert sorted(named) == ["last checkpoint", "mean of checkpoints", "moving average"]
    assert named[-1] == final
    weights = load_file(folder / "model.safetensors")
    for name, kept in (("last checkpoint", "checkpoint-6"), ("moving average", "ema")):
        same = load_file(folder / kept / "model.safetensors")
        is_same = all(torch.equal(weights[key], same[key]) for key in weights)
        assert is_same == (final == name)


def test_equal_scores_leave_the_final_model_to_the_loss(corpus, tmp_path):
    evaluate, options = scores_in_turn(8.0, 8.0, 8.0), {"ema_decay": 0.5, "eval_steps": 100}
    folder = train_tiny(corpus, tmp_path / "out", evaluate, **options)
    finals = [entry for entry in entries(folder) if "model" in entry]
    losses = [entry["validation_loss"] for entry in finals]
    assert losses[-1] == min(losses) and len({*losses}) == 3
    minutes = values_of(folder, "minutes")
    assert minutes == sorted(minutes)


def scores_in_turn(*values):
    """Return an evaluator that yields these BLEU scores, or pairs of BLEU and chrF, in turn."""
    left = [value if isinstance(value, tuple) else (value, 0.0) for value in values]
    return lambda *_, **__: dict(zip(("bleu", "chrf"), left.pop(0), strict=True))


def test_train_keeps_best_model(corpus, tmp_path):
    evaluate = scores_in_turn(20.0, 90.0, 40.0, 50.0, 1.0, 2.0, 3.0, 3.0)
    options = {"eval_steps": 1, "keep_last": 3, "save_steps": 1}
    folder = train_tiny(corpus, tmp_path / "out", evaluate, **options)
    assert names_of(folder.glob("best-*")) == ["best-2"]
    names = ["checkpoint-4", "checkpoint-5", "checkpoint-6"]
    assert names_of(list_checkpoints(folder)) == names
    VanillaTransformerForConditionalGeneration.from_pretrained(folder / "best-2")


@pytest.mark.parametrize("killed", [0, 5])
def test_train_keeps_model_with_smallest_loss(corpus, tmp_path, monkeypatch, killed):
    """Forget the scores of another metric."""
    options = {"max_steps": 8, "save_steps": 1, "eval_steps": 2}
    options["learning_rate_scale"] = 0.1
    if killed:
        recipe = parse_recipe(flags(corpus, tmp_path / "out", **options))
        kill_at_step(recipe, monkeypatch, killed)
    folder = train_tiny(corpus, tmp_path / "out", best_metric="loss", **options)
    losses = {}
    for entry in entries(folder):
        if "bleu" in entry and "model" not in entry and entry["step"] > killed:
            losses[entry["step"]] = entry["validation_loss"]
    assert names_of(folder.glob("best-*")) == [f"best-{min(losses, key=losses.get)}"]


def test_train_stops_early_without_improvement(corpus, tmp_path):
    evaluate = scores_in_turn(40.0, 1.0, 90.0, 40.0, 50.0, 0.0, 0.0)
    options = {"eval_steps": 1, "max_steps": 100, "early_stopping_patience": 2}
    folder = train_tiny(corpus, tmp_path / "out", evaluate, **options)
    assert entries(folder)[-1]["step"] == 5


NO_VALIDATION = {"validation_source": None, "validation_target": None}


@pytest.mark.parametrize("text", [{}, NO_VALIDATION])
def test_train_warns_of_early_stopping_without_text(corpus, tmp_path, caplog, text):
    options = {"max_steps": 1, "early_stopping_patience": 2}
    train_tiny(corpus, tmp_path / "out", **options, **text)
    message = "`early_stopping_patience` has no effect without validation text"
    assert (message in caplog.text) == bool(text)


def test_train_saves_checkpoints_by_minutes(corpus, tmp_path):
    options = {"save_steps": None, "save_minutes": 0.0, "keep_last": 9}
    folder = train_tiny(corpus, tmp_path / "out", max_steps=4, **options)
    names = [f"checkpoint-{step}" for step in (1, 2, 3, 4)]
    assert names_of(list_checkpoints(folder)) == names


def test_train_stops_at_infinite_loss(corpus, tmp_path, monkeypatch):
    """Name the sentences."""
    plain = ModelWithLoss.forward

    def spoiled(model, batch):
        loss = plain(model, batch)
        if torch.is_grad_enabled() and next(now):
            loss = loss._replace(smoothed=loss.smoothed * float("nan"))
        return loss

    now = chain([False] * 4, [True], repeat(False))
    monkeypatch.setattr(ModelWithLoss, "forward", spoiled)
    with pytest.raises(FloatingPointError) as stop:
        train_tiny(corpus, tmp_path / "out", save_steps=3)
    text = str(stop.value)
    assert "The loss of step 5 is nan" in text
    assert f"{tmp_path / 'out' / 'checkpoint-3'}" in text
    numbers = text.split("contributed pairs ")[1].split(" after cleaning")[0]
    assert all(1 <= int(number) <= 40 for number in numbers.split(", "))
    weights = load_file(tmp_path / "out" / "checkpoint-3" / "model.safetensors")
    assert all(torch.isfinite(weight).all() for weight in weights.values())


def test_train_reports_to_trackers(corpus, tmp_path):
    folder = train_tiny(corpus, tmp_path / "out", report_to="tensorboard")
    assert list(folder.rglob("events.out.tfevents*"))


def test_train_interrupted_before_first_step_saves_nothing(corpus, tmp_path, monkeypatch):
    enter = StopSignal.__enter__

    def interrupted(stop):
        signal.raise_signal(signal.SIGINT)
        return stop

    monkeypatch.setattr(StopSignal, "__enter__", lambda stop: interrupted(enter(stop)))
    with pytest.raises(TrainingInterrupted, match="before the first step"):
        train_tiny(corpus, tmp_path / "out")
    assert not list_checkpoints(tmp_path / "out")


def test_train_in_bf16_learns(corpus, tmp_path):
    folder = train_tiny(corpus, tmp_path / "out", mixed_precision="bf16", max_steps=20)
    losses = values_of(folder, "loss")
    assert losses[-1] < 0.6 * losses[0]
    weights = load_file(folder / "model.safetensors").values()
    assert {weight.dtype for weight in weights} == {torch.float32}


def test_metrics_describe_steps(corpus, tmp_path):
    folder = train_tiny(corpus, tmp_path / "out", label_smoothing=0.1)
    for entry in entries(folder):
        if "loss" in entry:
            assert entry["smoothed_loss"] > entry["loss"]
            assert 0.0 <= entry["padding"] < 0.5
            assert entry["gradient_norm"] > 0.0 and entry["peak_memory_gib"] > 0.01
    assert values_of(folder, "epoch")[-1] == pytest.approx(6 / 4, rel=0.3)
    assert len(values_of(folder, "loss")) > 1


def test_plan_run_writes_nothing(corpus, tmp_path):
    recipe = parse_recipe(flags(corpus, tmp_path / "out", dry_run=True))
    plan = plan_run(recipe)
    assert plan["pairs_per_epoch"] == 40
    assert plan["epochs"] == 6 / plan["steps_per_epoch"]
    assert plan["peak_learning_rate"] == pytest.approx((16 * 10) ** -0.5)
    assert plan["seconds_per_step"] > 0
    model = VanillaTransformerForConditionalGeneration.from_pretrained(
        train_tiny(corpus, tmp_path / "real", max_steps=1)
    )
    assert plan["parameters"] == model.num_parameters()
    assert not (tmp_path / "out").exists()


def test_train_without_validation_pairs_keeps_no_best_model(corpus, tmp_path):
    folder = train_tiny(corpus, tmp_path / "out", best_metric="loss", **NO_VALIDATION)
    assert all("loss" in entry for entry in entries(folder))
    assert not list(folder.glob("best-*"))
