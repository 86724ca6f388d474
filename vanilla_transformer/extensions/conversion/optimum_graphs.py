"""Rewrite exported graphs as transformers.js and Optimum read them, in several data types.

Optimum's own exporter does not replace this: it reads MarianMTModel alone, which has no
`normalize_before`, no learned positions and no heads of another width, and optimum-onnx 0.1.0, the
latest release, needs transformers below 4.58.
"""

import hashlib
import re
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx_ir.passes.common import (
    ClearMetadataAndDocStringPass,
    RemoveUnusedNodesPass,
    TopologicalSortPass,
)
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.transformers.float16 import convert_float_to_float16

from vanilla_transformer.configuration_vanilla_transformer import VanillaTransformerConfig

USE_CACHE_BRANCH = "use_cache_branch"
# The exporter's names, and the names in decoders of Optimum and transformers.js.
_NAMES = {
    "encoder_outputs.last_hidden_state": "encoder_hidden_states",
    "attention_mask": "encoder_attention_mask",
    "decoder_input_ids": "input_ids",
}
_CACHE = re.compile(r"cache\.(self|cross)_attention_cache\.layers\.(\d+)\.(key|value)s$")
_STACKS = {"self": "decoder", "cross": "encoder"}
_ENCODER_OUTPUT = "encoder_last_hidden_state"  # the decoder returns its input


def to_proto(exported: onnx_ir.Model) -> ModelProto:
    """Return an exported graph without unused nodes and without the stack traces that the exporter
    stores.

    Positions are computed in float32: the runtime of browsers that has WebGPU does not cast to
    float64.
    """
    model = exported.clone()
    for clean in (RemoveUnusedNodesPass(), ClearMetadataAndDocStringPass()):
        clean(model)
    proto = onnx_ir.to_proto(model)
    for tensor in proto.graph.initializer:
        if tensor.data_type == TensorProto.DOUBLE:
            array = numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for value in proto.graph.value_info:
        if value.type.tensor_type.elem_type == TensorProto.DOUBLE:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    casts = [node for node in proto.graph.node if node.op_type == "Cast"]
    for attribute in (attribute for node in casts for attribute in node.attribute):
        if attribute.name == "to" and attribute.i == TensorProto.DOUBLE:
            attribute.i = TensorProto.FLOAT
    return proto


def to_optimum_decoder(exported: onnx_ir.Model, config: VanillaTransformerConfig) -> ModelProto:
    """Return an exported decoder with the names and shapes of inputs and outputs that Optimum uses.

    transformers.js knows the size `batch_size` and sets other named ones to 0.
    """
    model = exported.clone()
    graph = model.graph
    graph.outputs[:] = [value for value in graph.outputs if value.name != _ENCODER_OUTPUT]
    batch = "batch_size"
    source, target = "encoder_sequence_length", "decoder_sequence_length"
    heads = config.decoder_attention_heads
    widths = dict(zip(("key", "value"), config.head_dims(heads), strict=True))
    shapes: dict[str, tuple[str | int, ...]] = {
        "input_ids": (batch, target),
        "encoder_attention_mask": (batch, source),
        "encoder_hidden_states": (batch, source, config.d_model),
        "logits": (batch, target, int(config.decoder_vocab_size or 0)),
    }
    for values, cache in ((graph.inputs, "past_key_values"), (graph.outputs, "present")):
        for value in values:
            name = str(value.name)
            if (match := _CACHE.search(name)) is not None:
                kind, layer, part = match.groups()
                value.name = f"{cache}.{layer}.{_STACKS[kind]}.{part}"
                length = f"{cache}_{_STACKS[kind]}_sequence_length"
                value.shape = onnx_ir.Shape((batch, heads, length, widths[part]))
            else:
                value.name = _NAMES.get(name, name)
                value.shape = onnx_ir.Shape(shapes[value.name])
    return to_proto(model)


def repeat_eos(model: ModelProto, eos_token_id: int) -> ModelProto:
    """Return a decoder that generates EOS after EOS.

    transformers.js generates until all sentences of a batch have their EOS, and keeps what the
    others get after it.
    """
    changed = ModelProto()
    changed.CopyFrom(model)
    graph = changed.graph
    for node in graph.node:
        node.output[:] = ["logits_of_model" if name == "logits" else name for name in node.output]
    vocab_size = graph.output[0].type.tensor_type.shape.dim[-1].dim_value
    constants = {
        "eos_token_id": np.array(eos_token_id),
        "other_tokens": np.arange(vocab_size) != eos_token_id,
        "last_axis": np.array([-1]),
        "lowest": np.finfo(np.float32).min,
    }
    for name, value in constants.items():
        graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    nodes = (
        ("Equal", ["input_ids", "eos_token_id"], "finished"),
        ("Unsqueeze", ["finished", "last_axis"], "finished_rows"),
        ("And", ["finished_rows", "other_tokens"], "forbidden"),
        ("Where", ["forbidden", "lowest", "logits_of_model"], "logits"),
    )
    for operator, inputs, output in nodes:
        graph.node.append(helper.make_node(operator, inputs, [output]))
    return changed


