"""Engines of tiny models, for tests of compiled steps in this process and in others."""

from tests.tiny import tiny_model
from vanilla_transformer.inference import engine_workers
from vanilla_transformer.inference.engine import Engine

SOURCES = [[7, 8, 2], [9, 2], [5] * 8 + [2], [2]]


def engine_of(beams, seed=0, slots=2, **options):
    model = tiny_model(seed, vocab_size=40, init_std=0.4, decoder_layers=2)
    return Engine(model, slots=slots, num_beams=beams, max_new_tokens=8, **options)


def translate(engine):
    return [[each.tokens for each in hypotheses] for hypotheses in engine.translate_tokens(SOURCES)]


def have_compiled_steps(name, precision=None):
    """Tell, in a worker process, whether its pipeline decoded by engines with compiled steps."""
    engines = engine_workers._load(name, precision)._engines._engines.values()
    return len(engines) > 0 and all(engine is not None and engine.steps.are_cached() for engine in engines)
