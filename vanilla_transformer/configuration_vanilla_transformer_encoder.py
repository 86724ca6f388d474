# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Configuration of the encoder alone."""

from huggingface_hub.dataclasses import strict

from .configuration_vanilla_transformer import VanillaTransformerEncoderFields, stack_plan


@strict
class VanillaTransformerEncoderConfig(VanillaTransformerEncoderFields):
    """
    Shape of a [`VanillaTransformerEncoderModel`], in which every token attends to all others.

    The fields are the ones of [`VanillaTransformerConfig`] except for the decoder's.
    """

    model_type = "vanilla_transformer_encoder"
    remote_code = {
        "auto_map": {
            "AutoConfig": (
                "configuration_vanilla_transformer_encoder.VanillaTransformerEncoderConfig"
            ),
            "AutoModel": "modeling_vanilla_transformer_encoder.VanillaTransformerEncoderModel",
            "AutoModelForMaskedLM": (
                "modeling_vanilla_transformer_encoder.VanillaTransformerForMaskedLM"
            ),
            "AutoModelForSequenceClassification": (
                "modeling_vanilla_transformer_encoder.VanillaTransformerForSequenceClassification"
            ),
        }
    }
    attribute_map = {
        "hidden_size": "d_model",
        "num_attention_heads": "encoder_attention_heads",
        "num_hidden_layers": "encoder_layers",
    }
    base_model_tp_plan = stack_plan("", "self_attn")
    base_model_pp_plan = {"layers": (["hidden_states", "attention_mask"], ["hidden_states"])}
    base_model_fsdp_plan = {"layers.*": "free_full_weight"}


__all__ = ["VanillaTransformerEncoderConfig"]
