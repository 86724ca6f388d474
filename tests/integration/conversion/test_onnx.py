"""ONNX export: the graphs in ONNX Runtime against the model in PyTorch."""

import pytest

from tests.onnx_parity import assert_onnx_parity
from vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.cli import main
from vanilla_transformer.conversion.onnx import DECODER_WITH_PAST, onnx_greedy_translator
from vanilla_transformer.file_utils import save_model_folder


def test_onnx_translates_as_pytorch_by_greedy_and_beam_search(tiny_config, tiny_tokenizer, tmp_path):
    config = VanillaTransformerConfig(**tiny_config.to_dict() | {"decoder_layers": 2})
    assert_onnx_parity(config, tiny_tokenizer, tmp_path)
    (tmp_path / "onnx" / f"{DECODER_WITH_PAST}.onnx").unlink()
    with pytest.raises(OSError, match=DECODER_WITH_PAST):
        onnx_greedy_translator(tmp_path / "onnx", tiny_tokenizer)


def test_onnx_refuses_a_folder_that_is_not_empty(tiny_model, tiny_tokenizer, tmp_path, capsys):
    folder = str(save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "ours"))
    assert main(["convert", folder, folder, "--target_format", "onnx"]) == 2
    assert "is not empty" in capsys.readouterr().err
