# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Configurations of models for long sequences: linear and LSH attention, reversible layers, recurrence."""

from typing import Literal

from huggingface_hub.dataclasses import strict

from .configuration_vanilla_transformer import VanillaTransformerConfig
from .configuration_vanilla_transformer_decoder import VanillaTransformerDecoderConfig

_MODELS = "modeling_vanilla_transformer_long.VanillaTransformerLong"
_CONFIGURATIONS = "configuration_vanilla_transformer_long.VanillaTransformerLong"


@strict
class VanillaTransformerLongConfig(VanillaTransformerConfig):
    """
    Shape of a [`VanillaTransformerLongModel`], an encoder and a decoder whose cost does not grow as the paper's does.

    Args:
        attention (`str`, defaults to `"linear"`):
            Self-attention. `"linear"` (Katharopoulos et al., 2020) costs time linear in the length, and a step of
            generation the same everywhere. `"lsh"` (Kitaev et al., 2020) sees what is alike. `"relative"` (Dai et al.,
            2019) is softmax with relative positions and the decoder's memory of earlier segments; the encoder, which
            has no earlier ones, keeps the paper's. `"softmax"` is the paper's, beside reversible layers.
        cross_attention (`str`, defaults to `"softmax"`): From decoder to encoder; `"linear"` is the other choice.
        num_hashes (`int`, defaults to 4): Rounds of hashing.
        num_buckets (`int`, defaults to 32):
            Buckets of a round: an even number, or 1 for no hashing. Reformer's choice is twice the length divided by
            `lsh_attn_chunk_length`.
        lsh_attn_chunk_length (`int`, defaults to 64):
            Positions of a chunk, which sees itself and the one before. Lengths need not be a multiple.
        hash_seed (`int`, defaults to 0): Of the random rotations, the same for every call.
        mem_len (`int`, *optional*):
            The most positions of earlier segments that `"relative"` remembers in a cache; by default all of them.
        reversible (`bool`, defaults to `False`):
            Recompute activations in the backward pass instead of keeping them, in two streams. Needs
            `normalize_before`, since a branch must not be normalised together with what it is added to.
        chunk_size_feed_forward (`int`, defaults to 0):
            Positions that go through the feed-forward sub-layer at a time, recomputed in the backward pass; 0 for all.
        vocab_size, d_model and all others: As in [`VanillaTransformerConfig`].

    Raises:
        ValueError: as there; and for values that make no sense together.
    """

    model_type = "vanilla_transformer_long"
    travelling_code = {
        "auto_map": {
            "AutoConfig": f"{_CONFIGURATIONS}Config",
            "AutoModel": f"{_MODELS}Model",
            "AutoModelForSeq2SeqLM": f"{_MODELS}ForConditionalGeneration",
        },
        "custom_pipelines": VanillaTransformerConfig.travelling_code["custom_pipelines"],
    }
    base_model_tp_plan = None  # type: ignore[assignment]

    attention: Literal["softmax", "linear", "lsh", "relative"] = "linear"
    cross_attention: Literal["softmax", "linear"] = "softmax"
    num_hashes: int = 4
    num_buckets: int = 32
    lsh_attn_chunk_length: int = 64
    hash_seed: int = 0
    mem_len: int | None = None
    reversible: bool = False
    chunk_size_feed_forward: int = 0

    def _check_combinations(self) -> None:
        super()._check_combinations()
        _check_counts(self)
        _check_formula(self)


@strict
class VanillaTransformerLongDecoderConfig(VanillaTransformerDecoderConfig, VanillaTransformerLongConfig):
    """
    Shape of a [`VanillaTransformerLongDecoderModel`], which reads a long sequence and continues it.

    Args:
        attention, num_hashes, num_buckets, lsh_attn_chunk_length, hash_seed, mem_len, reversible,
        chunk_size_feed_forward:
            As in [`VanillaTransformerLongConfig`].
        vocab_size, d_model and all others: As in [`VanillaTransformerDecoderConfig`]; `cross_attention` is ignored as
            the encoder's fields are.

    Raises:
        ValueError: as there.
    """

    model_type = "vanilla_transformer_long_decoder"
    travelling_code = {
        "auto_map": {
            "AutoConfig": f"{_CONFIGURATIONS}DecoderConfig",
            "AutoModel": f"{_MODELS}DecoderModel",
            "AutoModelForCausalLM": f"{_MODELS}ForCausalLM",
        }
    }
    base_model_tp_plan = None  # type: ignore[assignment]


def _check_counts(config: VanillaTransformerLongConfig) -> None:
    for field, least in (
        ("num_hashes", 1),
        ("num_buckets", 1),
        ("lsh_attn_chunk_length", 1),
        ("chunk_size_feed_forward", 0),
    ):
        if getattr(config, field) < least:
            raise ValueError(f"`{field}` must be at least {least}, got {getattr(config, field)}.")
    if config.mem_len is not None and config.mem_len < 1:
        raise ValueError(f"`mem_len` must be at least 1, or None for no limit, got {config.mem_len}.")
    if config.num_buckets > 1 and config.num_buckets % 2:
        raise ValueError(f"`num_buckets` must be even, or 1 for no hashing, got {config.num_buckets}.")


def _check_formula(config: VanillaTransformerLongConfig) -> None:
    for field in ("num_hashes", "num_buckets", "lsh_attn_chunk_length", "hash_seed"):
        given = getattr(config, field)
        if config.attention != "lsh" and given != getattr(VanillaTransformerLongConfig, field):
            raise ValueError(
                f'`{field}` needs `attention="lsh"`, got {field}={given} and attention={config.attention!r}.'
            )
    if config.mem_len is not None and config.attention != "relative":
        raise ValueError(
            '`mem_len` needs `attention="relative"`: of earlier segments only the distance is known, got '
            f"mem_len={config.mem_len} and attention={config.attention!r}."
        )
    if config.attention == "relative" and (config.d_model % 2 or config.position_embedding_type != "sinusoidal"):
        raise ValueError(
            '`attention="relative"` needs an even `d_model` and `position_embedding_type="sinusoidal"`, got '
            f"{config.d_model} and {config.position_embedding_type!r}."
        )
    if config.reversible and not config.normalize_before:
        raise ValueError(
            "`reversible` needs `normalize_before=True`: what is added to a stream must not be normalised together "
            "with it, got normalize_before=False."
        )
    if config.attention == "linear" and config.attention_dropout:
        raise ValueError(
            "`attention_dropout` must be 0 for linear attention, which has no probabilities, got "
            f"{config.attention_dropout}."
        )


__all__ = ["VanillaTransformerLongConfig", "VanillaTransformerLongDecoderConfig"]
