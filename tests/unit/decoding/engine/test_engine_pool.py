"""The engines of a model: how many are kept, and which requests share one."""

import pytest

from tests.tiny import tiny_model
from vanilla_transformer.decoding.engine.engine_pool import EnginePool
from vanilla_transformer.decoding.options import TranslationOptions


@pytest.fixture
def made(monkeypatch):
    """Record the options for which engines are made, which decode nothing."""
    options_of_engines = []

    def make(pool, options, constraints):
        options_of_engines.append(options)
        return object()

    monkeypatch.setattr(EnginePool, "_make", make)
    return options_of_engines


def find(pool, options, **constraints):
    resolved = TranslationOptions.resolve(options, {}, pool.model.generation_config)
    return pool.find(resolved, **constraints)


def test_engine_pool_drops_the_engine_that_was_longest_unused(made):
    pool = EnginePool(tiny_model(), compile=False)
    for beams in (1, 2, 3, 4, 1, 5, 1, 2):
        find(pool, {"num_beams": beams})
    assert [options.num_beams for options in made] == [1, 2, 3, 4, 5, 2]


BEAMS, GREEDY = {"num_beams": 2}, {"num_beams": 1}
OTHERS = [
    (BEAMS, {"num_beams": 3}),
    (BEAMS, {"length_penalty": 2.0}),
    (BEAMS, {"early_stopping": True}),
    (BEAMS, {"max_new_tokens": 9}),
    (BEAMS, {"target_prefix": "a"}),
    (BEAMS, {"return_alignments": True}),
    (GREEDY, {"draft": "a"}),
    (GREEDY, {"do_sample": True}),
]


@pytest.mark.parametrize(("options", "changes"), OTHERS)
def test_engine_pool_makes_an_engine_for_each_search(made, options, changes):
    pool = EnginePool(tiny_model(), compile=False)
    engine = find(pool, options)
    assert find(pool, options | {"return_scores": True}) is engine
    assert find(pool, options | changes) is not engine


def test_engine_pool_makes_an_engine_for_each_room_of_constraints(made):
    pool = EnginePool(tiny_model(), compile=False)
    engines = [find(pool, BEAMS, constraint_tokens=tokens) for tokens in (8, 16, 8)]
    assert engines[0] is engines[2] is not engines[1]
