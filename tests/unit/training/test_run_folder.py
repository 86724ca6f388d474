"""The folder of a run finds, prunes and truncates what earlier processes wrote."""

import pytest
import torch

from tests.train_states import tiny_train_state
from vanilla_transformer.training.run_folder import prune_after
from vanilla_transformer.training.train_state import TrainProgress
from vanilla_transformer.utils import device_utils


def test_is_finished_goes_by_the_minutes_of_the_checkpoint_of_its_step(tmp_path, monkeypatch):
    state = tiny_train_state(tmp_path, max_minutes=5)
    monkeypatch.setattr(state, "minutes", lambda: 5.1)
    state.progress.minutes = 4.9
    assert state.is_finished(saved=False) and not state.is_finished(saved=True)


def test_load_resume_state_counts_the_minutes_before_the_interruption(tmp_path):
    state = tiny_train_state(tmp_path)
    saved = state.resume_state()
    saved.progress["minutes"] = 7.0
    state.load_resume_state(saved, full=False)
    assert state.minutes() >= 7.0


def test_prune_after_deletes_later_checkpoints_and_best_models(tmp_path):
    for name in ("checkpoint-5", "checkpoint-10", "best-4", "best-8", "best-others", "ema"):
        (tmp_path / name).mkdir()
    prune_after(tmp_path, 5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best-4", "best-others", "checkpoint-5", "ema"]


def test_record_score_ranks_steps_and_counts_validations_without_improvement():
    progress = TrainProgress()
    kept = []
    for step, score in enumerate((5.0, 9.0, 7.0, 9.0), start=1):
        progress.step = step
        kept.append(progress.record_score(score))
    assert kept == [1, 2, 2, 2]
    assert progress.validations_without_improvement == 2  # a tie is no improvement


@pytest.mark.parametrize(("count", "said"), [(1, "1 CPU core ("), (2, "2 CPU cores (")])
def test_describe_hardware_counts_cores(count, said, monkeypatch):
    monkeypatch.setattr(device_utils, "usable_cores", lambda: count)
    assert device_utils.describe_hardware(torch.device("cpu")).startswith(said)
