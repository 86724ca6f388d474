# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Configuration of the decoder alone."""

from huggingface_hub.dataclasses import strict

from .configuration_vanilla_transformer import VanillaTransformerDecoderFields, stack_plan


@strict
class VanillaTransformerDecoderConfig(VanillaTransformerDecoderFields):
    """
    Shape of a [`VanillaTransformerDecoderModel`], which reads a sequence and continues it.

    The fields are the ones of [`VanillaTransformerConfig`] except for the encoder's.
    """

    model_type = "vanilla_transformer_decoder"
    remote_code = {
        "auto_map": {
            "AutoConfig": (
                "configuration_vanilla_transformer_decoder.VanillaTransformerDecoderConfig"
            ),
            "AutoModel": "modeling_vanilla_transformer_decoder.VanillaTransformerDecoderModel",
            "AutoModelForCausalLM": (
                "modeling_vanilla_transformer_decoder.VanillaTransformerForCausalLM"
            ),
        }
    }
    attribute_map = {
        "hidden_size": "d_model",
        "num_attention_heads": "decoder_attention_heads",
        "num_hidden_layers": "decoder_layers",
    }
    base_model_tp_plan = stack_plan("", "self_attn")
    base_model_pp_plan = {"layers": (["hidden_states", "attention_mask"], ["hidden_states"])}
    base_model_fsdp_plan = {"layers.*": "free_full_weight"}


__all__ = ["VanillaTransformerDecoderConfig"]
