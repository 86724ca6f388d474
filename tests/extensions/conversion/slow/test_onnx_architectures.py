"""ONNX export of architectures that differ from the paper's."""

from tests.onnx_parity import assert_onnx_parity
from vanilla_transformer import VanillaTransformerConfig


def test_onnx_translates_other_architectures(tiny_config, tiny_tokenizer, tmp_path):
    """They have pre-norm, learned positions, biases and other widths of heads."""
    changes = {"normalize_before": True, "position_embedding_type": "learned"}
    changes |= {"attention_bias": True}
    changes |= {"attention_key_dim": 4, "attention_value_dim": 6}
    config = VanillaTransformerConfig(**tiny_config.to_dict() | changes)
    assert_onnx_parity(config, tiny_tokenizer, tmp_path)
