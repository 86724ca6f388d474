"""The program that is compiled gives the tokens of eager steps: without a C++ compiler, as torch
exports it.
"""

import pytest
import torch
from torch.utils import _pytree as pytree

from tests.closeness import close_to
from tests.sweeps import rare, sample
from tests.tiny import tiny_causal_lm, tiny_long_causal_lm, tiny_long_model, tiny_model
from vanilla_transformer.decoding.engine.engine import Engine
from vanilla_transformer.decoding.engine.step_package import export_step

MODELS = {
    "softmax": (tiny_model, {}),
    "softmax after a prompt": (tiny_causal_lm, {}),
    "linear": (tiny_long_model, {"layer_types": "linear_attention"}),
    "linear after a prompt": (tiny_long_causal_lm, {"layer_types": "linear_attention"}),
    "lsh": (tiny_long_model, {"layer_types": "lsh_attention"}),
    "lsh after a prompt": (tiny_long_causal_lm, {"layer_types": "lsh_attention"}),
}


def engine_of(model, beams):
    lengths = {"max_new_tokens": 20, "min_new_tokens": 5}
    return Engine(model, slots=3, num_beams=beams, compile=False, **lengths)


def sources():
    torch.manual_seed(0)
    # The room grows and shrinks.
    lengths = (9, 40, 1, 20, 5)
    return [torch.randint(5, 40, (length,)).tolist() for length in lengths]


def export(engine):
    """Replace the step of an engine by its exported program, which serves any number of slots and
    positions.
    """
    buffers, step = engine.buffers, engine.steps.step
    program = export_step(step, buffers.example(), buffers.dimensions()).module()
    engine.steps.step = lambda *arguments: program(pytree.tree_leaves(arguments))


NAMES = sample(MODELS, "softmax", "lsh after a prompt")


@pytest.mark.parametrize("beams", [rare(1), 3])
@pytest.mark.parametrize("name", NAMES)
def test_exported_step_gives_tokens_and_scores_of_eager_step(name, beams):
    build, changes = MODELS[name]
    model = build(vocab_size=40, init_std=0.4, lm_head_bias=True, **changes)
    eager, exported = engine_of(model, beams), engine_of(model, beams)
    export(exported)
    expected = eager.decode(sources(), beams)
    for row, references in zip(exported.decode(sources(), beams), expected, strict=True):
        for hypothesis, reference in zip(row, references, strict=True):
            assert hypothesis.tokens == reference.tokens
            log_probabilities = reference.token_log_probabilities
            assert hypothesis.token_log_probabilities == close_to(log_probabilities)


@pytest.mark.parametrize("name", ["softmax", "lsh"])
def test_exported_step_reads_only_keys_of_own_hypotheses(name):
    """Scores of the keys of all beams took twice the time of a whole step with four beams."""
    build, changes = MODELS[name]
    engine = engine_of(build(vocab_size=40, **changes), 4)
    arguments = engine.buffers.example()
    *_, beams, room = arguments[0].ancestors.shape
    widths = set()
    for node in export_step(engine.steps.step, arguments).graph.nodes:
        if node.op == "call_function":
            leaves = pytree.tree_leaves(node.meta["val"])
            widths |= {leaf.shape[-1] for leaf in leaves if leaf is not None and leaf.dim()}
    assert room in widths and beams * room not in widths