def merge_decoders(first: ModelProto, further: ModelProto) -> ModelProto:
    """Return one decoder that runs `further` if its input `use_cache_branch` is true, and else
    `first`.

    Both have the same outputs, and `further` has all inputs. Equal weights are stored once.
    """
    weights: dict[bytes, TensorProto] = {}
    decide = helper.make_node(
        "If",
        [USE_CACHE_BRANCH],
        [output.name for output in first.graph.output],
        then_branch=_branch(further.graph, "further", weights),
        else_branch=_branch(first.graph, "first", weights),
    )
    branch = helper.make_tensor_value_info(USE_CACHE_BRANCH, TensorProto.BOOL, [1])
    inputs = [*further.graph.input, branch]
    name, outputs = "decoder_model_merged", first.graph.output
    graph = helper.make_graph([decide], name, inputs, outputs, list(weights.values()))
    opsets = {}
    for opset in (*first.opset_import, *further.opset_import):
        opsets[opset.domain] = opset.version
    imports = [helper.make_opsetid(*opset) for opset in opsets.items()]
    version = max(first.ir_version, further.ir_version)
    model = helper.make_model(graph, opset_imports=imports, ir_version=version)
    onnx.checker.check_model(model)
    return model


def _branch(graph: GraphProto, name: str, weights: dict[bytes, TensorProto]) -> GraphProto:
    """Return `graph` as a branch: it reads the inputs and `weights` of the graph around it.

    Adds its own weights.
    """
    names = {value.name: value.name for value in graph.input} | {"": ""}
    for tensor in graph.initializer:
        names[tensor.name] = _share(tensor, f"{name}.{tensor.name}", weights)

    def rename(values: list[str]) -> list[str]:
        return [names.get(value, f"{name}.{value}") for value in values]

    nodes = []
    for node in graph.node:
        renamed = NodeProto()
        renamed.CopyFrom(node)
        renamed.name = node.name and f"{name}.{node.name}"
        renamed.input[:] = rename(list(node.input))
        renamed.output[:] = rename(list(node.output))
        nodes.append(renamed)
    outputs = []
    for output in graph.output:
        dtype = output.type.tensor_type.elem_type
        outputs.append(helper.make_tensor_value_info(f"{name}.{output.name}", dtype, None))
    return helper.make_graph(nodes, name, [], outputs)


def _share(tensor: TensorProto, name: str, weights: dict[bytes, TensorProto]) -> str:
    """Return the name of an equal tensor in `weights`, or add this one as `name`."""
    content = numpy_helper.to_array(tensor).tobytes()
    form = repr((tensor.data_type, list(tensor.dims))).encode()
    key = hashlib.sha256(form + content).digest()
    if key not in weights:
        weights[key] = helper.make_tensor(name, tensor.data_type, tensor.dims, content, raw=True)
    return weights[key].name


def to_int8(model: ModelProto) -> ModelProto:
    """Return the graph with weights in int8; ONNX Runtime rounds the inputs of matrix products as
    it runs.

    Unsigned weights: processors without VNNI saturate on products of unsigned and signed bytes.
    """
    graph = model.graph
    weights = {tensor.name for tensor in graph.initializer}
    transposed = set()
    for node in graph.node:
        if node.op_type == "Transpose" and node.input[0] in weights:
            transposed.add(node.output[0])
    weights |= transposed
    # Attention scores and averages are products without a weight.
    products = []
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] not in weights:
            products.append(node.name)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        # Or it skips the output projection, a transposed embedding.
        options = {"MatMulConstBOnly": False}
        quantize_dynamic(
            model,
            path,
            weight_type=QuantType.QUInt8,
            nodes_to_exclude=products,
            extra_options=options,
        )
        return onnx.load(path)


def to_float16(model: ModelProto) -> ModelProto:
    """Return the graph in float16.

    Inputs and outputs stay in float32, so that graphs of all types fit together.
    """
    copy = ModelProto()
    copy.CopyFrom(model)  # the function changes its argument
    converted = onnx_ir.from_proto(convert_float_to_float16(copy, keep_io_types=True))
    TopologicalSortPass()(converted)  # it appends the casts of the inputs
    return onnx_ir.to_proto(converted)
