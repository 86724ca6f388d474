# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""
The Transformer of "Attention Is All You Need" (Vaswani et al., 2017), called "the paper" below.

Read from top to bottom: attention (section 3.2), the layers (3.1 and 3.3), embeddings and positions
(3.4 and 3.5), the encoder and the decoder, the model, and the model with its output projection
(3.4).

Letters in shapes: B batch, S source length, T target length, L length of either, D d_model, H
heads, K d_k or d_v, the width of a head, F feed-forward width, V target vocabulary.
"""

import math
from collections.abc import Callable
from typing import Any, Unpack

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqLMOutput,
    Seq2SeqModelOutput,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils.generic import (
    TransformersKwargs,
    can_return_tuple,
    merge_with_config_defaults,
)
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .compatibility_vanilla_transformer import (
    CACHE,
    CompatibleModel,
    SourceVocabulary,
    TargetVocabulary,
    accept_past_key_values,
    check_arguments,
    check_ids,
    check_inputs,
    check_source,
    count_positions,
)
from .configuration_vanilla_transformer import VanillaTransformerConfig
from .generation_vanilla_transformer import (
    PaperGenerationMixin,
    paper_generation_config,
    source_mask,
)


def eager_attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    """
    Scaled dot-product attention, equation 1: `softmax(Q Kᵀ / √d_k) V`.

    `attention_mask` is added to the scores: 0 where a position may be seen, a large negative number
    elsewhere. Returns `(B, T, H, K)` and the probabilities.
    """
    scores = (query * scaling) @ key.transpose(2, 3)  # (B, H, T, K) by (B, H, K, S) -> (B, H, T, S)
    if attention_mask is not None:
        scores = scores + attention_mask
    probabilities = nn.functional.softmax(scores, dim=-1)
    probabilities = nn.functional.dropout(probabilities, p=dropout, training=module.training)
    # (B, H, T, K) -> (B, T, H, K)
    return (probabilities @ value).transpose(1, 2).contiguous(), probabilities


class VanillaTransformerAttention(nn.Module):
    """
    Multi-head attention, section 3.2.2.

        MultiHead(Q, K, V) = Concat(head_1, …, head_h) W^O  with  head_i = Attention(Q W_i^Q, K
        W_i^K, V W_i^V)

    Self-attention if `key_value_states` is None, otherwise cross-attention over these states.
    """

    def __init__(
        self,
        config: VanillaTransformerConfig,
        num_heads: int,
        layer_idx: int,
        is_causal: bool = False,
    ):
        super().__init__()
        self.config, self.layer_idx, self.is_causal = config, layer_idx, is_causal
        self.head_dim, self.value_dim = config.head_dims(num_heads)  # d_k and d_v
        self.scaling = self.head_dim**-0.5
        self.dropout = config.attention_dropout
        self.q_proj = nn.Linear(
            config.d_model, num_heads * self.head_dim, bias=config.attention_bias
        )
        self.k_proj = nn.Linear(
            config.d_model, num_heads * self.head_dim, bias=config.attention_bias
        )
        self.v_proj = nn.Linear(
            config.d_model, num_heads * self.value_dim, bias=config.attention_bias
        )
        self.out_proj = nn.Linear(
            num_heads * self.value_dim, config.d_model, bias=config.attention_bias
        )

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        key_value_states: Tensor | None = None,
        cache: Cache | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """Map `(B, T, D)` to `(B, T, D)` and the probabilities, if the attention implementation
        returns them.
        """
        query = self.split_heads(self.q_proj(hidden_states), self.head_dim)  # (B, H, T, K)
        if key_value_states is not None:
            key, value = self.project_source(key_value_states, cache)  # (B, H, S, K)
        else:
            key, value = self.project(hidden_states)  # (B, H, T, K)
            if cache is not None:  # after the ones of earlier steps, (B, H, past + T, K)
                pages = {"kwargs": kwargs} if "read_index" in kwargs else {}
                key, value = getattr(cache, "self_attention_cache", cache).update(
                    key, value, self.layer_idx, **pages
                )
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        dropout = self.dropout if self.training else 0.0
        output, probabilities = attend(
            self, query, key, value, attention_mask, scaling=self.scaling, dropout=dropout, **kwargs
        )
        # (B, T, H, K) -> (B, T, H * K)
        output = output.reshape(*hidden_states.shape[:-1], -1).contiguous()
        return self.out_proj(output), probabilities

    def split_heads(self, states: Tensor, width: int) -> Tensor:
        heads = states.view(*states.shape[:-1], -1, width)  # (B, L, H * K) -> (B, L, H, K)
        return heads.transpose(1, 2)  # (B, H, L, K)

    def project(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Compute keys and values, `(B, H, L, K)` each."""
        key = self.split_heads(self.k_proj(states), self.head_dim)
        return key, self.split_heads(self.v_proj(states), self.value_dim)

    def project_source(self, states: Tensor, cache: Any) -> tuple[Tensor, Tensor]:
        """Compute keys and values of the source, once for a whole generation."""
        if cache is None:
            return self.project(states)
        if not cache.is_updated.get(self.layer_idx):
            cache.is_updated[self.layer_idx] = True
            return cache.cross_attention_cache.update(*self.project(states), self.layer_idx)
        layer = cache.cross_attention_cache.layers[self.layer_idx]
        return layer.keys, layer.values


