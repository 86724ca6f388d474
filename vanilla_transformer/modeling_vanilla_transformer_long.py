# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""
Encoder-decoder and decoder-only Transformers for long sequences: `config.layer_types` selects the
self-attention, and layers can be reversible.

Letters in shapes: B batch, L length, D d_model.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, EncoderDecoderCache
from transformers.generation import GenerationConfig

from .compatibility_vanilla_transformer import (
    CACHE,
    CompatibleGenerationMixin,
    accept_past_key_values,
    count_positions,
)
from .configuration_vanilla_transformer_long import (
    VanillaTransformerLongConfig,
    VanillaTransformerLongDecoderConfig,
    VanillaTransformerLongFields,
)
from .errors import UserError
from .linear_attention import LinearAttentionCacheLayer, VanillaTransformerLinearAttention
from .lsh_attention import LSHCacheLayer, VanillaTransformerLSHAttention
from .modeling_vanilla_transformer import (
    VanillaTransformerAttention,
    VanillaTransformerDecoder,
    VanillaTransformerDecoderLayer,
    VanillaTransformerEncoder,
    VanillaTransformerEncoderLayer,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerModel,
    VanillaTransformerStack,
)
from .modeling_vanilla_transformer_decoder import (
    VanillaTransformerDecoderModel,
    VanillaTransformerForCausalLM,
    copy_cache,
    generation_option,
    repeat_cache,
)
from .reversible import Replay, ReversibleBranch, apply_reversibly, apply_storing_activations
from .transfo_xl_attention import (
    TransfoXLCacheLayer,
    VanillaTransformerTransfoXLAttention,
    restart_positions,
)

ATTENTION_CLASSES: dict[str, type[VanillaTransformerAttention]] = {
    "full_attention": VanillaTransformerAttention,
    "linear_attention": VanillaTransformerLinearAttention,
    "lsh_attention": VanillaTransformerLSHAttention,
    "transfo_xl_attention": VanillaTransformerTransfoXLAttention,
}
CACHE_LAYER_CLASSES: dict[str, type[DynamicLayer]] = {
    "full_attention": DynamicLayer,
    "linear_attention": LinearAttentionCacheLayer,
    "lsh_attention": LSHCacheLayer,
    "transfo_xl_attention": TransfoXLCacheLayer,
}


def create_cache(config: VanillaTransformerLongFields) -> Cache:
    """Create an empty cache for the self-attention that `config.layer_types` selects."""
    return Cache(layer_class_to_replicate=CACHE_LAYER_CLASSES[config.layer_type])


class ReversibleLayer:
    """Mixin for encoder and decoder layers that returns the sub-layers as branches of a reversible
    layer.
    """

    def branches(
        self: Any,
        attention_mask: Tensor | None,
        encoder_attention_mask: Tensor | None = None,
        cache: Cache | None = None,
        **kwargs: Any,
    ) -> list[ReversibleBranch]:
        """Return the sub-layers in order.

        Cross-attention reads the encoder output from the shared states.
        """
        normalizes_memory = isinstance(self.self_attn, VanillaTransformerTransfoXLAttention)

        def self_attention(states: Tensor, _: Tensor | None, replay: Replay) -> Tensor:
            is_lsh = isinstance(self.self_attn, VanillaTransformerLSHAttention)
            options = kwargs | ({"replay": replay} if is_lsh else {})
            options |= {"norm": self.self_attn_layer_norm} if normalizes_memory else {}
            return self.self_attn(states, attention_mask, cache=cache, **options)[0]

        def cross_attention(states: Tensor, source: Tensor | None, _: Replay) -> Tensor:
            return self.encoder_attn(states, encoder_attention_mask, source, cache=cache, **kwargs)[
                0
            ]

        def feed_forward(states: Tensor, _: Tensor | None, __: Replay) -> Tensor:
            return self.feed_forward(states)

        norm, modules = self.self_attn_layer_norm, [self.self_attn]
        if normalizes_memory:  # the attention applies the norm
            norm, modules = nn.Identity(), [*modules, norm]
        branches = [self.branch(norm, self_attention, *modules)]
        if hasattr(self, "encoder_attn"):
            branches.append(
                self.branch(self.encoder_attn_layer_norm, cross_attention, self.encoder_attn)
            )
        return [*branches, self.branch(self.final_layer_norm, feed_forward, self.fc1, self.fc2)]

    def branch(
        self: Any, norm: nn.Module, sublayer: Callable, *modules: nn.Module
    ) -> ReversibleBranch:
        """Return the pre-norm branch `Dropout(Sublayer(LayerNorm(x)))` with the parameters of its
        modules.
        """
        parameters = [parameter for module in (norm, *modules) for parameter in module.parameters()]
        return ReversibleBranch(
            lambda states, shared, replay: self.dropout(sublayer(norm(states), shared, replay)),
            parameters,
        )


