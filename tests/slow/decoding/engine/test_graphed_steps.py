"""Steps that inductor compiles before they are captured, with a recorder instead of CUDA graphs."""

import pytest

from tests.tiny_engines import engine_of, graphed, translate
from vanilla_transformer.decoding.engine import graphed_steps


@pytest.mark.parametrize("beams", [1, 4])
def test_inductor_gives_tokens_of_eager_steps(beams, monkeypatch):
    monkeypatch.setattr(graphed_steps, "_can_compile", lambda: True)  # on a CPU, without Triton
    engine, recorder = graphed(beams, compile=True)
    assert translate(engine) == translate(engine_of(beams, compile=False))
    assert recorder.sizes and all(
        form is not engine.steps.step for _, form in engine.steps._forms.values()
    )
