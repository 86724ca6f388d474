"""ONNX: three graphs that ONNX Runtime runs to the same greedy tokens."""

import pytest
import torch

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.cli import main
from vanilla_transformer.conversion.onnx import DECODER_WITH_PAST, greedy_onnx, to_onnx
from vanilla_transformer.training.checkpoint import save_model_folder

SENTENCES = ["A man is sleeping.", "Two dogs run across the green grass.", "Zwei Hunde", "1"]


@pytest.mark.parametrize(
    "changes",
    [
        {"decoder_layers": 2},
        pytest.param(
            {"normalize_before": True, "position_embedding_type": "learned", "attention_bias": True},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["the paper's", "another architecture"],
)
def test_greedy_tokens_are_the_same(changes, tiny_config, tiny_tokenizer, tmp_path):
    torch.manual_seed(0)
    config = VanillaTransformerConfig(**tiny_config.to_dict() | changes)
    folder = save_model_folder(VanillaTransformerForConditionalGeneration(config), tiny_tokenizer, tmp_path / "ours")
    comparison = to_onnx(folder, tmp_path / "onnx", SENTENCES)
    assert (comparison.sentences, comparison.identical) == (4, 4)
    (tmp_path / "onnx" / DECODER_WITH_PAST).unlink()
    with pytest.raises(OSError, match=DECODER_WITH_PAST):
        greedy_onnx(tmp_path / "onnx", tiny_tokenizer)


def test_the_command_refuses_a_folder_in_use(tiny_model, tiny_tokenizer, tmp_path, capsys):
    folder = str(save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "ours"))
    assert main(["convert", folder, folder, "--target_format", "onnx"]) == 2
    assert "holds something already" in capsys.readouterr().err