class VanillaTransformerLongEncoderLayer(ReversibleLayer, VanillaTransformerEncoderLayer):
    """Encoder layer.

    With Transformer-XL attention, which is causal, the encoder uses full attention.
    """

    def __init__(self, config: VanillaTransformerLongConfig, layer_idx: int):
        layer_type = (
            "full_attention" if config.layer_type == "transfo_xl_attention" else config.layer_type
        )
        super().__init__(config, layer_idx, ATTENTION_CLASSES[layer_type])


class VanillaTransformerLongDecoderLayer(ReversibleLayer, VanillaTransformerDecoderLayer):
    """Decoder layer, with or without cross-attention."""

    def __init__(self, config: Any, layer_idx: int):
        cross_attention_type = getattr(config, "cross_attention_type", "full_attention")
        super().__init__(
            config,
            layer_idx,
            ATTENTION_CLASSES[config.layer_type],
            ATTENTION_CLASSES[cross_attention_type],
        )

    def attend(
        self,
        hidden_states: Tensor,
        attention: nn.Module,
        norm: nn.LayerNorm,
        *args: Any,
        **kwargs: Any,
    ) -> Tensor:
        """Let Transformer-XL attention apply the norm of pre-norm layers, to its memory too."""
        if not (
            self.normalize_before and isinstance(attention, VanillaTransformerTransfoXLAttention)
        ):
            return super().attend(hidden_states, attention, norm, *args, **kwargs)
        output, _ = attention(hidden_states, *args, norm=norm, **kwargs)
        return hidden_states + self.dropout(output)


