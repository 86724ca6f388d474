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


def rates(folder):
    return [entry["learning_rate"] for entry in entries(folder) if "learning_rate" in entry]


@pytest.mark.parametrize(
    "name, share",
    [
        ("linear", lambda done: 1 - done),
        rare(("cosine", lambda done: 0.5 * (1 + math.cos(math.pi * done)))),
    ],
)
def test_lr_scheduler_of_transformers_decays_from_peak_to_zero(corpus, tmp_path, name, share):
    folder = train_tiny(
        corpus, tmp_path / "out", lr_scheduler=name, learning_rate=0.01, warmup_steps=1
    )
    # The rate logged after a step is that of the next one. One of the six steps is the warm-up.
    assert rates(folder) == pytest.approx([0.01 * share((step - 1) / 5) for step in range(1, 7)])


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
    options = {"ema_decay": 0.5, "eval_steps": 100, "save_steps": 3, "average_checkpoints": 2}
    folder = train_tiny(corpus, tmp_path / "out", evaluate, **options)
    VanillaTransformerForConditionalGeneration.from_pretrained(folder / "ema")
    assert (folder / "ema" / "tokenizer.json").exists()
    named = [entry["model"] for entry in entries(folder) if "model" in entry]
    assert (
        sorted(named) == ["last checkpoint", "mean of checkpoints", "moving average"]
        and named[-1] == final
    )
    weights = load_file(folder / "model.safetensors")
    for name, kept in (("last checkpoint", "checkpoint-6"), ("moving average", "ema")):
        same = load_file(folder / kept / "model.safetensors")
        assert all(torch.equal(weights[key], same[key]) for key in weights) == (final == name)


def test_equal_scores_leave_the_final_model_to_the_loss(corpus, tmp_path):
    folder = train_tiny(
        corpus, tmp_path / "out", scores_in_turn(*[8.0] * 3), ema_decay=0.5, eval_steps=100
    )
    finals = [entry for entry in entries(folder) if "model" in entry]
    assert finals[-1] == min(finals, key=lambda entry: entry["validation_loss"])
    assert len({entry["validation_loss"] for entry in finals}) == 3
    minutes = [entry["minutes"] for entry in entries(folder)]
    assert minutes == sorted(minutes)


def scores_in_turn(*values):
    """Return an evaluator that yields these BLEU scores, or pairs of BLEU and chrF, in turn."""
    left = [value if isinstance(value, tuple) else (value, 0.0) for value in values]
    return lambda *_, **__: dict(zip(("bleu", "chrf"), left.pop(0), strict=True))


def test_train_keeps_best_model(corpus, tmp_path):
    evaluate = scores_in_turn(20.0, 90.0, 40.0, 50.0, 1.0, 2.0, 3.0, 3.0)
    folder = train_tiny(corpus, tmp_path / "out", evaluate, eval_steps=1, keep_last=3, save_steps=1)
    assert {path.name for path in folder.glob("best-*")} == {"best-2"}
    assert [path.name for path in list_checkpoints(folder)] == [
        f"checkpoint-{step}" for step in (4, 5, 6)
    ]
    VanillaTransformerForConditionalGeneration.from_pretrained(folder / "best-2")


@pytest.mark.parametrize("killed", [0, 5])
def test_train_keeps_model_with_smallest_loss_and_forgets_scores_of_another_metric(
    corpus, tmp_path, monkeypatch, killed
):
    options = {"max_steps": 8, "save_steps": 1, "eval_steps": 2, "learning_rate_scale": 0.1}
    if killed:
        kill_at_step(parse_recipe(flags(corpus, tmp_path / "out", **options)), monkeypatch, killed)
    folder = train_tiny(corpus, tmp_path / "out", best_metric="loss", **options)
    greedy = [
        entry
        for entry in entries(folder)
        if "bleu" in entry and "model" not in entry and entry["step"] > killed
    ]
    losses = {entry["step"]: entry["validation_loss"] for entry in greedy}
    assert {path.name for path in folder.glob("best-*")} == {f"best-{min(losses, key=losses.get)}"}


