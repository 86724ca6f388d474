"""The folder of a run finds, prunes and truncates what earlier processes wrote."""

import pytest
import torch

from tests.train_states import tiny_train_state
from vanilla_transformer.machine import cores
from vanilla_transformer.training.run_folder import prune_after
from vanilla_transformer.training.train_state import TrainProgress


def test_is_finished_goes_by_minutes_of_the_checkpoint(tmp_path, monkeypatch):
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
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["best-4", "best-others", "checkpoint-5", "ema"]


def record(progress, *validations, metric="bleu", sentences=1000):
    """Record validations of BLEU, chrF and the loss, and return the best step after each."""
    for step, (score, chrf, loss) in enumerate(validations, start=progress.step + 1):
        progress.step = step
        yield progress.record_rank((score, chrf, -loss), metric, sentences)[0]


def test_record_rank_compares_steps_and_counts_validations_without_improvement():
    progress = TrainProgress()
    validations = [(score, score, 1.0) for score in (15.0, 29.0, 27.0, 29.0)]
    assert [*record(progress, *validations)] == [1, 2, 2, 2]
    assert progress.validations_without_improvement == 2  # a tie is no improvement


def test_record_rank_goes_by_chrf_while_bleu_is_low_or_close():
    progress = TrainProgress()
    validations = [(0.54, 10.0, 3.0), (0.48, 12.0, 2.0), (4.9, 11.0, 1.0)]
    assert [*record(progress, *validations)] == [1, 2, 2]
    assert progress.validations_without_improvement == 1
    assert [*record(progress, (20.0, 11.0, 1.0), (19.5, 41.0, 1.0))] == [4, 5]


def test_record_rank_beats_the_score_that_an_older_release_stored():
    progress = TrainProgress(step=7, best=[{"step": 7, "score": 20.0}])
    assert [*record(progress, (20.5, 90.0, 1.0), (22.0, 50.0, 1.0))] == [7, 9]


@pytest.mark.parametrize(("count", "said"), [(1, "1 CPU core ("), (2, "2 CPU cores (")])
def test_describe_hardware_counts_cores(count, said, monkeypatch):
    monkeypatch.setattr(cores, "usable_cores", lambda: count)
    assert cores.describe_hardware(torch.device("cpu")).startswith(said)
