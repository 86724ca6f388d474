# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Configurations of models for long sequences: linear, LSH and Transformer-XL attention, and
reversible layers.
"""

from typing import Any, Literal

from huggingface_hub.dataclasses import strict

from .configuration_vanilla_transformer import (
    VanillaTransformerConfig,
    VanillaTransformerDecoderFields,
)
from .configuration_vanilla_transformer_decoder import VanillaTransformerDecoderConfig
from .errors import UserError

# transformers defines the first two values of `layer_types`. The other two are named after
# Reformer's "lsh" layers and after Transformer-XL.
LAYER_TYPES = ("full_attention", "linear_attention", "lsh_attention", "transfo_xl_attention")


@strict
class VanillaTransformerLongFields(VanillaTransformerDecoderFields):
    """Fields and checks of models for long sequences; [`VanillaTransformerLongConfig`] documents
    them.
    """

    layer_types: str | list[str] = "linear_attention"
    num_hashes: int = 4
    num_buckets: int = 32
    lsh_attn_chunk_length: int = 64
    hash_seed: int = 0
    mem_len: int | None = None
    reversible: bool = False

    def __post_init__(self, **kwargs: Any) -> None:
        layer_types = [self.layer_types] if isinstance(self.layer_types, str) else self.layer_types
        self.layer_types = (
            layer_types * self.decoder_layers if len(layer_types) == 1 else layer_types
        )
        super().__post_init__(**kwargs)

    @property
    def layer_type(self) -> str:
        """Return the type of all layers."""
        return self.layer_types[0]

    def validate_layer_type(self) -> None:
        """Skip the check of transformers, which does not list all of our types; see
        `validate_architecture`.
        """

    def validate_architecture(self) -> None:
        super().validate_architecture()
        if len(set(self.layer_types)) != 1 or self.layer_type not in LAYER_TYPES:
            raise UserError(
                f"`layer_types` must be one of {', '.join(LAYER_TYPES)}, the same for all layers, "
                f"got {self.layer_types}."
            )
        if len(self.layer_types) != self.decoder_layers:
            raise UserError(
                "`layer_types` must have one entry for each of "
                f"`decoder_layers`={self.decoder_layers}, got {len(self.layer_types)}. A single "
                "type stands for all layers."
            )
        for field in ("num_hashes", "num_buckets", "lsh_attn_chunk_length"):
            self.check(field, "be at least 1", lambda value: value >= 1)
        self.check(
            "num_buckets",
            "be even, or 1 for no hashing",
            lambda value: value == 1 or value % 2 == 0,
        )
        self.check("mem_len", "be at least 1, or None for no limit", lambda value: value >= 1)
        for field in ("num_hashes", "num_buckets", "lsh_attn_chunk_length", "hash_seed"):
            if getattr(self, field) != getattr(VanillaTransformerLongFields, field):
                self._check_layer_type(field, "lsh_attention")
        if self.mem_len is not None:
            self._check_layer_type("mem_len", "transfo_xl_attention")
        has_sinusoids = self.d_model % 2 == 0 and self.position_embedding_type == "sinusoidal"
        if self.layer_type == "transfo_xl_attention" and not has_sinusoids:
            raise UserError(
                '`layer_types="transfo_xl_attention"` needs an even `d_model` and '
                f'`position_embedding_type="sinusoidal"`, got {self.d_model} and '
                f"{self.position_embedding_type!r}."
            )
        types = {self.layer_type, getattr(self, "cross_attention_type", "full_attention")}
        for field in ("attention_key_dim", "attention_value_dim"):
            if getattr(self, field) is not None and types != {"full_attention"}:
                raise UserError(
                    f"`{field}` needs softmax attention in all layers, got "
                    f"{field}={getattr(self, field)} and {', '.join(sorted(types))}."
                )
        if self.reversible and not self.normalize_before:
            raise UserError(
                "`reversible` needs `normalize_before=True`, got normalize_before=False."
            )
        if self.layer_type == "linear_attention" and self.attention_dropout:
            raise UserError(
                "`attention_dropout` must be 0 for linear attention, which has no probabilities, "
                f"got {self.attention_dropout}."
            )

    def _check_layer_type(self, field: str, layer_type: str) -> None:
        if self.layer_type != layer_type:
            raise UserError(
                f'`{field}` needs `layer_types="{layer_type}"`, got '
                f"{field}={getattr(self, field)} and {self.layer_type!r}."
            )


@strict
class VanillaTransformerLongConfig(VanillaTransformerConfig, VanillaTransformerLongFields):
    """
    Configuration of a [`VanillaTransformerLongModel`], an encoder-decoder model for long sequences.

    Args:
        layer_types: Type of self-attention, the same in all layers: a string, or a list with one
            entry per decoder layer. `"linear_attention"` (Katharopoulos et al., 2020) takes time
            linear in the length, and constant time per generated token. `"lsh_attention"` (Kitaev
            et al., 2020) attends to keys similar to the query. `"transfo_xl_attention"` (Dai et
            al., 2019) is softmax attention with relative positions and a memory of earlier segments
            in the decoder; the encoder keeps full attention. `"full_attention"` is the softmax
            attention of the base model, for use with reversible layers.
        cross_attention_type: `"full_attention"` or `"linear_attention"`.
        num_hashes: Hashing rounds of LSH attention.
        num_buckets: Buckets per round: an even number, or 1 for no hashing. Reformer uses twice the
            length divided by `lsh_attn_chunk_length`.
        lsh_attn_chunk_length: Positions per chunk, which attends to itself and to the previous one.
        hash_seed: Seed of the random rotations, which are the same in each call.
        mem_len: Maximum number of earlier positions in a Transformer-XL memory; by default there is
            no limit.
        reversible: Recompute activations in the backward pass instead of storing them. Needs
            `normalize_before`, since a branch must not be normalized together with the stream that
            it is added to.
    """

    model_type = "vanilla_transformer_long"
    remote_code = {
        "auto_map": {
            "AutoConfig": "configuration_vanilla_transformer_long.VanillaTransformerLongConfig",
            "AutoModel": "modeling_vanilla_transformer_long.VanillaTransformerLongModel",
            "AutoModelForSeq2SeqLM": (
                "modeling_vanilla_transformer_long.VanillaTransformerLongForConditionalGeneration"
            ),
        },
        "custom_pipelines": VanillaTransformerConfig.remote_code["custom_pipelines"],
    }
    base_model_tp_plan = None  # type: ignore[assignment]

    cross_attention_type: Literal["full_attention", "linear_attention"] = "full_attention"


@strict
class VanillaTransformerLongDecoderConfig(
    VanillaTransformerDecoderConfig, VanillaTransformerLongFields
):
    """
    Configuration of a [`VanillaTransformerLongDecoderModel`], a decoder-only model for long
    sequences.

    The fields are the ones of [`VanillaTransformerDecoderConfig`] and, except for the encoder's, of
    [`VanillaTransformerLongConfig`].
    """

    model_type = "vanilla_transformer_long_decoder"
    remote_code = {
        "auto_map": {
            "AutoConfig": (
                "configuration_vanilla_transformer_long.VanillaTransformerLongDecoderConfig"
            ),
            "AutoModel": "modeling_vanilla_transformer_long.VanillaTransformerLongDecoderModel",
            "AutoModelForCausalLM": (
                "modeling_vanilla_transformer_long.VanillaTransformerLongForCausalLM"
            ),
        }
    }
    base_model_tp_plan = None  # type: ignore[assignment]


__all__ = ["VanillaTransformerLongConfig", "VanillaTransformerLongDecoderConfig"]