class VanillaTransformerLayer(GradientCheckpointingLayer):
    """
    Self-attention and feed-forward sub-layers of encoder and decoder layers, with residual
    connections.

    Each sub-layer is wrapped as in section 3.1: `LayerNorm(x + Dropout(Sublayer(x)))`.
    Differs from the paper: with `normalize_before`, `x + Dropout(Sublayer(LayerNorm(x)))`.
    """

    def __init__(self, config: VanillaTransformerConfig, ffn_dim: int, self_attn: nn.Module):
        super().__init__()
        self.normalize_before = config.normalize_before
        self.chunk_size_feed_forward = config.chunk_size_feed_forward
        self.dropout = nn.Dropout(config.dropout)
        self.activation_dropout = nn.Dropout(config.activation_dropout)
        self.activation_fn = ACT2FN[config.activation_function]
        self.fc1 = nn.Linear(config.d_model, ffn_dim)
        self.fc2 = nn.Linear(ffn_dim, config.d_model)
        self.final_layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)
        self.self_attn = self_attn
        self.self_attn_layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)

    def add_and_norm(self, hidden_states: Tensor, norm: nn.LayerNorm, sublayer: Callable) -> Tensor:
        """Apply `sublayer` with its residual connection and normalization: `(B, L, D)` to
        `(B, L, D)`.
        """
        if self.normalize_before:
            return hidden_states + self.dropout(sublayer(norm(hidden_states)))
        return norm(hidden_states + self.dropout(sublayer(hidden_states)))

    def attend(
        self,
        hidden_states: Tensor,
        attention: nn.Module,
        norm: nn.LayerNorm,
        *args: Any,
        **kwargs: Any,
    ) -> Tensor:
        """Apply an attention with its residual connection and normalization."""
        return self.add_and_norm(
            hidden_states, norm, lambda states: attention(states, *args, **kwargs)[0]
        )

    def position_wise(self, hidden_states: Tensor) -> Tensor:
        """Compute equation 2: `max(0, x W_1 + b_1) W_2 + b_2`."""
        inner = self.activation_fn(self.fc1(hidden_states))  # (B, L, D) -> (B, L, F)
        return self.fc2(self.activation_dropout(inner))  # (B, L, F) -> (B, L, D)

    def feed_forward(self, hidden_states: Tensor) -> Tensor:
        """Apply equation 2 to all positions, or to `chunk_size_feed_forward` of them at a time to
        save memory.
        """
        if not self.chunk_size_feed_forward:
            return self.position_wise(hidden_states)
        # The chunks are recomputed in the backward pass.
        chunks = hidden_states.split(self.chunk_size_feed_forward, dim=1)
        return torch.cat(
            [checkpoint(self.position_wise, chunk, use_reentrant=False) for chunk in chunks], dim=1
        )


class VanillaTransformerEncoderLayer(VanillaTransformerLayer):
    """Self-attention, then feed-forward (section 3.1, figure 1 left)."""

    def __init__(
        self,
        config: VanillaTransformerConfig,
        layer_idx: int,
        attention: Any = VanillaTransformerAttention,
    ):
        self_attn = attention(config, config.encoder_attention_heads, layer_idx)
        super().__init__(config, config.encoder_ffn_dim, self_attn)

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor | None = None, **kwargs: Any
    ) -> Tensor:
        hidden_states = self.attend(
            hidden_states, self.self_attn, self.self_attn_layer_norm, attention_mask, **kwargs
        )
        return self.add_and_norm(hidden_states, self.final_layer_norm, self.feed_forward)


