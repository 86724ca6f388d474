"""The choice among numbers of worker processes."""

from contextlib import contextmanager

import pytest

from vanilla_transformer.extensions.scale_out import worker_choice
from vanilla_transformer.extensions.scale_out.worker_choice import choose_workers, compare_workers


@pytest.mark.parametrize(
    ("speeds", "chosen"),
    [
        ({1: 100.0}, 1),
        ({1: 100.0, 2: 104.9}, 1),
        ({1: 100.0, 2: 105.0}, 2),
        ({1: 100.0, 2: 150.0, 4: 149.0}, 2),
        ({1: 100.0, 2: 90.0, 4: 0.0}, 1),
    ],
)
def test_choice_is_the_fastest_that_gains_enough_over_one_worker(speeds, chosen):
    assert choose_workers(speeds) == chosen


def test_speed_of_workers_leaves_out_the_round_in_which_they_start(monkeypatch):
    clock, sizes = [0.0], []

    def translate(sentences, progress_bar, num_beams):
        clock[0] += 2.0 if sizes else 100.0
        sizes.append(len(sentences))

    @contextmanager
    def open_workers(name, workers, precision):
        yield translate

    monkeypatch.setattr(worker_choice, "open_pipeline", open_workers)
    monkeypatch.setattr(worker_choice.time, "perf_counter", lambda: clock[0])
    speeds = compare_workers("model", ["a"], [2], num_beams=1)
    assert sizes == [512] * 4 and speeds == {2: 512 / 2.0}
