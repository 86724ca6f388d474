# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""
The Transformer for long sequences: what `config.attention` says in the place of self-attention, reversible layers and
chunked feed-forward, in the whole model and in the decoder alone.

Letters in shapes: B batch, L length, D d_model, H heads, K width of a head.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import initialization as init
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, EncoderDecoderCache
from transformers.generation import GenerationConfig, GenerationMixin
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs

from .configuration_vanilla_transformer_long import VanillaTransformerLongConfig, VanillaTransformerLongDecoderConfig
from .linear_attention import LinearStateLayer
from .lsh_attention import HashedLayer
from .modeling_vanilla_transformer import (
    VanillaTransformerAttention,
    VanillaTransformerDecoder,
    VanillaTransformerDecoderLayer,
    VanillaTransformerEncoder,
    VanillaTransformerEncoderLayer,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerModel,
    VanillaTransformerStack,
    count_positions,
)
from .modeling_vanilla_transformer_decoder import (
    VanillaTransformerContinuingLayer,
    VanillaTransformerDecoderModel,
    VanillaTransformerForCausalLM,
    copied,
    for_copies,
)
from .reversible import Half, run_and_keep, run_reversibly
from .transfo_xl_attention import MemoryLayer, VanillaTransformerRelativeAttention, begin_text


class VanillaTransformerLinearAttention(VanillaTransformerAttention):
    """Attention by the registered function "linear", whose cache is a sum."""

    implementation = "linear"

    def __init__(self, config: VanillaTransformerLongConfig, num_heads: int, layer_idx: int, is_causal: bool = False):
        super().__init__(config, num_heads, layer_idx, is_causal)
        self.config = copy.copy(config)
        self.config._attn_implementation = self.implementation

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        key_value_states: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Maps `(B, T, D)` to `(B, T, D)`; the second value is None. The cache is the attention function's affair."""
        if key_value_states is not None:
            if attention_mask is not None and attention_mask.dim() == 4:  # as softmax takes it: every row is the same
                attention_mask = attention_mask[:, 0, 0]
                attention_mask = attention_mask if attention_mask.dtype == torch.bool else attention_mask == 0
            return super().forward(hidden_states, attention_mask, key_value_states, past_key_values, **kwargs)
        cache = getattr(past_key_values, "self_attention_cache", past_key_values)
        return super().forward(hidden_states, attention_mask, cache=cache, **kwargs)


