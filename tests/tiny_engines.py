"""Engines of tiny models, for tests of compiled steps in this process and in others."""

import io

from tests.tiny import tiny_model
from vanilla_transformer.decoding.engine.engine import Engine
from vanilla_transformer.decoding.engine.graphed_steps import GraphedSteps

SOURCES = [[7, 8, 2], [9, 2], [5] * 8 + [2], [2]]


def engine_of(beams, seed=0, slots=2, **options):
    model = tiny_model(seed, vocab_size=40, init_std=0.4, decoder_layers=2)
    return Engine(model, slots=slots, num_beams=beams, max_new_tokens=8, **options)


def translate(engine):
    rows = []
    for hypotheses in engine.decode(SOURCES):
        rows.append([hypothesis.tokens for hypothesis in hypotheses])
    return rows


class EndedWorker:
    """A process that has compiled a step, or failed to."""

    def __init__(self, *_, returncode=0, errors=b""):
        self.returncode, self.stderr = returncode, io.BytesIO(errors)

    def poll(self):
        return self.returncode


def compile_aside(engine):
    """Let another process compile all forms of an engine's step, and use those that are done."""
    for kind in engine.steps._forms:
        engine.steps._compile_elsewhere(kind)
        engine.steps._compiled(kind)


class Recorder:
    """Keep the function that is captured, with its tensors, as a graph keeps kernels: it runs at
    each replay.
    """

    def __init__(self):
        self.sizes = []

    def __call__(self, function, warm_up):
        for _ in range(3):
            warm_up()
        self.sizes.append(function.args[0].ancestors.shape)
        return function


def graphed(beams=1, compile="auto", **options):
    """Return an engine whose steps are captured by a recorder, and the recorder."""
    engine, recorder = engine_of(beams, compile=False, **options), Recorder()
    engine.steps = GraphedSteps(engine.steps.step, compile, recorder)
    return engine, recorder
