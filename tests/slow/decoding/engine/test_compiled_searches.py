"""Compiled steps of every search and every attention give the hypotheses of eager ones."""

from functools import partial

import pytest

from tests.closeness import close_to
from tests.tiny import tiny_causal_lm, tiny_long_causal_lm, tiny_long_model, tiny_model
from vanilla_transformer.decoding.engine.engine import Engine
from vanilla_transformer.decoding.engine.phrase_constraints import WholeWords, WordContinuations
from vanilla_transformer.decoding.engine.requests import DecodeRequest
from vanilla_transformer.decoding.ensemble import Ensemble

SOURCES = [[7, 8, 2], [9, 6], [5] * 8 + [2], [2]]
SIZES = {"vocab_size": 40, "init_std": 0.4}
LSH = {"layer_types": "lsh_attention", "num_hashes": 2, "num_buckets": 4}
PREFIXED = [*map(DecodeRequest, SOURCES, [[7, 9], [11], [], [5, 5, 5]])]
PHRASES = [[WholeWords([7, 8])], [], [[9]], [WholeWords([11]), WholeWords([12])]]
CONSTRAINED = []
for source, phrases in zip(SOURCES, PHRASES, strict=True):
    CONSTRAINED.append(DecodeRequest(source, phrases=phrases))
DRAFTED = []
for source, draft in zip(SOURCES, [[7, 9, 11, 5], [], [5] * 9, [30]], strict=True):
    DRAFTED.append(DecodeRequest(source, draft=draft, draft_bias=0.3))
CONSTRAINTS = {"constraint_tokens": 4, "word_continuations": WordContinuations(range(10, 25))}


def aligned_model():
    model = tiny_model(**SIZES, decoder_layers=2)
    model.config.alignment_heads = [[0, 1], [1, 0]]
    return model


def ensemble(*weights):
    return Ensemble([tiny_model(0, **SIZES), tiny_model(1, d_model=8, **SIZES)], weights)


def long(build, **fields):
    return partial(build, decoder_layers=2, **SIZES, **fields)


plain = partial(tiny_model, decoder_layers=2, **SIZES)
linear = long(tiny_long_model, cross_attention_type="linear_attention")
FIRST = {"reversible": True, "normalize_before": True}
reversible = long(tiny_long_causal_lm, **FIRST, **LSH)
NO_REPEATS = {"num_beams": 3, "target_prefix": "", "no_repeat_ngram_size": 2}
CASES = {
    "forced prefix": (plain, {"num_beams": 2, "target_prefix": ""}, PREFIXED),
    "no repeated n-grams": (plain, NO_REPEATS, PREFIXED),
    "greedy prefix": (plain, {"num_beams": 1, "target_prefix": ""}, PREFIXED),
    "constraints": (plain, {"num_beams": 3, **CONSTRAINTS}, CONSTRAINED),
    "greedy alignments": (aligned_model, {"num_beams": 1, "return_alignments": True}, SOURCES),
    "alignments": (aligned_model, {"num_beams": 3, "return_alignments": True}, SOURCES),
    "drafts with alignments": (
        aligned_model,
        {"num_beams": 1, "return_alignments": True, "draft": ""},
        DRAFTED,
    ),
    "ensemble": (partial(ensemble, 2, 1), {"num_beams": 2}, SOURCES),
    "prompts": (long(tiny_causal_lm), {"num_beams": 3}, SOURCES),
    "linear": (linear, {"num_beams": 3}, SOURCES),
    "linear prompts": (long(tiny_long_causal_lm), {"num_beams": 3}, SOURCES),
    "lsh": (long(tiny_long_model, **LSH), {"num_beams": 3}, SOURCES),
    "reversible lsh prompts": (reversible, {"num_beams": 3}, SOURCES),
}


@pytest.mark.parametrize("case", CASES)
def test_compiled_steps_search_as_eager_ones(case, tmp_path, monkeypatch):
    monkeypatch.setenv("VANILLA_TRANSFORMER_CACHE", str(tmp_path))
    build, options, requests = CASES[case]
    options = {"slots": 2, "max_new_tokens": 8} | options
    model = build()
    eager = Engine(model, compile=False, **options)
    compiled = Engine(model, compile=True, **options)
    rows, expected = compiled.decode(requests), eager.decode(requests)
    assert compiled.steps.find(compiled.buffers.arguments) is not compiled.steps.step
    for (ours,), (theirs,) in zip(rows, expected, strict=True):
        assert ours.tokens == theirs.tokens
        assert ours.score == close_to(theirs.score, 1e-4)
        assert ours.log_probability == close_to(theirs.log_probability, 1e-4)
        for one, other in zip(ours.attention or [], theirs.attention or [], strict=True):
            assert one == pytest.approx(other, abs=1e-5)
        assert len(ours.attention or []) == (len(ours.tokens) if "alignments" in case else 0)


def test_identity_depends_on_the_weights_of_an_ensemble():
    first = Engine(ensemble(2, 1), max_new_tokens=8)
    second = Engine(ensemble(1, 2), max_new_tokens=8)
    assert first.steps.identity != second.steps.identity