class VanillaTransformerDecoderLayer(VanillaTransformerLayer):
    """
    Masked self-attention, attention to the encoder output, then feed-forward (section 3.1, figure 1
    right).

    A decoder without an encoder (`is_encoder_decoder=False`) has no attention to its output.
    """

    def __init__(
        self,
        config: VanillaTransformerConfig,
        layer_idx: int,
        attention: Any = VanillaTransformerAttention,
        cross_attention: Any = VanillaTransformerAttention,
    ):
        heads = config.decoder_attention_heads
        super().__init__(
            config, config.decoder_ffn_dim, attention(config, heads, layer_idx, is_causal=True)
        )
        self.has_cross_attention = config.is_encoder_decoder
        if self.has_cross_attention:
            self.encoder_attn = cross_attention(config, heads, layer_idx)
            self.encoder_attn_layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> Tensor:
        hidden_states = self.attend(
            hidden_states, self.self_attn, self.self_attn_layer_norm, attention_mask, **kwargs
        )
        if self.has_cross_attention:
            attention, norm = self.encoder_attn, self.encoder_attn_layer_norm
            source = encoder_attention_mask, encoder_hidden_states
            hidden_states = self.attend(hidden_states, attention, norm, *source, **kwargs)
        return self.add_and_norm(hidden_states, self.final_layer_norm, self.feed_forward)


class VanillaTransformerEmbedding(nn.Embedding):
    """Token embeddings times √d_model (section 3.4).

    Scaled here, so that `inputs_embeds` mean the same thing.
    """

    def __init__(self, config: VanillaTransformerConfig, vocab_size: int):
        super().__init__(vocab_size, config.d_model, config.pad_token_id)
        # PEFT reads this attribute.
        self.embed_scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0

    def forward(self, input_ids: Tensor) -> Tensor:
        return super().forward(input_ids) * self.embed_scale  # (B, L) -> (B, L, D)


def sinusoidal_positions(position_ids: Tensor, d_model: int, layout: str = "interleaved") -> Tensor:
    """
    Compute the positional encodings of section 3.5, `(…, L)` to `(…, L, D)`, in float32.

        PE(pos, 2i)   = sin(pos / 10000^(2i / d_model))
        PE(pos, 2i+1) = cos(pos / 10000^(2i / d_model))

    The layout `"halves"` has all sines first, then all cosines. So has `"tensor2tensor"`, the
    authors' code, where the exponents are 2i / (d_model - 2), so the longest wavelength is 10000 ·
    2π exactly.
    """
    # Angles of far positions lose digits in float32; Apple's GPUs have no float64.
    dtype = torch.float32 if position_ids.device.type == "mps" else torch.float64
    width = max(d_model - 2, 1) if layout == "tensor2tensor" else d_model
    dimensions = torch.arange(0, d_model, 2, device=position_ids.device, dtype=dtype)  # (D/2,)
    frequencies = torch.exp(-math.log(10000.0) * (dimensions / width))
    angles = position_ids[..., None].to(dtype) * frequencies  # (..., L, D/2)
    sines, cosines = angles.sin().float(), angles.cos().float()
    if layout == "interleaved":
        return torch.stack([sines, cosines], dim=-1).flatten(-2)  # (..., L, D)
    return torch.cat([sines, cosines], dim=-1)  # (..., L, D)


class VanillaTransformerPositions(nn.Module):
    """
    Positional encodings of section 3.5, computed on the fly: no table, hence no longest sequence.

    Differs from the paper: `"none"` adds nothing. Attention alone does not know the order of its
    inputs.
    """

    def __init__(self, config: VanillaTransformerConfig):
        super().__init__()
        self.d_model, self.layout = config.d_model, config.sinusoid_layout
        self.has_positions = config.position_embedding_type != "none"

    def forward(self, position_ids: Tensor) -> Tensor:
        if not self.has_positions:
            return torch.zeros(*position_ids.shape, self.d_model, device=position_ids.device)
        return sinusoidal_positions(position_ids, self.d_model, self.layout)  # (B, L) -> (B, L, D)


class VanillaTransformerLearnedPositions(nn.Embedding):
    """Learned positions (table 3, row E), up to `max_position_embeddings`."""

    def __init__(self, config: VanillaTransformerConfig):
        super().__init__(config.max_position_embeddings, config.d_model)

    def forward(self, position_ids: Tensor) -> Tensor:
        hint = f"The sequence is longer than `max_position_embeddings`={self.num_embeddings}."
        check_ids("position_ids", position_ids, self.num_embeddings, hint)
        return super().forward(position_ids)  # (B, L) -> (B, L, D)


