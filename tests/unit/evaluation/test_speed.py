"""The choice among numbers of worker processes."""

import pytest

from vanilla_transformer.evaluation.speed import WorkersResult, choose_workers


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
    assert choose_workers([WorkersResult(*item) for item in speeds.items()]).workers == chosen
