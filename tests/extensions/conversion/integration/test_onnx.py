"""ONNX export: the graphs in ONNX Runtime against the model in PyTorch."""

import json

import pytest
import torch

from tests.onnx_parity import assert_graphs_translate_alike
from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.cli import main
from vanilla_transformer.extensions.conversion.onnx import DECODER_WITH_PAST, run_by_graphs
from vanilla_transformer.loading.model_folders import save_model_folder


@pytest.mark.sweep
def test_onnx_graphs_translate_as_pytorch_does(tiny_config, tiny_tokenizer, tmp_path, capsys):
    """Export once, which takes seconds, and compare greedy search and beam search."""
    torch.manual_seed(0)
    model = VanillaTransformerForConditionalGeneration(tiny_config).eval()
    ours, onnx = (
        str(save_model_folder(model, tiny_tokenizer, tmp_path / "ours")),
        str(tmp_path / "onnx"),
    )
    (tmp_path / "validation.en").write_text("A man is sleeping.\nTwo dogs run.\n")
    (tmp_path / "ours" / "recipe.json").write_text(
        json.dumps({"validation_source": f"{tmp_path}/validation.en"})
    )
    assert main(["convert", ours, ours, "--target_format", "onnx"]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert main(["convert", ours, onnx, "--target_format", "onnx"]) == 0
    assert "2 of 2 outputs identical, chrF between both 100.0, speedup" in capsys.readouterr().out
    assert main(["translate", onnx, "A man."]) == 2
    assert "is an export for ONNX Runtime. Translate with" in capsys.readouterr().err
    assert_graphs_translate_alike(model, tiny_tokenizer, tmp_path / "onnx")
    (tmp_path / "onnx" / f"{DECODER_WITH_PAST}.onnx").unlink()
    with pytest.raises(OSError, match=DECODER_WITH_PAST):
        run_by_graphs(model, tmp_path / "onnx")
