"""The compiled step of an ensemble decodes what its eager step decodes, and depends on its weights."""

from tests.tiny import tiny_model
from tests.tiny_engines import SOURCES
from vanilla_transformer.decoding.engine.engine import Engine
from vanilla_transformer.decoding.ensemble import Ensemble


def test_compiled_ensemble_decodes_as_its_eager_form(tmp_path, monkeypatch):
    monkeypatch.setenv("VANILLA_TRANSFORMER_CACHE", str(tmp_path))
    models = [tiny_model(0, vocab_size=40, init_std=0.4), tiny_model(1, vocab_size=40, init_std=0.4, d_model=8)]
    options = {"slots": 2, "num_beams": 2, "max_new_tokens": 8}
    expected = Engine(Ensemble(models, [2, 1]), compile=False, **options).decode(SOURCES)
    engine = Engine(Ensemble(models, [2, 1]), compile=True, **options)
    found = engine.decode(SOURCES)
    assert engine.steps.are_cached()
    assert [[each.tokens for each in row] for row in found] == [[each.tokens for each in row] for row in expected]
    assert not Engine(Ensemble(models, [1, 2]), **options).steps.are_cached()
