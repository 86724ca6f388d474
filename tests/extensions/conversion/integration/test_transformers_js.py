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
    assert (
        main(
            [
                "convert",
                str(folder),
                str(folder.parent / "js"),
                "--target_format",
                "transformers.js",
            ]
        )
        == 2
    )
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("module", "name", "value", "reason"),
    [
        (comparison, "load_tokenizer", lambda folder: None, "`tokenizer.json`"),
        (transformers_js, "_MAX_BYTES", 2**24, "more than 2 GB"),
    ],
)
def test_transformers_js_refuses_what_the_library_cannot_load(
    folder, monkeypatch, capsys, module, name, value, reason
):
    monkeypatch.setattr(module, name, value)
    assert reason in refusal(folder, capsys)


def test_write_settings_describes_the_model_as_marian_with_greedy_search(tmp_path):
    model = tiny_model(position_embedding_type="learned", decoder_layers=2)
    write_settings(model, tiny_tokenizer(), tmp_path)
    config, generation_config, tokenizer_config = (
        json.loads((tmp_path / f"{name}.json").read_text())
        for name in ("config", "generation_config", "tokenizer_config")
    )
    expected = {
        "model_type": "marian",
        "is_encoder_decoder": True,
        "d_model": 16,
        "decoder_layers": 2,
    }
    expected |= {
        "decoder_attention_heads": 2,
        "max_position_embeddings": 1024,
        "decoder_start_token_id": 1,
    }
    assert expected.items() <= config.items()
    assert (generation_config["num_beams"], generation_config["suppress_tokens"]) == (1, [0])
    assert not {"max_new_tokens_beyond_source", "length_penalty_type"} & generation_config.keys()
    assert tokenizer_config["tokenizer_class"] == "PreTrainedTokenizer"
    assert (tmp_path / "tokenizer.json").is_file()
    card = (tmp_path / "README.md").read_text()
    assert all(
        options in card for options in ('{ dtype: "q8" }', '{ dtype: "fp32", device: "webgpu" }')
    )

    write_settings(tiny_model(), tiny_tokenizer(), tmp_path)
    assert "max_position_embeddings" not in json.loads((tmp_path / "config.json").read_text())


def test_to_proto_has_no_float64_which_the_runtime_with_webgpu_lacks():
    table = numpy_helper.from_array(np.array([0.5, 0.25]), "table")
    nodes = [
        helper.make_node("Cast", ["positions"], ["exact"], to=TensorProto.DOUBLE),
        helper.make_node("Mul", ["exact", "table"], ["angles"]),
        helper.make_node("Cast", ["angles"], ["sines"], to=TensorProto.FLOAT),
    ]
    ends = [
        helper.make_tensor_value_info(name, kind, [2])
        for name, kind in (("positions", TensorProto.INT64), ("sines", TensorProto.FLOAT))
    ]
    further = [
        helper.make_tensor_value_info(name, TensorProto.DOUBLE, [2]) for name in ("exact", "angles")
    ]
    graph = helper.make_graph(nodes, "graph", ends[:1], ends[1:], [table], value_info=further)
    exported = onnx_ir.from_proto(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    )
    proto = to_proto(exported)
    assert "DOUBLE" not in onnx.printer.to_text(proto).upper()
    (found,) = InferenceSession(proto.SerializeToString()).run(
        None, {"positions": np.array([2, 4])}
    )
    assert found.tolist() == [1.0, 1.0] and found.dtype == np.float32


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
        self.tokens = torch.cat([self.tokens, torch.from_numpy(inputs["input_ids"])], dim=1)
        return [self.model(self.source, decoder_input_ids=self.tokens).logits.detach().numpy()]


def test_merged_greedy_translator_begins_with_the_forced_language(tmp_path, monkeypatch):
    monkeypatch.setattr(transformers_js, "InferenceSession", Session)
    monkeypatch.setattr(Session, "model", tiny_model())
    options = Session.model.generation_config
    options.update(
        num_beams=1,
        early_stopping=False,
        length_penalty=1.0,
        forced_bos_token_id=50,
        suppress_tokens=[0],
    )
    options.save_pretrained(tmp_path)
    (expected,) = Session.model.generate(Session.source, max_new_tokens=6, min_new_tokens=6)[
        :, 1:
    ].tolist()
    (found,) = transformers_js.merged_greedy_translator(tmp_path, tiny_tokenizer(), "fp32")(
        ["A man."]
    )
    assert found[:6] == expected and found[0] == 50