class VanillaTransformerHashingAttention(VanillaTransformerLinearAttention):
    """Attention by the registered function "lsh", whose queries are its keys."""

    implementation = "lsh"

    def __init__(self, config: VanillaTransformerLongConfig, num_heads: int, layer_idx: int, is_causal: bool = False):
        super().__init__(config, num_heads, layer_idx, is_causal)
        del self.k_proj, self.joined_proj

    def _project(self, states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        query_keys = self._split_heads(self.q_proj(states))
        return query_keys, query_keys, self._split_heads(self.v_proj(states))


# What `config.attention` can be: the module, and what it remembers of one layer.
_FORMULAS: dict[str, tuple[type[VanillaTransformerAttention], type[DynamicLayer]]] = {
    "softmax": (VanillaTransformerAttention, DynamicLayer),
    "linear": (VanillaTransformerLinearAttention, LinearStateLayer),
    "lsh": (VanillaTransformerHashingAttention, HashedLayer),
    "relative": (VanillaTransformerRelativeAttention, MemoryLayer),
}


class LongLayer:
    """What a layer has of its own here: another self-attention, feed-forward in chunks, and itself as halves."""

    def attend_by(self: Any, formula: str, config: VanillaTransformerLongConfig) -> None:
        """Replaces the self-attention that the layer was built with."""
        replaced = self.self_attn
        heads = config.d_model // replaced.head_dim
        self.self_attn = _FORMULAS[formula][0](config, heads, replaced.layer_idx, replaced.is_causal)
        self.chunk_size_feed_forward = config.chunk_size_feed_forward

    def feed_forward(self: Any, hidden_states: torch.Tensor) -> torch.Tensor:
        """Equation 2 of the Transformer's paper, a chunk of positions at a time (Kitaev et al., 2020, section 3)."""
        whole: Callable[[torch.Tensor], torch.Tensor] = super().feed_forward  # type: ignore[misc]
        if not self.chunk_size_feed_forward:
            return whole(hidden_states)
        parts = hidden_states.split(self.chunk_size_feed_forward, dim=1)
        if torch.is_grad_enabled():
            return torch.cat([checkpoint(whole, part, use_reentrant=False) for part in parts], dim=1)
        return torch.cat([whole(part) for part in parts], dim=1)

    def halves(
        self: Any,
        attention_mask: torch.Tensor | None,
        encoder_attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> list[Half]:
        """The sub-layers in turns; the one that attends to the source, where there is one, by the shared states."""

        def attend(states: torch.Tensor, _: torch.Tensor | None) -> torch.Tensor:
            return self.self_attn(states, attention_mask, past_key_values=past_key_values, **kwargs)[0]

        def attend_to_source(states: torch.Tensor, source: torch.Tensor | None) -> torch.Tensor:
            return self.encoder_attn(
                states, encoder_attention_mask, source, past_key_values=past_key_values, **kwargs
            )[0]

        def feed(states: torch.Tensor, _: torch.Tensor | None) -> torch.Tensor:
            return self.feed_forward(states)

        found = [self.branch(self.self_attn_layer_norm, attend, self.self_attn)]
        if hasattr(self, "encoder_attn"):
            found.append(self.branch(self.encoder_attn_layer_norm, attend_to_source, self.encoder_attn))
        return [*found, self.branch(self.final_layer_norm, feed, self.fc1, self.fc2)]

    def branch(self: Any, norm: nn.LayerNorm, sublayer: Callable, *modules: nn.Module) -> Half:
        """What pre-norm adds to the residual stream, by `sublayer(states, shared_states)` of these modules."""
        parameters = [parameter for module in (norm, *modules) for parameter in module.parameters()]
        return Half(lambda states, shared: self.dropout(sublayer(norm(states), shared)), parameters)


class VanillaTransformerLongEncoderLayer(LongLayer, VanillaTransformerEncoderLayer):
    """The encoder's layer; relative positions, which only look back, are not for it."""

    def __init__(self, config: VanillaTransformerLongConfig, layer_idx: int):
        super().__init__(config, layer_idx)
        self.attend_by("softmax" if config.attention == "relative" else config.attention, config)


class VanillaTransformerLongDecoderLayer(LongLayer, VanillaTransformerDecoderLayer):
    """The decoder's layer, which may attend linearly to the source as well."""

    def __init__(self, config: VanillaTransformerLongConfig, layer_idx: int):
        super().__init__(config, layer_idx)
        self.attend_by(config.attention, config)
        if config.cross_attention == "linear":
            self.encoder_attn = VanillaTransformerLinearAttention(config, config.decoder_attention_heads, layer_idx)


class VanillaTransformerLongContinuingLayer(LongLayer, VanillaTransformerContinuingLayer):
    """The layer of the decoder alone."""

    def __init__(self, config: VanillaTransformerLongDecoderConfig, layer_idx: int):
        super().__init__(config, layer_idx)
        self.attend_by(config.attention, config)


class LongStack(VanillaTransformerStack):
    """What the stacks have of their own here: masks of padding alone, no absolute positions, reversible layers."""

    config: VanillaTransformerLongConfig
    layers: Any  # of `LongLayer`s

    def enter(
        self,
        name: str,
        input_ids: torch.Tensor | None,
        inputs_embeds: torch.Tensor | None,
        attention_mask: torch.Tensor | None,
        position_ids: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """What the first layer gets: embedded tokens `(B, L, D)`, and which are tokens, `(B, ≥ L)` or None for all."""
        attention = self.layers[0].self_attn
        memory = getattr(past_key_values, "self_attention_cache", past_key_values)
        kind = _FORMULAS[self.config.attention][1]
        if memory is not None and memory.layer_class_to_replicate is not kind:
            raise ValueError(
                f'`past_key_values` must have layers of {kind.__name__} for `attention="{self.config.attention}"`, as '
                f"`new_memory(config)` has, got {memory}."
            )
        if type(attention) is VanillaTransformerAttention:
            return super().enter(name, input_ids, inputs_embeds, attention_mask, position_ids, past_key_values)
        if attention_mask is not None and attention_mask.dim() != 2:
            raise ValueError(
                f'A mask for `attention="{self.config.attention}"` must be one of padding, `(batch_size, length)`, '
                f"got the shape {tuple(attention_mask.shape)}."
            )
        inputs_embeds = self.embed(name, input_ids, inputs_embeds)
        past = past_key_values.get_seq_length() if past_key_values is not None else 0
        if not isinstance(attention, VanillaTransformerRelativeAttention):
            if position_ids is None:
                position_ids = count_positions(attention_mask, inputs_embeds.shape[1], past, inputs_embeds.device)
            return self.add_positions(inputs_embeds, position_ids), attention_mask
        if past_key_values is not None:
            self._check_memory(attention_mask, inputs_embeds.shape[1], past_key_values)
        if attention_mask is None and input_ids is not None and past_key_values is not None:
            attention_mask = self._tokens(input_ids)
        return self.dropout(inputs_embeds), attention_mask

    def _check_memory(self, attention_mask: torch.Tensor | None, length: int, past_key_values: Cache) -> None:
        if self.training and self.gradient_checkpointing:
            raise ValueError(
                "A memory and gradient checkpointing exclude each other, since a layer that runs twice would remember "
                "its inputs twice. Call `model.gradient_checkpointing_disable()`."
            )
        memory = getattr(past_key_values, "self_attention_cache", past_key_values)
        remembers = bool(memory.layers) and memory.layers[0].keys is not None and memory.layers[0].keys.shape[1] > 0
        if remembers and attention_mask is not None and not bool(attention_mask[:, -length].all()):
            raise ValueError(
                "What follows a memory must not begin with padding, which would stand between them: got rows of "
                "`attention_mask` whose first new position is 0. Pad on the right."
            )

    def _tokens(self, input_ids: torch.Tensor) -> torch.Tensor | None:
        """Which of the ids are not padding, since a memory has to know; the first one is the start of a text."""
        if self.config.pad_token_id is None:
            return None
        tokens = input_ids.ne(self.config.pad_token_id)
        tokens[:, 0] = True
        return tokens

    def run_halves(
        self,
        halves: list[list[Half]],
        hidden_states: torch.Tensor,
        shared_states: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
    ) -> torch.Tensor:
        """The halves of all layers over two streams; kept as usual where a cache would be written to twice."""
        flat = [half for layer in halves for half in layer]
        run = run_reversibly if past_key_values is None else run_and_keep
        return self.final_norm(run(flat, hidden_states, shared_states))

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        initialize_biases(module)


def initialize_biases(module: nn.Module) -> None:
    """Relative attention starts without a preference."""
    if isinstance(module, VanillaTransformerRelativeAttention):
        init.zeros_(module.content_bias)
        init.zeros_(module.position_bias)


class VanillaTransformerLongEncoder(LongStack, VanillaTransformerEncoder):
    """N layers over embedded source tokens."""

    layer_class = VanillaTransformerLongEncoderLayer

    def run_layers(
        self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None, **kwargs: Unpack[TransformersKwargs]
    ) -> torch.Tensor:
        """As in [`VanillaTransformerEncoder`], reversibly where the configuration says so."""
        if not self.config.reversible:
            return super().run_layers(hidden_states, attention_mask, **kwargs)
        halves = [layer.halves(attention_mask, **kwargs) for layer in self.layers]
        return self.run_halves(halves, hidden_states)


class VanillaTransformerLongDecoder(LongStack, VanillaTransformerDecoder):
    """N layers over embedded target tokens, each attending to the encoder's output."""

    layer_class = VanillaTransformerLongDecoderLayer

    def new_cache(self) -> EncoderDecoderCache:
        """An empty cache, of the attention's kind and of the source's keys and values."""
        return EncoderDecoderCache(new_memory(self.config), DynamicCache())

    def forward(
        self, input_ids: torch.Tensor | None = None, *args: Any, past_key_values: Cache | None = None, **kwargs: Any
    ) -> Any:
        """As in [`VanillaTransformerDecoder`]; with a memory as `past_key_values` this is the next text beside it."""
        if past_key_values is not None and not isinstance(past_key_values, EncoderDecoderCache):
            begin_text(past_key_values)
            past_key_values = EncoderDecoderCache(past_key_values, DynamicCache())
        return super().forward(input_ids, *args, past_key_values=past_key_values, **kwargs)

    def run_layers(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        encoder_hidden_states: torch.Tensor,
        encoder_attention_mask: torch.Tensor | None,
        past_key_values: EncoderDecoderCache | None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        """As in [`VanillaTransformerDecoder`], reversibly where the configuration says so."""
        masks = attention_mask, encoder_attention_mask
        if not self.config.reversible:
            return super().run_layers(
                hidden_states, masks[0], encoder_hidden_states, masks[1], past_key_values, **kwargs
            )
        halves = [layer.halves(*masks, past_key_values=past_key_values, **kwargs) for layer in self.layers]
        return self.run_halves(halves, hidden_states, encoder_hidden_states, past_key_values)


class VanillaTransformerLongModel(VanillaTransformerModel):
    """Encoder and decoder for long sequences, without the output projection."""

    config_class = VanillaTransformerLongConfig
    encoder_class = VanillaTransformerLongEncoder
    decoder_class = VanillaTransformerLongDecoder
    _auto_class = "AutoModel"


class LongGeneration(GenerationMixin):
    """`generate()` with the cache that the self-attention needs."""

    base_model: Any

    def _prepare_cache_for_generation(
        self, generation_config: GenerationConfig, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> None:
        kind = generation_config.cache_implementation
        if kind not in (None, "dynamic"):
            raise ValueError(
                f'`cache_implementation` must be "dynamic" for `attention="{self.config.attention}"`, whose memory is '
                f"not one of keys and values at fixed places, got {kind!r}."
            )
        given = model_kwargs.get("past_key_values")
        if given is None:
            if generation_config.use_cache:
                model_kwargs["past_key_values"] = getattr(self.base_model, "decoder", self.base_model).new_cache()
            return
        if not self.config.is_encoder_decoder:
            model_kwargs["past_key_values"] = for_copies(given, generation_config)
        elif not isinstance(given, EncoderDecoderCache):
            memory = for_copies(copied(given), generation_config)
            begin_text(memory)
            model_kwargs["past_key_values"] = EncoderDecoderCache(memory, DynamicCache())


class VanillaTransformerLongForConditionalGeneration(LongGeneration, VanillaTransformerForConditionalGeneration):
    """
    The whole Transformer for long sequences.

    With `attention="relative"` the decoder can see earlier texts, as in the translation of a document sentence after
    sentence: `memory = new_memory(config)` goes into each call as `past_key_values`, is changed by it, and into
    `generate()`, which leaves it as it is.
    """

    config_class = VanillaTransformerLongConfig
    model_class = VanillaTransformerLongModel
    _auto_class = "AutoModelForSeq2SeqLM"


class VanillaTransformerLongDecoderModel(LongStack, VanillaTransformerDecoderModel):
    """The decoder alone for long sequences, without the output projection."""

    config_class = VanillaTransformerLongDecoderConfig
    layer_class = VanillaTransformerLongContinuingLayer
    _auto_class = "AutoModel"

    def new_cache(self) -> Cache:
        """An empty cache of the attention's kind."""
        return new_memory(self.config)

    def run_layers(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        past_key_values: Cache | None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        """As in [`VanillaTransformerDecoderModel`], reversibly where the configuration says so."""
        if not self.config.reversible:
            return super().run_layers(hidden_states, attention_mask, past_key_values, **kwargs)
        halves = [layer.halves(attention_mask, past_key_values=past_key_values, **kwargs) for layer in self.layers]
        return self.run_halves(halves, hidden_states, past_key_values=past_key_values)


class VanillaTransformerLongForCausalLM(LongGeneration, VanillaTransformerForCausalLM):
    """
    The decoder alone for long sequences, with the projection to the vocabulary.

    With `attention="relative"`, `memory = new_memory(config)` goes into each call as `past_key_values` and carries the
    segments before to the next one.
    """

    config_class = VanillaTransformerLongDecoderConfig
    model_class = VanillaTransformerLongDecoderModel
    _auto_class = "AutoModelForCausalLM"


def new_memory(config: VanillaTransformerLongConfig) -> Cache:
    """An empty cache of the kind that self-attention has under this configuration."""
    return Cache(layer_class_to_replicate=_FORMULAS[config.attention][1])


__all__ = [
    "VanillaTransformerLongDecoderModel",
    "VanillaTransformerLongForCausalLM",
    "VanillaTransformerLongForConditionalGeneration",
    "VanillaTransformerLongModel",
    "new_memory",
]