class VanillaTransformerPreTrainedModel(CompatibleModel):
    """Base class of all models, which initializes their weights. The paper does not say how."""

    config_class = VanillaTransformerConfig
    config: VanillaTransformerConfig

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Draw projections Glorot-uniform and embeddings from `N(0, 1/d_model)`, or both from
        `N(0, init_std²)`.
        """
        std = self.config.init_std
        if isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight) if std is None else init.normal_(
                module.weight, std=std
            )
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            init.normal_(module.weight, std=self.config.d_model**-0.5 if std is None else std)
            if module.padding_idx is not None and not getattr(
                module.weight, "_is_hf_initialized", False
            ):
                init.zeros_(module.weight[module.padding_idx])
        elif isinstance(module, nn.LayerNorm):
            init.ones_(module.weight)
            init.zeros_(module.bias)


class VanillaTransformerStack(VanillaTransformerPreTrainedModel):
    """Common parts of encoder and decoder: embeddings, positions, dropout on their sum, pre-norm's
    final LayerNorm.
    """

    layer_class: Any
    create_mask = staticmethod(create_bidirectional_mask)

    def __init__(self, config: VanillaTransformerConfig, vocab_size: int, num_layers: int):
        super().__init__(config)
        self.embed_tokens: nn.Embedding = VanillaTransformerEmbedding(config, vocab_size)
        learned = config.position_embedding_type == "learned"
        positions: Any = (
            VanillaTransformerLearnedPositions if learned else VanillaTransformerPositions
        )
        self.embed_positions = positions(config)
        self.dropout = nn.Dropout(config.dropout)
        self.layer_norm = (
            nn.LayerNorm(config.d_model, config.layer_norm_eps) if config.normalize_before else None
        )
        self.layers = nn.ModuleList(
            self.layer_class(config, layer_idx) for layer_idx in range(num_layers)
        )
        self.gradient_checkpointing = False
        # FSDP and device maps keep a layer whole.
        self._no_split_modules = [self.layer_class.__name__]
        self.post_init()

    def embed(self, name: str, input_ids: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
        """Return scaled embeddings of `input_ids`, or `inputs_embeds` unchanged: `(B, L, D)`."""
        check_inputs(name, input_ids, inputs_embeds, len(self.embed_tokens.weight))
        return self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds

    def add_positions(self, inputs_embeds: Tensor, position_ids: Tensor) -> Tensor:
        """Add positional encodings (section 3.5) and apply dropout to the sum (section 5.4):
        `(B, L, D)`.
        """
        return self.dropout(
            inputs_embeds + self.embed_positions(position_ids).to(inputs_embeds.dtype)
        )

    def prepare_inputs(
        self,
        name: str,
        input_ids: Tensor | None,
        inputs_embeds: Tensor | None,
        attention_mask: Tensor | None,
        position_ids: Tensor | None = None,
        cache: Cache | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the input of the first layer, `(B, L, D)`, and the mask in the form that the
        attention takes.
        """
        inputs_embeds = self.embed(name, input_ids, inputs_embeds)
        if position_ids is None:
            past = cache.get_seq_length() if cache is not None else 0
            position_ids = count_positions(
                attention_mask, inputs_embeds.shape[1], past, inputs_embeds
            )
        target_cache = getattr(cache, "self_attention_cache", cache)
        attention_mask = self.create_mask(
            self.config, inputs_embeds, attention_mask, **{CACHE: target_cache}
        )
        return self.add_positions(inputs_embeds, position_ids), attention_mask

    def run_layers(self, hidden_states: Tensor, *masks_and_source: Any, **kwargs: Any) -> Tensor:
        """Apply all layers to embedded tokens with positions, `(B, L, D)`."""
        for layer in self.layers:
            hidden_states = layer(hidden_states, *masks_and_source, **kwargs)
        return hidden_states if self.layer_norm is None else self.layer_norm(hidden_states)


