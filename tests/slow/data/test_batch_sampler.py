"""Time and memory of planning an epoch."""

import time
import tracemalloc

import numpy as np

from vanilla_transformer.data.batches import plan_batches


def generated_lengths(pairs):
    """Return lengths of both sides of sentences, correlated as translations are."""
    random = np.random.default_rng(0)
    common = random.normal(3.0, 0.5, pairs)
    return tuple(
        np.clip(np.exp(random.normal(common, 0.2)), 1, 250).astype(np.int32) for _ in range(2)
    )


def fastest(function):
    """Return the seconds of the fastest of three calls."""
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def test_plan_batches_takes_little_time():
    source, target = generated_lengths(300_000)
    planning = fastest(lambda: plan_batches(source, target, 25_000))
    assert planning < 15 * fastest(lambda: np.argsort(source, kind="stable"))


def test_plan_batches_takes_little_memory():
    source, target = generated_lengths(300_000)
    tracemalloc.start()
    plan_batches(source, target, 25_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6 * (source.nbytes + target.nbytes)