def test_train_stops_early_without_improvement(corpus, tmp_path):
    evaluate = scores_in_turn(40.0, 1.0, 90.0, 40.0, 50.0, 0.0, 0.0)
    folder = train_tiny(
        corpus, tmp_path / "out", evaluate, eval_steps=1, max_steps=100, early_stopping_patience=2
    )
    assert entries(folder)[-1]["step"] == 5


@pytest.mark.parametrize("text", [{}, {"validation_source": None, "validation_target": None}])
def test_train_warns_of_early_stopping_without_validation_text(corpus, tmp_path, caplog, text):
    train_tiny(corpus, tmp_path / "out", max_steps=1, early_stopping_patience=2, **text)
    assert (
        "`early_stopping_patience` has no effect without validation text" in caplog.text
    ) == bool(text)


def test_train_saves_checkpoints_by_minutes(corpus, tmp_path):
    folder = train_tiny(
        corpus, tmp_path / "out", save_steps=None, save_minutes=0.0, keep_last=9, max_steps=4
    )
    assert [path.name for path in list_checkpoints(folder)] == [
        f"checkpoint-{step}" for step in (1, 2, 3, 4)
    ]


def test_train_stops_at_infinite_loss_and_names_sentences(corpus, tmp_path, monkeypatch):
    plain = ModelWithLoss.forward

    def spoiled(model, batch):
        found = plain(model, batch)
        spoils = torch.is_grad_enabled() and next(now)
        return found._replace(smoothed=found.smoothed * float("nan")) if spoils else found

    now = chain([False] * 4, [True], repeat(False))
    monkeypatch.setattr(ModelWithLoss, "forward", spoiled)
    with pytest.raises(FloatingPointError) as stop:
        train_tiny(corpus, tmp_path / "out", save_steps=3)
    text = str(stop.value)
    assert "The loss of step 5 is nan" in text and f"{tmp_path / 'out' / 'checkpoint-3'}" in text
    numbers = [
        int(word)
        for word in text.split("contributed pairs ")[1].split(" after cleaning")[0].split(", ")
    ]
    assert numbers and all(1 <= number <= 40 for number in numbers)
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
    losses = [entry["loss"] for entry in entries(folder) if "loss" in entry]
    assert losses[-1] < 0.6 * losses[0]
    assert {weight.dtype for weight in load_file(folder / "model.safetensors").values()} == {
        torch.float32
    }


def test_metrics_describe_steps(corpus, tmp_path):
    folder = train_tiny(corpus, tmp_path / "out", label_smoothing=0.1)
    for entry in (entry for entry in entries(folder) if "loss" in entry):
        assert entry["smoothed_loss"] > entry["loss"]
        assert (
            0.0 <= entry["padding"] < 0.5
            and entry["gradient_norm"] > 0.0
            and entry["peak_memory_gib"] > 0.01
        )
    assert [entry["epoch"] for entry in entries(folder) if "epoch" in entry][-1] == pytest.approx(
        6 / 4, rel=0.3
    )


def test_plan_run_writes_nothing(corpus, tmp_path):
    recipe = parse_recipe(flags(corpus, tmp_path / "out", dry_run=True))
    plan = plan_run(recipe)
    assert plan["pairs_per_epoch"] == 40 and plan["epochs"] == 6 / plan["steps_per_epoch"]
    assert plan["peak_learning_rate"] == pytest.approx((16 * 10) ** -0.5)
    assert plan["seconds_per_step"] > 0
    model = VanillaTransformerForConditionalGeneration.from_pretrained(
        train_tiny(corpus, tmp_path / "real", max_steps=1)
    )
    assert plan["parameters"] == model.num_parameters()
    assert not (tmp_path / "out").exists()


def test_train_without_validation_pairs_keeps_no_best_model(corpus, tmp_path):
    nothing = {"validation_source": None, "validation_target": None, "best_metric": "loss"}
    folder = train_tiny(corpus, tmp_path / "out", **nothing)
    assert all("loss" in entry for entry in entries(folder)) and not list(folder.glob("best-*"))
