"""The engine returns the attention of chosen heads for each token, as the model itself computes
it.
"""

import random

import pytest
import torch

from tests.engine_cases import EOS, IMPOSSIBLE, random_case
from tests.sweeps import sample
from tests.tiny import tiny_long_model, tiny_model
from tests.tiny_engines import SOURCES, Recorder
from vanilla_transformer.decoding.engine.engine import Engine
from vanilla_transformer.decoding.engine.graphed_steps import GraphedSteps

pytestmark = pytest.mark.filterwarnings("ignore:Unfeasible length")


def set_random_heads(model, seed):
    """Name one head, or two of them, of any layers."""
    draw, config = random.Random(seed), model.config
    heads = []
    for layer in range(config.decoder_layers):
        heads += [[layer, head] for head in range(config.decoder_attention_heads)]
    count = min(len(heads), draw.choice([1, 2]))
    config.alignment_heads = draw.sample(heads, count)


@torch.no_grad()
def attention_of_model(model, source, tokens):
    """Return the mean attention of the heads when each token is predicted, computed by eager
    attention.
    """
    seen = source
    if not model.config.source_eos:
        seen = [token for token in source if token != EOS] or source
    model.set_attn_implementation("eager")
    start = model.generation_config.decoder_start_token_id
    inputs = {"decoder_input_ids": torch.tensor([[start, *tokens[:-1]]])}
    inputs |= {"output_attentions": True, "use_cache": False}
    attentions = model(torch.tensor([seen]), **inputs).cross_attentions
    model.set_attn_implementation("sdpa")
    heads = [attentions[layer][0, head] for layer, head in model.config.alignment_heads]
    return torch.stack(heads).mean(0)


def assert_attention_is_of_the_model(engine, model, sources, count=1):
    compared = 0
    for source, hypotheses in zip(sources, engine.decode(sources, count), strict=True):
        for hypothesis in hypotheses:
            if hypothesis.score > IMPOSSIBLE and hypothesis.tokens:
                attention = torch.tensor(hypothesis.attention)
                expected = attention_of_model(model, source, hypothesis.tokens)
                torch.testing.assert_close(attention, expected, rtol=1e-4, atol=1e-5)
                compared += 1
    assert compared >= len(sources)


@pytest.mark.parametrize("first", sample(range(0, 20, 5), 0))
def test_engine_returns_attention_of_the_model(first):
    for seed in range(first, first + 5):
        case = random_case(seed)
        set_random_heads(case.model, seed)
        options = {"compile": False, "return_alignments": True, **case.options}
        engine = Engine(case.model, slots=case.slots, **options)
        count = case.num_return_sequences
        assert_attention_is_of_the_model(engine, case.model, case.sources, count)


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("layer_type", ["linear_attention", "lsh_attention"])
def test_engine_returns_attention_if_the_host_looks_seldom(layer_type, beams):
    model = tiny_long_model(layer_types=[layer_type], vocab_size=40, init_std=0.6)
    model.config.alignment_heads = [[0, 1]]
    options = {"compile": False, "return_alignments": True}
    engine = Engine(model, slots=2, num_beams=beams, **options)
    engine._look_every = 8
    engine.steps = GraphedSteps(engine.steps.step, "auto", Recorder())
    assert_attention_is_of_the_model(engine, model, SOURCES)


def test_engine_without_alignments_keeps_no_queries():
    model = tiny_model()
    model.config.alignment_heads = [[0, 1]]
    plain = Engine(model, slots=2, compile=False, return_alignments=False)
    aligned = Engine(model, slots=2, compile=False, return_alignments=True)
    assert len(plain.buffers.memory[0].layers[0].queries) == 0
    assert len(aligned.buffers.memory[0].layers[0].queries) == 1
    assert plain.steps.identity != aligned.steps.identity
    rows = zip(plain.decode(SOURCES), aligned.decode(SOURCES), strict=True)
    for (ours,), (other,) in rows:
        assert ours.tokens == other.tokens
        assert ours.attention is None
