"""Folders for transformers.js: refusals and settings.

`tests/extensions/conversion/slow` converts and runs them.
"""

import json
from types import SimpleNamespace

import numpy as np
import onnx
import onnx.printer
import onnx_ir
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession

from tests.tiny import tiny_model, tiny_tokenizer
from vanilla_transformer.cli import main
from vanilla_transformer.extensions.conversion import comparison, transformers_js
from vanilla_transformer.extensions.conversion.optimum_graphs import to_proto
from vanilla_transformer.extensions.conversion.transformers_js import write_settings


def refusal(folder, capsys):
    """Return the error message of the command, which must write nothing."""
    command = ["convert", str(folder), str(folder.parent / "js")]
    assert main([*command, "--target_format", "transformers.js"]) == 2
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    return capsys.readouterr().err


REASONS = [
    (comparison, "load_tokenizer", lambda folder: None, "`tokenizer.json`"),
    (transformers_js, "_MAX_BYTES", 2**24, "more than 2 GB"),
]


@pytest.mark.parametrize(("module", "name", "value", "reason"), REASONS)
def test_transformers_js_refuses_what_the_library_cannot_load(
    folder, monkeypatch, capsys, module, name, value, reason
):
    monkeypatch.setattr(module, name, value)
    assert reason in refusal(folder, capsys)


def test_write_settings_describes_marian_with_greedy_search(tmp_path):
    model = tiny_model(position_embedding_type="learned", decoder_layers=2)
    write_settings(model, tiny_tokenizer(), tmp_path)

    def read(name):
        return json.loads((tmp_path / f"{name}.json").read_text())

    expected = {"model_type": "marian", "is_encoder_decoder": True, "d_model": 16}
    expected |= {"decoder_layers": 2, "decoder_attention_heads": 2}
    expected |= {"max_position_embeddings": 1024, "decoder_start_token_id": 1}
    assert expected.items() <= read("config").items()
    search = read("generation_config")
    assert (search["num_beams"], search["suppress_tokens"]) == (1, [0])
    assert not {"max_new_tokens_beyond_source", "length_penalty_type"} & search.keys()
    assert read("tokenizer_config")["tokenizer_class"] == "PreTrainedTokenizer"
    assert (tmp_path / "tokenizer.json").is_file()
    card = (tmp_path / "README.md").read_text()
    assert '{ dtype: "q8" }' in card
    assert '{ dtype: "fp32", device: "webgpu" }' in card

    write_settings(tiny_model(), tiny_tokenizer(), tmp_path)
    assert "max_position_embeddings" not in read("config")


def test_to_proto_has_no_float64_which_webgpu_lacks():
    table = numpy_helper.from_array(np.array([0.5, 0.25]), "table")
    nodes = [
        helper.make_node("Cast", ["positions"], ["exact"], to=TensorProto.DOUBLE),
        helper.make_node("Mul", ["exact", "table"], ["angles"]),
        helper.make_node("Cast", ["angles"], ["sines"], to=TensorProto.FLOAT),
    ]
    positions = helper.make_tensor_value_info("positions", TensorProto.INT64, [2])
    sines = helper.make_tensor_value_info("sines", TensorProto.FLOAT, [2])
    further = []
    for name in ("exact", "angles"):
        further.append(helper.make_tensor_value_info(name, TensorProto.DOUBLE, [2]))
    ends = {"inputs": [positions], "outputs": [sines], "value_info": further}
    graph = helper.make_graph(nodes, "graph", initializer=[table], **ends)
    versions = [helper.make_opsetid("", 20)]
    model = helper.make_model(graph, opset_imports=versions, ir_version=10)
    exported = onnx_ir.from_proto(model)
    proto = to_proto(exported)
    assert "DOUBLE" not in onnx.printer.to_text(proto).upper()
    session = InferenceSession(proto.SerializeToString())
    (sines,) = session.run(None, {"positions": np.array([2, 4])})
    assert sines.tolist() == [1.0, 1.0]
    assert sines.dtype == np.float32


class Session:
    """Stands for ONNX Runtime: an encoder that returns no state, and a decoder that runs a model on
    all tokens.
    """

    model, source = None, torch.tensor([[11, 12, 2]])

    def __init__(self, path):
        self.tokens = torch.empty(1, 0, dtype=torch.long)

    def get_inputs(self):
        return []

    def get_outputs(self):
        return [SimpleNamespace(name="logits")]

    def run(self, _, inputs):
        if "encoder_hidden_states" not in inputs:
            return [np.zeros((1, 3, 16), dtype=np.float32)]
        ids = torch.from_numpy(inputs["input_ids"])
        self.tokens = torch.cat([self.tokens, ids], dim=1)
        outputs = self.model(self.source, decoder_input_ids=self.tokens)
        return [outputs.logits.detach().numpy()]


def test_merged_translator_begins_with_the_forced_language(tmp_path, monkeypatch):
    monkeypatch.setattr(transformers_js, "InferenceSession", Session)
    monkeypatch.setattr(Session, "model", tiny_model())
    options = Session.model.generation_config
    options.update(num_beams=1, early_stopping=False, length_penalty=1.0)
    options.update(forced_bos_token_id=50, suppress_tokens=[0])
    options.save_pretrained(tmp_path)
    limits = {"max_new_tokens": 6, "min_new_tokens": 6}
    (expected,) = Session.model.generate(Session.source, **limits).tolist()
    find_translator = transformers_js.merged_greedy_translator
    translate = find_translator(tmp_path, tiny_tokenizer(), "fp32")
    (tokens,) = translate(["A man."])
    assert tokens[:6] == expected[1:]
    assert tokens[0] == 50
