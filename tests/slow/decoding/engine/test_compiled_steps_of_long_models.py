"""Compiled steps of decoder-only models and of the attentions for long sequences give the tokens of eager ones."""

import pytest

from tests.tiny import tiny_causal_lm, tiny_long_causal_lm, tiny_long_model
from vanilla_transformer.decoding.engine.engine import Engine

SIZES = {"vocab_size": 40, "init_std": 0.4, "decoder_layers": 2}
LSH = {"layer_types": "lsh_attention", "num_hashes": 2, "num_buckets": 4}
SOURCES = [[7, 8, 2], [9, 6], [5] * 8, [6, 7, 8, 9]]
MODELS = {
    "prompts": (tiny_causal_lm, {}),
    "linear": (tiny_long_model, {"cross_attention_type": "linear_attention"}),
    "linear-prompts": (tiny_long_causal_lm, {}),
    "lsh": (tiny_long_model, LSH),
    "reversible-lsh-prompts": (tiny_long_causal_lm, LSH | {"reversible": True, "normalize_before": True}),
}


@pytest.mark.parametrize(("build", "fields"), MODELS.values(), ids=MODELS)
def test_compiled_step_gives_tokens_of_eager_step(build, fields, tmp_path, monkeypatch):
    monkeypatch.setenv("VANILLA_TRANSFORMER_CACHE", str(tmp_path))
    model = build(**SIZES | fields)
    compiled, eager = (
        Engine(model, slots=1, num_beams=3, max_new_tokens=8, compile=compile) for compile in (True, False)
    )
    expected = eager.decode(SOURCES)
    found = compiled.decode(SOURCES)
    assert compiled.steps.find(compiled.buffers.arguments) is not compiled.steps.step
    assert compiled.steps.are_cached()
    assert [hypotheses[0].tokens for hypotheses in found] == [hypotheses[0].tokens for hypotheses in expected]