class VanillaTransformerEncoder(VanillaTransformerStack):
    """N encoder layers over embedded source tokens."""

    layer_class: Any = VanillaTransformerEncoderLayer
    _can_record_outputs = {
        "hidden_states": VanillaTransformerEncoderLayer,
        "attentions": VanillaTransformerAttention,
    }

    def __init__(self, config: VanillaTransformerConfig):
        super().__init__(config, config.vocab_size, config.encoder_layers)

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        position_ids: Tensor | None = None,
        **further: Any,  # `generate()` would pass all of its arguments on to `kwargs`
    ) -> BaseModelOutput:
        """
        Encode source tokens `(B, S)` with EOS, or continuous inputs `(B, S, D)`, which are not
        scaled by √d_model.

        `attention_mask`, `(B, S)`, is 1 for tokens and 0 for padding; it is derived from
        `input_ids` by default. `position_ids`, `(B, S)`, are counted from it by default.
        """
        check_arguments(self, further)
        attention_mask = source_mask(self.config, input_ids, attention_mask)
        hidden_states, attention_mask = self.prepare_inputs(
            "input", input_ids, inputs_embeds, attention_mask, position_ids
        )
        return BaseModelOutput(
            last_hidden_state=self.run_layers(hidden_states, attention_mask, **further)
        )


