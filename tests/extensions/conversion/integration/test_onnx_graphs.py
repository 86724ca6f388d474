"""Rewriting of ONNX graphs, on graphs of a few nodes in ONNX Runtime."""

import numpy as np
import onnx_ir
import onnxruntime
import pytest
from onnx import checker, numpy_helper, parser

from tests.tiny import tiny_config
from vanilla_transformer.extensions.conversion.optimum_graphs import (
    merge_decoders,
    repeat_eos,
    to_float16,
    to_int8,
    to_optimum_decoder,
)

# Of `vocab_size` and `d_model`
WEIGHT = np.linspace(-1, 1, 6 * 4, dtype=np.float32).reshape(6, 4)


def graph(body, inputs, outputs, **weights):
    """Return a model of the nodes in ONNX's textual syntax."""
    versions = '<ir_version: 10, opset_import: ["" : 20]>'
    text = f"{versions} graph ({inputs}) => ({outputs}) {{ {body} }}"
    model = parser.parse_model(text)
    for name, value in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(value, name))
    return model


def run(model, **inputs):
    checker.check_model(model)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)


def tied():
    """Return a graph with attention of the embeddings over themselves and an output projection that
    shares them.
    """
    body = """
        embedded = Gather(embedding, input_ids)
        keys = Transpose<perm = [0, 2, 1]>(embedded)
        scores = MatMul(embedded, keys)
        mixed = MatMul(scores, embedded)
        projection = Transpose<perm = [1, 0]>(embedding)
        logits = MatMul(mixed, projection)
    """
    outputs = "float[B, T, 6] logits"
    model = graph(body, "int64[B, T] input_ids", outputs, embedding=WEIGHT)
    for number, node in enumerate(model.graph.node):
        node.name = f"node_{number}"
    return model


def test_merge_decoders_runs_one_branch_and_stores_equal_weights_once():
    outputs = "float[B, 6] logits, float[B, P, 4] present"
    body = "transposed = Transpose(weight) product = MatMul(x, transposed) one = Identity(product)"
    first = graph(
        f"{body} logits = Add(one, shift) present = Unsqueeze(x, axis)",
        "float[B, 4] x",
        outputs,
        weight=WEIGHT,
        shift=np.full(6, 10, dtype=np.float32),
        axis=np.array([1]),
    )
    body = body.replace("weight", "the_same")
    further = graph(
        f"{body} logits = Add(one, shift) row = Unsqueeze(x, axis) present = Concat<axis = "
        "1>(past, row)",
        "float[B, 4] x, float[B, Q, 4] past",
        outputs,
        the_same=WEIGHT,
        shift=np.full(6, 20, dtype=np.float32),
        axis=np.array([1]),
    )
    merged = merge_decoders(first, further)
    sizes = [numpy_helper.to_array(tensor).size for tensor in merged.graph.initializer]
    assert sorted(sizes) == [1, 6, 6, 24]

    x = np.ones((2, 4), dtype=np.float32)
    past = np.zeros((2, 3, 4), dtype=np.float32)
    for use_cache, shift, length in ((False, 10, 1), (True, 20, 4)):
        branch = np.array([use_cache])
        logits, present = run(merged, x=x, past=past, use_cache_branch=branch)
        np.testing.assert_allclose(logits, x @ WEIGHT.T + shift, rtol=1e-5)
        assert present.shape == (2, length, 4)
    branch = np.array([False])
    logits, _ = run(merged, x=x, past=past[:, :0], use_cache_branch=branch)
    np.testing.assert_allclose(logits, x @ WEIGHT.T + 10, rtol=1e-5)


def test_repeat_eos_lets_only_eos_follow_eos():
    model, eos = tied(), 2
    input_ids = np.array([[5], [eos], [1]])
    (expected,) = run(model, input_ids=input_ids)
    (logits,) = run(repeat_eos(model, eos), input_ids=input_ids)
    np.testing.assert_array_equal(logits[[0, 2]], expected[[0, 2]])
    assert logits[1, 0].argmax() == eos
    assert expected[1, 0].argmax() != eos
    others = np.delete(logits[1, 0], eos)
    assert (others == np.finfo(np.float32).min).all()


