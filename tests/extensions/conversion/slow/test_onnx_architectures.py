"""ONNX export of architectures that differ from the paper's."""

from tests.onnx_parity import assert_onnx_parity
from vanilla_transformer import VanillaTransformerConfig


def test_onnx_translates_as_pytorch_with_pre_norm_learned_positions_and_biases(
    tiny_config, tiny_tokenizer, tmp_path
):
    changes = {
        "normalize_before": True,
        "position_embedding_type": "learned",
        "attention_bias": True,
    }
    changes |= {"attention_key_dim": 4, "attention_value_dim": 6}
    config = VanillaTransformerConfig(**tiny_config.to_dict() | changes)
    assert_onnx_parity(config, tiny_tokenizer, tmp_path)