class VanillaTransformerDecoder(VanillaTransformerStack):
    """N decoder layers over embedded target tokens, each attending to the encoder output."""

    create_mask = staticmethod(create_causal_mask)
    layer_class: Any = VanillaTransformerDecoderLayer
    _can_record_outputs = {
        "hidden_states": VanillaTransformerDecoderLayer,
        "attentions": OutputRecorder(VanillaTransformerAttention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(
            VanillaTransformerAttention, index=1, layer_name="encoder_attn"
        ),
    }

    def __init__(self, config: VanillaTransformerConfig):
        target_vocab_size = config.decoder_vocab_size if config.is_encoder_decoder else None
        super().__init__(config, target_vocab_size or config.vocab_size, config.decoder_layers)

    @merge_with_config_defaults
    @capture_outputs
    @accept_past_key_values
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        cache: EncoderDecoderCache | None = None,
        inputs_embeds: Tensor | None = None,
        position_ids: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """
        Decode a target, given the encoder output `(B, S, D)` and its padding mask `(B, S)`.

        Args:
            input_ids: Target tokens `(B, T)` shifted right; with a cache, only the ones that it
                does not hold.
            attention_mask: 1 for tokens, 0 for padding, `(B, past + T)`. Padding on the right needs
                no mask.
            cache: Keys and values of earlier steps, updated in place.
            inputs_embeds: Continuous inputs `(B, T, D)` instead of `input_ids`, not scaled by
                √d_model.
            position_ids: `(B, T)`, counted from the attention mask or the cache length by default.
        """
        check_arguments(self, kwargs)
        check_source(encoder_hidden_states)
        if use_cache and cache is None:
            cache = self.create_cache()
        hidden_states, attention_mask = self.prepare_inputs(
            "decoder_input", input_ids, inputs_embeds, attention_mask, position_ids, cache
        )
        encoder_attention_mask = create_bidirectional_mask(
            self.config,
            hidden_states,
            encoder_attention_mask,
            encoder_hidden_states=encoder_hidden_states,
        )
        # They go by position, or checkpointing loses their gradients.
        source = encoder_hidden_states, encoder_attention_mask
        hidden_states = self.run_layers(
            hidden_states, attention_mask, *source, cache=cache, **kwargs
        )
        return BaseModelOutputWithPastAndCrossAttentions(hidden_states, cache)

    def create_cache(self) -> EncoderDecoderCache:
        """Create an empty cache for keys and values of target and source."""
        return EncoderDecoderCache(DynamicCache(), DynamicCache())


def shift_tokens_right(labels: Tensor, pad_token_id: int, decoder_start_token_id: int) -> Tensor:
    """Build the decoder input from labels `(B, T)`: the start symbol, then all but the last; -100
    becomes padding.
    """
    start = labels.new_full((labels.shape[0], 1), decoder_start_token_id)
    shifted = torch.cat([start, labels[:, :-1]], dim=1)  # (B, T)
    return shifted.masked_fill(shifted == -100, pad_token_id)


class VanillaTransformerModel(SourceVocabulary, VanillaTransformerPreTrainedModel):
    """Encoder and decoder, without the output projection."""

    encoder_class = VanillaTransformerEncoder
    decoder_class = VanillaTransformerDecoder
    _auto_class = "AutoModel"  # saved models carry their code

    def __init__(self, config: VanillaTransformerConfig):
        super().__init__(config)
        if config.share_encoder_decoder_embeddings:
            self._tied_weights_keys = {"decoder.embed_tokens.weight": "encoder.embed_tokens.weight"}
        self.encoder, self.decoder = self.encoder_class(config), self.decoder_class(config)
        self.post_init()

    @can_return_tuple
    @accept_past_key_values
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple[Tensor] | None = None,
        cache: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        decoder_position_ids: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqModelOutput:
        """Run the encoder, unless its outputs are given, and the decoder; see their `forward` for
        the arguments.
        """
        check_arguments(self, kwargs)  # type: ignore[arg-type]
        attention_mask = source_mask(self.config, input_ids, attention_mask)
        encoded: Any = encoder_outputs
        if encoded is None:
            encoded = self.encoder(input_ids, attention_mask, inputs_embeds, **kwargs)
        encoded = encoded if isinstance(encoded, BaseModelOutput) else BaseModelOutput(*encoded)
        decoded = self.decoder(
            decoder_input_ids,
            decoder_attention_mask,
            encoded.last_hidden_state,
            attention_mask,
            cache=cache,
            inputs_embeds=decoder_inputs_embeds,
            position_ids=decoder_position_ids,
            use_cache=use_cache,
            **kwargs,
        )
        return Seq2SeqModelOutput(
            decoded.last_hidden_state,
            decoded.get(CACHE),
            decoded.hidden_states,
            decoded.attentions,
            decoded.cross_attentions,
            encoded.last_hidden_state,
            encoded.hidden_states,
            encoded.attentions,
        )


class VanillaTransformerForConditionalGeneration(
    TargetVocabulary, PaperGenerationMixin, VanillaTransformerPreTrainedModel
):
    """The whole Transformer of figure 1: encoder, decoder, and the projection to the target
    vocabulary.
    """

    model_class = VanillaTransformerModel
    _auto_class = "AutoModelForSeq2SeqLM"
    _tp_plan = {"lm_head": "colwise_gather_output"}
    _pp_plan = {"lm_head": (["last_hidden_state"], ["logits"])}

    def __init__(self, config: VanillaTransformerConfig):
        super().__init__(config)
        shared = "encoder" if config.share_encoder_decoder_embeddings else "decoder"
        self._tied_weights_keys = {"lm_head.weight": f"model.{shared}.embed_tokens.weight"}
        # The library reads it from the name of the class.
        self.loss_type = "ForConditionalGeneration"
        self.model = self.model_class(config)
        embeddings = self.model.decoder.embed_tokens
        self.lm_head = nn.Linear(
            config.d_model, embeddings.num_embeddings, bias=config.lm_head_bias
        )
        special = config.pad_token_id, config.eos_token_id, config.decoder_start_token_id
        # Section 6.1; from_pretrained loads the saved one.
        self.generation_config = paper_generation_config(*special, bos_token_id=config.bos_token_id)
        self.post_init()

    @can_return_tuple
    @accept_past_key_values
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple[Tensor] | None = None,
        cache: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        decoder_position_ids: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqLMOutput:
        """
        Compute logits `(B, T, V)` and, given labels, the loss in nats per token.

        Args:
            labels: Target tokens `(B, T)` with EOS, -100 for no label: `labels[:, t]` is the target
                of `logits[:, t]`. Shifted right they are the decoder input, unless one is given.
            logits_to_keep: Compute only that many last logits, or these positions; 0 for all.
            num_items_in_batch (keyword): Target tokens of the whole step, which divide the sum of
                losses: accumulated batches weigh the same as one large batch. Without it the loss
                is the mean over tokens.
        """
        if labels is not None:
            use_cache = False
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        outputs: Seq2SeqModelOutput = self.model(
            input_ids,
            attention_mask,
            decoder_input_ids,
            decoder_attention_mask,
            encoder_outputs,
            cache,
            inputs_embeds,
            decoder_inputs_embeds,
            decoder_position_ids,
            use_cache,
            **kwargs,
        )
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(outputs.last_hidden_state[:, kept, :])  # (B, T, D) -> (B, T, V)
        loss = None
        if labels is not None:
            # `shift_labels` turns off the library's own shift by one.
            loss = self.loss_function(
                logits, labels, logits.shape[-1], shift_labels=labels.contiguous(), **kwargs
            )
        others = {name: value for name, value in outputs.items() if name != "last_hidden_state"}
        return Seq2SeqLMOutput(loss=loss, logits=logits, **others)

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """Shift labels `(B, T)` right; the library's label smoothing calls this."""
        return shift_tokens_right(
            labels, self.config.pad_token_id, self.config.decoder_start_token_id
        )


__all__ = [
    "VanillaTransformerForConditionalGeneration",
    "VanillaTransformerModel",
    "VanillaTransformerPreTrainedModel",
    "shift_tokens_right",
    "sinusoidal_positions",
]
