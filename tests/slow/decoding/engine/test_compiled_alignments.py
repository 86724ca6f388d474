"""Compiled steps keep the queries of alignment heads as eager ones do."""

import pytest

from tests.tiny import tiny_model
from tests.tiny_engines import SOURCES
from vanilla_transformer.decoding.engine.engine import Engine


@pytest.mark.parametrize("beams", [1, 3])
def test_engine_compiled_steps_return_the_attention_of_eager_ones(beams, tmp_path, monkeypatch):
    monkeypatch.setenv("VANILLA_TRANSFORMER_CACHE", str(tmp_path))
    model = tiny_model(vocab_size=40, init_std=0.4, decoder_layers=2)
    model.config.alignment_heads = [[0, 1], [1, 0]]
    options = {"slots": 2, "num_beams": beams, "max_new_tokens": 8, "return_alignments": True}
    eager, compiled = (Engine(model, compile=compile, **options) for compile in (False, True))
    found = [engine.decode(SOURCES) for engine in (eager, compiled)]
    assert compiled.steps.find(compiled.buffers.arguments) is not compiled.steps.step
    for rows in zip(*found, strict=True):
        (ours,), (theirs,) = rows
        assert ours.tokens == theirs.tokens and len(ours.attention) == len(ours.tokens)
        for one, other in zip(ours.attention, theirs.attention, strict=True):
            assert one == pytest.approx(other, abs=1e-5)
