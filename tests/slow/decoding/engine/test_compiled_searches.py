"""Compiled steps of searches with features give the hypotheses of eager ones."""

import pytest

from tests.rounding import close_to
from tests.tiny import tiny_model
from tests.tiny_engines import SOURCES
from vanilla_transformer.decoding.engine.engine import Engine
from vanilla_transformer.decoding.engine.phrase_constraints import WholeWords, WordContinuations
from vanilla_transformer.decoding.engine.requests import DecodeRequest

PREFIXES = [[7, 9], [11], [], [5, 5, 5]]
SEARCHES = {
    "forced prefix": {"num_beams": 2},
    "no repeated n-grams": {"num_beams": 3, "no_repeat_ngram_size": 2},
    "greedy": {"num_beams": 1},
}


@pytest.mark.parametrize("search", SEARCHES)
def test_compiled_steps_search_as_eager_ones(search, tmp_path, monkeypatch):
    monkeypatch.setenv("VANILLA_TRANSFORMER_CACHE", str(tmp_path))
    model = tiny_model(vocab_size=40, init_std=0.4, decoder_layers=2)
    options = SEARCHES[search] | {"slots": 2, "max_new_tokens": 8, "target_prefix": ""}
    compiled, eager = (Engine(model, compile=compile, **options) for compile in (True, False))
    found, expected = (engine.decode(map(DecodeRequest, SOURCES, PREFIXES)) for engine in (compiled, eager))
    assert compiled.steps.are_cached()
    for (ours,), (theirs,) in zip(found, expected, strict=True):
        assert ours.tokens == theirs.tokens
        assert ours.score == close_to(theirs.score, 1e-4)
        assert ours.log_probability == close_to(theirs.log_probability, 1e-4)


def test_compiled_steps_follow_constraints_as_eager_ones(tmp_path, monkeypatch):
    monkeypatch.setenv("VANILLA_TRANSFORMER_CACHE", str(tmp_path))
    model = tiny_model(vocab_size=40, init_std=0.4, decoder_layers=2)
    options = {"slots": 2, "max_new_tokens": 8, "num_beams": 3, "constraint_tokens": 4}
    options |= {"word_continuations": WordContinuations(range(10, 25))}
    compiled, eager = (Engine(model, compile=compile, **options) for compile in (True, False))
    phrases = [[WholeWords([7, 8])], [], [[9]], [WholeWords([11]), WholeWords([12])]]
    found, expected = (engine.decode(map(DecodeRequest, SOURCES, [()] * 4, phrases)) for engine in (compiled, eager))
    assert compiled.steps.are_cached()
    assert [ours.tokens for (ours,) in found] == [theirs.tokens for (theirs,) in expected]
