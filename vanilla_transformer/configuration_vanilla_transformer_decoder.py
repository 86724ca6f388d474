# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Configurations of the Transformer's two halves: the decoder alone, and the encoder alone."""

from huggingface_hub.dataclasses import strict

from .configuration_vanilla_transformer import VanillaTransformerConfig

_MODELS = "modeling_vanilla_transformer_decoder.VanillaTransformer"
_CONFIGURATIONS = "configuration_vanilla_transformer_decoder.VanillaTransformer"


def _plan_of(stack: str) -> dict[str, str]:
    """The tensor-parallel plan of one stack, without the attention to the other one."""
    return {
        name.removeprefix(f"{stack}."): way
        for name, way in VanillaTransformerConfig.base_model_tp_plan.items()
        if name.startswith(f"{stack}.") and "encoder_attn" not in name
    }


@strict
class VanillaTransformerStackConfig(VanillaTransformerConfig):
    """What the configurations of one stack share."""

    base_model_pp_plan = {"layers": (["hidden_states", "attention_mask"], ["hidden_states"])}
    base_model_fsdp_plan = {"layers.*": "free_full_weight"}

    is_encoder_decoder: bool = False
    decoder_start_token_id: int | None = None


@strict
class VanillaTransformerDecoderConfig(VanillaTransformerStackConfig):
    """
    Shape of a [`VanillaTransformerDecoderModel`], which reads a sequence and continues it.

    Args:
        vocab_size, d_model, decoder_layers, decoder_attention_heads, decoder_ffn_dim and all others that are not the
            encoder's: As in [`VanillaTransformerConfig`]. The encoder's are ignored.

    Raises:
        ValueError: as there.
    """

    model_type = "vanilla_transformer_decoder"
    travelling_code = {
        "auto_map": {
            "AutoConfig": f"{_CONFIGURATIONS}DecoderConfig",
            "AutoModel": f"{_MODELS}DecoderModel",
            "AutoModelForCausalLM": f"{_MODELS}ForCausalLM",
        }
    }
    attribute_map = {
        "hidden_size": "d_model",
        "num_attention_heads": "decoder_attention_heads",
        "num_hidden_layers": "decoder_layers",
    }
    base_model_tp_plan = _plan_of("decoder")


@strict
class VanillaTransformerEncoderConfig(VanillaTransformerStackConfig):
    """
    Shape of a [`VanillaTransformerEncoderModel`], which gives each token a state that has seen all others.

    Args:
        vocab_size, d_model, encoder_layers, encoder_attention_heads, encoder_ffn_dim and all others that are not the
            decoder's: As in [`VanillaTransformerConfig`]. The decoder's are ignored.

    Raises:
        ValueError: as there.
    """

    model_type = "vanilla_transformer_encoder"
    travelling_code = {
        "auto_map": {
            "AutoConfig": f"{_CONFIGURATIONS}EncoderConfig",
            "AutoModel": f"{_MODELS}EncoderModel",
            "AutoModelForMaskedLM": f"{_MODELS}ForMaskedLM",
            "AutoModelForSequenceClassification": f"{_MODELS}ForSequenceClassification",
        }
    }
    base_model_tp_plan = _plan_of("encoder")


__all__ = ["VanillaTransformerDecoderConfig", "VanillaTransformerEncoderConfig"]