def test_to_int8_stores_a_tied_embedding_once():
    """It keeps products of activations."""
    model = tied()
    rounded = to_int8(model)
    arrays = [numpy_helper.to_array(tensor) for tensor in rounded.graph.initializer]
    assert [array.dtype for array in arrays if array.size == WEIGHT.size] == [np.uint8]
    operators = [node.op_type for node in rounded.graph.node]
    assert (operators.count("MatMulInteger"), operators.count("MatMul")) == (1, 2)
    input_ids = np.array([[0, 5, 3]])
    (expected,) = run(model, input_ids=input_ids)
    (logits,) = run(rounded, input_ids=input_ids)
    largest = np.abs(expected).max()
    np.testing.assert_allclose(logits, expected, atol=0.05 * largest)


def test_to_float16_keeps_the_types_of_inputs_and_outputs():
    body = "product = MatMul(x, weight) y = Relu(product)"
    model = graph(body, "float[B, 6] x", "float[B, 4] y", weight=WEIGHT)
    half = to_float16(model)
    (weight,) = map(numpy_helper.to_array, half.graph.initializer)
    assert weight.dtype == np.float16
    x = np.ones((2, 6), dtype=np.float32)
    (expected,) = run(model, x=x)
    (y,) = run(half, x=x)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, expected, atol=1e-2)
    # The argument is as it was.
    (weight,) = map(numpy_helper.to_array, model.graph.initializer)
    assert weight.dtype == np.float32


INPUTS = (
    "float[b, s, 16] hidden, int64[b, s] mask, int64[b, t] ids, float[b, 2, p, 8] "
    "keys, float[b, 2, p, 8] values"
)
BODY = (
    "copy = Identity(hidden) logits = Cast<to = 1>(ids) kept = Identity(keys) present "
    "= Identity(kept)"
)


@pytest.mark.parametrize("prefixes", [("", ""), ("input.", "output.")])
def test_to_optimum_decoder_names_inputs_and_outputs_as_optimum_does(prefixes):
    before, after = (f"{prefix}cache." for prefix in prefixes)
    names = {"hidden": "encoder_outputs.last_hidden_state", "mask": "attention_mask"}
    names |= {"ids": "decoder_input_ids", "copy": "encoder_last_hidden_state"}
    names |= {"keys": f"{before}self_attention_cache.layers.0.keys"}
    names |= {"values": f"{before}cross_attention_cache.layers.0.values"}
    names["present"] = f"{after}self_attention_cache.layers.11.keys"
    outputs = "float[b, t] logits, float[b, 2, p, 8] present, float[b, s, 16] copy"
    exported = graph(BODY, INPUTS, outputs)
    for value in (*exported.graph.input, *exported.graph.output):
        value.name = names.get(value.name, value.name)
    for node in exported.graph.node:
        for ends in (node.input, node.output):
            ends[:] = [names.get(name, name) for name in ends]

    decoder = to_optimum_decoder(onnx_ir.from_proto(exported), tiny_config())
    cache = [f"past_key_values.0.{part}" for part in ("decoder.key", "encoder.value")]
    expected = ["encoder_hidden_states", "encoder_attention_mask", "input_ids", *cache]
    assert [value.name for value in decoder.graph.input] == expected
    outputs = [value.name for value in decoder.graph.output]
    assert outputs == ["logits", "present.11.decoder.key"]
    assert len(decoder.graph.node) == 3  # the copy of the encoder's output is gone
    shape = decoder.graph.input[3].type.tensor_type.shape
    dims = [dim.dim_param or dim.dim_value for dim in shape.dim]
    assert dims == ["batch_size", 2, "past_key_values_decoder_sequence_length", 8]