class LongStack(VanillaTransformerStack):
    """Mixin for encoder and decoder: padding masks, positions by layer type, reversible layers."""

    config: VanillaTransformerLongFields  # type: ignore[assignment]
    layers: Any
    layer_norm: Any

    def prepare_inputs(
        self,
        name: str,
        input_ids: Tensor | None,
        inputs_embeds: Tensor | None,
        attention_mask: Tensor | None,
        position_ids: Tensor | None = None,
        cache: Cache | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """
        Return the input of the first layer `(B, L, D)` and its attention mask.

        With full attention, the mask is as in [`VanillaTransformerStack`]. Otherwise it is a
        padding mask `(B, ≥ L)`, or None for no padding.
        """
        self._check_cache(cache)
        attention_class = type(self.layers[0].self_attn)
        if attention_class is VanillaTransformerAttention:
            return super().prepare_inputs(
                name, input_ids, inputs_embeds, attention_mask, position_ids, cache
            )
        if attention_mask is not None and attention_mask.dim() != 2:
            raise UserError(
                f'The mask for `layer_types="{self.config.layer_type}"` must be a padding mask of '
                "shape "
                f"`(batch_size, length)`, got the shape {tuple(attention_mask.shape)}."
            )
        inputs_embeds = self.embed(name, input_ids, inputs_embeds)
        length = inputs_embeds.shape[1]
        if attention_class is VanillaTransformerTransfoXLAttention:  # relative positions only
            attention_mask = self._segment_mask(input_ids, attention_mask, length, cache)
            return self.dropout(inputs_embeds), attention_mask
        if position_ids is None:
            past = cache.get_seq_length() if cache is not None else 0
            position_ids = count_positions(attention_mask, length, past, inputs_embeds)
        return self.add_positions(inputs_embeds, position_ids), attention_mask

    def _check_cache(self, cache: Cache | None) -> None:
        target_cache = getattr(cache, "self_attention_cache", cache)
        expected = CACHE_LAYER_CLASSES[self.config.layer_type]
        if target_cache is not None and target_cache.layer_class_to_replicate is not expected:
            raise UserError(
                f"`cache` must have layers of {expected.__name__} for "
                f'`layer_types="{self.config.layer_type}"`, as `create_cache(config)` has, got '
                f"{target_cache}."
            )

    def _segment_mask(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        length: int,
        cache: Cache | None,
    ) -> Tensor | None:
        """Check a segment against the memory and return its padding mask, derived from `input_ids`
        by default.
        """
        if cache is None:
            return attention_mask
        if self.training and self.gradient_checkpointing:
            raise UserError(
                "A memory cannot be used with gradient checkpointing: a layer that runs twice "
                "would store its inputs twice. Turn activation checkpointing off."
            )
        layers = getattr(cache, "self_attention_cache", cache).layers
        has_memory = bool(layers) and layers[0].keys is not None and layers[0].keys.shape[1] > 0
        if has_memory and attention_mask is not None and not bool(attention_mask[:, -length].all()):
            raise UserError(
                "A segment after a memory must not begin with padding, which would be between the "
                "two: got rows of `attention_mask` whose first new position is 0. Pad on the right."
            )
        if (
            attention_mask is None
            and input_ids is not None
            and self.config.pad_token_id is not None
        ):
            attention_mask = input_ids.ne(self.config.pad_token_id)
            attention_mask[:, 0] = True  # the start token, which may be the padding token
        return attention_mask

    def run_layers(
        self, hidden_states: Tensor, attention_mask: Tensor | None, *source: Any, **kwargs: Any
    ) -> Tensor:
        """
        Apply all layers, reversibly if `config.reversible`; `source` has the encoder output and its
        mask.

        With a cache, store activations: a second run would update it again.
        """
        if not self.config.reversible:
            return super().run_layers(hidden_states, attention_mask, *source, **kwargs)
        encoder_hidden_states, *encoder_mask = source or [None]
        layers = [layer.branches(attention_mask, *encoder_mask, **kwargs) for layer in self.layers]
        run = apply_reversibly if kwargs.get("cache") is None else apply_storing_activations
        hidden_states = run(
            [branch for layer in layers for branch in layer], hidden_states, encoder_hidden_states
        )
        return self.layer_norm(hidden_states)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Initialize weights as in the base model, and the biases of Transformer-XL attention to
        zero.
        """
        super()._init_weights(module)
        if isinstance(module, VanillaTransformerTransfoXLAttention):
            init.zeros_(module.content_bias)
            init.zeros_(module.position_bias)


class VanillaTransformerLongEncoder(LongStack, VanillaTransformerEncoder):
    """Encoder for long sequences."""

    layer_class = VanillaTransformerLongEncoderLayer


class VanillaTransformerLongDecoder(LongStack, VanillaTransformerDecoder):
    """Decoder for long sequences, with cross-attention to the encoder output."""

    layer_class = VanillaTransformerLongDecoderLayer

    def create_cache(self) -> EncoderDecoderCache:
        """Create an empty cache for self-attention and cross-attention."""
        return EncoderDecoderCache(create_cache(self.config), DynamicCache())

    @accept_past_key_values
    def forward(
        self, input_ids: Tensor | None = None, *args: Any, cache: Cache | None = None, **kwargs: Any
    ) -> Any:
        """Decode as in [`VanillaTransformerDecoder`].

        A cache without cross-attention is a memory of earlier texts.
        """
        if cache is not None and not isinstance(cache, EncoderDecoderCache):
            restart_positions(cache)
            cache = EncoderDecoderCache(cache, DynamicCache())
        return super().forward(input_ids, *args, cache=cache, **kwargs)


class VanillaTransformerLongModel(VanillaTransformerModel):
    """Encoder-decoder model for long sequences, without the output projection."""

    config_class = VanillaTransformerLongConfig
    encoder_class = VanillaTransformerLongEncoder
    decoder_class = VanillaTransformerLongDecoder
    _auto_class = "AutoModel"


class LongGenerationMixin(CompatibleGenerationMixin):
    """Mixin whose `generate()` creates the cache for the layer type."""

    base_model: Any

    @accept_past_key_values
    @torch.no_grad()
    def generate(
        self,
        inputs: Tensor | None = None,
        generation_config: GenerationConfig | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """
        Generate; see `GenerationMixin.generate`. An encoder-decoder model does not change a memory
        in `cache`.
        """
        implementation = generation_option(self, "cache_implementation", generation_config, kwargs)
        if implementation not in (None, "dynamic"):
            raise UserError(
                '`cache_implementation` must be "dynamic" for '
                f'`layer_types="{self.config.layer_type}"`, whose cache '
                f"has no fixed size, got {implementation!r}."
            )
        cache = kwargs.get("cache")
        if (
            cache is not None
            and self.config.is_encoder_decoder
            and not isinstance(cache, EncoderDecoderCache)
        ):
            memory = repeat_cache(self, copy_cache(cache), generation_config, kwargs)
            restart_positions(memory)
            kwargs["cache"] = EncoderDecoderCache(memory, DynamicCache())
        return super().generate(inputs, generation_config, *args, **kwargs)

    def _prepare_cache_for_generation(
        self,
        generation_config: GenerationConfig,
        model_kwargs: dict[str, Any],
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Create the cache for the layer type, unless the call has one or wants none."""
        if model_kwargs.get(CACHE) is None and generation_config.use_cache is not False:
            model_kwargs[CACHE] = getattr(
                self.base_model, "decoder", self.base_model
            ).create_cache()
            return None
        return super()._prepare_cache_for_generation(
            generation_config, model_kwargs, *args, **kwargs
        )


class VanillaTransformerLongForConditionalGeneration(
    LongGenerationMixin, VanillaTransformerForConditionalGeneration
):
    """
    Encoder-decoder model for long sequences, with the output projection.

    With `layer_types="transfo_xl_attention"` the decoder can attend to earlier texts, for example
    to translate a document sentence by sentence. Create `memory = create_cache(config)` and pass it
    as `cache` to each call, which appends its target. `generate()` reads the memory without
    changing it.
    """

    config_class = VanillaTransformerLongConfig
    model_class = VanillaTransformerLongModel
    _auto_class = "AutoModelForSeq2SeqLM"
    _tp_plan: dict[str, str] = {}  # which the embedding that is tied to the head lacks, too


class VanillaTransformerLongDecoderModel(LongStack, VanillaTransformerDecoderModel):
    """Decoder-only model for long sequences, without the output projection."""

    config_class = VanillaTransformerLongDecoderConfig
    layer_class = VanillaTransformerLongDecoderLayer
    _auto_class = "AutoModel"

    def create_cache(self) -> Cache:
        """Create an empty cache for the self-attention."""
        return create_cache(self.config)


class VanillaTransformerLongForCausalLM(LongGenerationMixin, VanillaTransformerForCausalLM):
    """
    Causal language model for long sequences.

    With `layer_types="transfo_xl_attention"`, create `memory = create_cache(config)` and pass it as
    `cache` to each call, which then attends to earlier segments.
    """

    config_class = VanillaTransformerLongDecoderConfig
    model_class = VanillaTransformerLongDecoderModel
    _auto_class = "AutoModelForCausalLM"
    _tp_plan: dict[str, str] = {}


__all__ = [
    "VanillaTransformerLongDecoderModel",
    "VanillaTransformerLongForCausalLM",
    "VanillaTransformerLongForConditionalGeneration",
    "VanillaTransformerLongModel",
    "create_cache",
]
