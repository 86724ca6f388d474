# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""
The Transformer of "Attention Is All You Need" (Vaswani et al., 2017), called "the paper" here.

Read it from top to bottom: positions (section 3.5), attention (3.2), the two layers (3.1), the two stacks, the model
and the model with its output projection (3.4).

Letters in shapes: B batch, S source length, T target length, L length of either, D d_model, H heads, K = D / H width
of a head, F feed-forward width, V target vocabulary.
"""

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from torch import nn
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
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, PreTrainedModel
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .configuration_vanilla_transformer import VanillaTransformerConfig
from .generation_vanilla_transformer import PaperGenerationMixin, source_mask
from .linear_vanilla_transformer import VanillaTransformerInt8Linear, VanillaTransformerLinear, quantize_linears

if TYPE_CHECKING:
    # Never run. The library copies beside the weights what is imported here, and what that imports.
    from .pipeline_vanilla_transformer import TranslationPipeline  # noqa: F401


# Pairs of positions up to which plain products take less time on a CPU than "sdpa".
_FEW_PAIRS = {torch.float32: 2**14, torch.bfloat16: 2**18}


def sinusoidal_positions(position_ids: torch.Tensor, d_model: int, layout: str = "interleaved") -> torch.Tensor:
    """
    Positional encodings of section 3.5.

        PE(pos, 2i)   = sin(pos / 10000^(2i / d_model))
        PE(pos, 2i+1) = cos(pos / 10000^(2i / d_model))

    Args:
        position_ids (`torch.LongTensor` of shape `(..., length)`): Positions, from 0 without an upper limit.
        d_model (`int`): Width of the encoding; even.
        layout (`str`): `"interleaved"` as above, or `"halves"`: all sines, then all cosines.

    Returns:
        `torch.FloatTensor` of shape `(..., length, d_model)`, in float32.
    """
    # Angles of far positions lose digits in float32; Apple's GPUs have no float64.
    precise = torch.float32 if position_ids.device.type == "mps" else torch.float64
    exponents = torch.arange(0, d_model, 2, device=position_ids.device, dtype=precise) / d_model
    angles = position_ids[..., None].to(precise) * torch.exp(-math.log(10000.0) * exponents)  # (..., L, D/2)
    sines, cosines = angles.sin().float(), angles.cos().float()
    if layout == "halves":
        return torch.cat([sines, cosines], dim=-1)
    return torch.stack([sines, cosines], dim=-1).flatten(-2)  # (..., L, D)


@lru_cache(maxsize=1024)
def _one_position(position: int, d_model: int, layout: str) -> torch.Tensor:
    return sinusoidal_positions(torch.tensor([[position]]), d_model, layout)


def shift_tokens_right(labels: torch.Tensor, pad_token_id: int, decoder_start_token_id: int) -> torch.Tensor:
    """
    The decoder's input for given labels: the start symbol, then all labels but the last (section 3.1).

    Args:
        labels (`torch.LongTensor` of shape `(batch_size, target_length)`): -100 marks positions without a label.

    Returns:
        `torch.LongTensor` of shape `(batch_size, target_length)`, with padding in place of -100.
    """
    start = labels.new_full((labels.shape[0], 1), decoder_start_token_id)
    shifted = torch.cat([start, labels[:, :-1]], dim=1)
    return shifted.masked_fill(shifted == -100, pad_token_id)


def _one_outside(ids: torch.Tensor, size: int, ignored: int | None = None) -> int | None:
    """One of the `ids` that is not in `[0, size)`. Looks only on the CPU, where looking costs no waiting."""
    if torch.compiler.is_compiling() or ids.device.type != "cpu" or ids.numel() == 0:
        return None
    if ignored is not None:
        ids = ids.masked_fill(ids == ignored, 0)
    lowest, highest = (int(bound) for bound in ids.aminmax())
    if lowest < 0:
        return lowest
    return highest if highest >= size else None


def check_ids(name: str, ids: torch.Tensor, vocab_size: int, ignored: int | None = None) -> None:
    """
    Refuses ids that no row of an embedding belongs to, on the CPU.

    Raises:
        ValueError: one of the `ids`, of any shape, is neither in `[0, vocab_size)` nor `ignored`.
    """
    wrong = _one_outside(ids, vocab_size, ignored)
    if wrong is not None:
        allowed = f"from 0 to {vocab_size - 1}" + (f" (or {ignored})" if ignored is not None else "")
        raise ValueError(
            f"`{name}` must be token ids {allowed}, got {wrong}. Does the tokenizer fit the model? "
            "`model.resize_token_embeddings(len(tokenizer))` makes room for new tokens."
        )


def count_positions(
    mask: torch.Tensor | None, length: int, past: int | torch.Tensor, device: torch.device
) -> torch.Tensor:
    """
    Positions of the last `length` tokens: `(B, L)` where a padding mask of shape `(B, past + L)` tells which tokens
    count, so that padding on the left shifts nothing; `(1, L)` otherwise.
    """
    if mask is None or mask.dim() != 2:
        return (torch.arange(length, device=device) + past).unsqueeze(0)
    return (mask.long().cumsum(dim=-1) - 1).clamp(min=0)[:, -length:]


class VanillaTransformerEmbedding(nn.Embedding):
    """Token embeddings times √d_model (section 3.4). Scaled here, so that `inputs_embeds` mean the same thing."""

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None, scale: float):
        super().__init__(num_embeddings, embedding_dim, padding_idx)
        self.embed_scale = scale  # by this name peft knows that its adapters have to be scaled as well

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return super().forward(input_ids) * self.embed_scale  # (B, L) -> (B, L, D)


class VanillaTransformerSinusoidalPositions(nn.Module):
    """
    Section 3.5, computed for the positions asked for. There is no table, hence no longest sequence, and nothing that
    loading or moving the model could spoil.
    """

    def __init__(self, config: VanillaTransformerConfig):
        super().__init__()
        self.d_model = config.d_model
        self.layout = config.sinusoid_layout

    def forward(self, position_ids: torch.Tensor) -> torch.Tensor:
        if position_ids.device.type != "cpu" or torch.compiler.is_compiling():
            return sinusoidal_positions(position_ids, self.d_model, self.layout)  # (B, L) or (1, L) -> (…, L, D)
        if position_ids.shape == (1, 1):
            return _one_position(int(position_ids), self.d_model, self.layout)  # where generation is
        # Each position of a batch once: sines take time on a CPU.
        positions, places = position_ids.unique(return_inverse=True)
        return nn.functional.embedding(places, sinusoidal_positions(positions, self.d_model, self.layout))


class VanillaTransformerLearnedPositions(nn.Embedding):
    """Table 3, row E: learned instead of sinusoidal positions, which end at `max_position_embeddings`."""

    def __init__(self, config: VanillaTransformerConfig):
        super().__init__(config.max_position_embeddings, config.d_model)

    def forward(self, position_ids: torch.Tensor) -> torch.Tensor:
        wrong = _one_outside(position_ids, self.num_embeddings)
        if wrong is not None:
            raise ValueError(
                f"Learned positions go from 0 to {self.num_embeddings - 1}, got {wrong}: the sequence is longer than "
                f"`max_position_embeddings`={self.num_embeddings}."
            )
        return super().forward(position_ids)


def _position_embeddings(config: VanillaTransformerConfig) -> nn.Module:
    if config.position_embedding_type == "learned":
        return VanillaTransformerLearnedPositions(config)
    return VanillaTransformerSinusoidalPositions(config)


class VanillaTransformerDropout(nn.Dropout):
    """
    Section 5.4. On a CPU, where random numbers are drawn one after the other, 16 bits decide about each feature in
    place of a float of its own. The probability is rounded to a multiple of 2⁻¹⁶, and what is kept scaled by that.
    """

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        if not (self.training and self.p):
            return hidden_states
        if hidden_states.device.type != "cpu" or torch.compiler.is_compiling():
            return super().forward(hidden_states)
        dropped = min(round(self.p * 2**16), 2**16 - 1)
        draws = torch.empty(-(-hidden_states.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        kept = draws.view(torch.int16)[: hidden_states.numel()].view(hidden_states.shape) >= dropped - 2**15
        return hidden_states * kept.to(hidden_states.dtype).mul_(2**16 / (2**16 - dropped))


def eager_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs: Unpack[TransformersKwargs],
) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Scaled dot-product attention, equation 1: `softmax(Q Kᵀ / √d_k) V`.

    `query` is `(B, H, T, K)`, `key` and `value` are `(B, H, S, K)`, the additive `attention_mask` broadcasts to
    `(B, H, T, S)` and is a large negative number where a position must not be seen. Returns `(B, T, H, K)` and the
    probabilities `(B, H, T, S)`.
    """
    scores = (query * scaling) @ key.transpose(2, 3)  # (B, H, T, S)
    if attention_mask is not None:
        scores = scores + attention_mask
    probabilities = nn.functional.softmax(scores, dim=-1)
    if dropout:
        probabilities = nn.functional.dropout(probabilities, p=dropout, training=module.training)
    return (probabilities @ value).transpose(1, 2).contiguous(), probabilities


def plain_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    is_causal: bool,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """
    [`eager_attention_forward`] in the place of "sdpa", whose mask is True where a position may be seen, and which is
    told what is causal where there is none.
    """
    lowest = torch.finfo(query.dtype).min
    if attention_mask is None and is_causal and query.shape[2] > 1:
        attention_mask = query.new_full((query.shape[2], key.shape[2]), lowest).triu_(1)
    elif attention_mask is not None and attention_mask.dtype == torch.bool:
        attention_mask = query.new_zeros(attention_mask.shape).masked_fill_(~attention_mask, lowest)
    return eager_attention_forward(module, query, key, value, attention_mask, **kwargs)[0], None


def _are_few(query: torch.Tensor, key: torch.Tensor) -> bool:
    """Whether plain products of `(B, H, T, K)` and `(B, H, S, K)` take less time than "sdpa"."""
    if query.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    if query.dtype == torch.float32 and query.requires_grad:
        return False  # "sdpa" learns faster in float32, at any length
    return query.shape[2] * key.shape[2] <= _FEW_PAIRS.get(query.dtype, 0)


class VanillaTransformerAttention(nn.Module):
    """
    Multi-head attention, section 3.2.2: `Concat(head_1, …, head_h) W^O`, each head attending in its own projection.

    Attends to `key_value_states` (encoder-decoder attention) where given, else to `hidden_states` (self-attention).
    """

    def __init__(self, config: VanillaTransformerConfig, num_heads: int, layer_idx: int, is_causal: bool = False):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.is_causal = is_causal
        self.head_dim = config.d_model // num_heads
        self.scaling = self.head_dim**-0.5
        self.dropout = config.attention_dropout
        self.q_proj = VanillaTransformerLinear(config.d_model, config.d_model, bias=config.attention_bias)
        self.k_proj = VanillaTransformerLinear(config.d_model, config.d_model, bias=config.attention_bias)
        self.v_proj = VanillaTransformerLinear(config.d_model, config.d_model, bias=config.attention_bias)
        self.out_proj = VanillaTransformerLinear(config.d_model, config.d_model, bias=config.attention_bias)
        self.joined_proj: Callable[[torch.Tensor], torch.Tensor] | None = None  # see `joined_linears`

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        key_value_states: torch.Tensor | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Maps `(B, T, D)` to `(B, T, D)`; the second value is the probabilities where the implementation has them."""
        query, key, value = self._queries_keys_values(hidden_states, key_value_states, past_key_values)
        implementation = self.config._attn_implementation
        attend: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(implementation, eager_attention_forward)
        if implementation == "sdpa" and _are_few(query, key):
            attend = partial(plain_attention_forward, is_causal=self.is_causal)
        output, probabilities = attend(
            self,
            query,
            key,
            value,
            attention_mask,
            scaling=self.scaling,
            dropout=self.dropout if self.training else 0.0,
            **kwargs,
        )
        output = output.reshape(*hidden_states.shape[:-1], -1).contiguous()  # (B, T, H, K) -> (B, T, D)
        return self.out_proj(output), probabilities

    def _split_heads(self, states: torch.Tensor) -> torch.Tensor:
        return states.view(*states.shape[:-1], -1, self.head_dim).transpose(1, 2)  # (B, L, D) -> (B, H, L, K)

    def _queries_keys_values(
        self,
        hidden_states: torch.Tensor,
        key_value_states: torch.Tensor | None,
        past_key_values: EncoderDecoderCache | None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries `(B, H, T, K)`, keys and values `(B, H, S, K)`; those of the source once for a whole generation."""
        if key_value_states is None:
            query, key, value = self._project(hidden_states)
            if past_key_values is not None:
                cache = getattr(past_key_values, "self_attention_cache", past_key_values)
                key, value = cache.update(key, value, self.layer_idx)
            return query, key, value
        query = self._split_heads(self.q_proj(hidden_states))
        if past_key_values is None:
            return query, *self._project_source(key_value_states)
        cache = past_key_values.cross_attention_cache
        if not past_key_values.is_updated.get(self.layer_idx):
            past_key_values.is_updated[self.layer_idx] = True
            return query, *cache.update(*self._project_source(key_value_states), self.layer_idx)
        return query, cache.layers[self.layer_idx].keys, cache.layers[self.layer_idx].values

    def _project(self, states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Queries, keys and values of the same states."""
        if self.joined_proj is not None:
            parts = self.joined_proj(states).chunk(3, dim=-1)
        else:
            parts = (self.q_proj(states), self.k_proj(states), self.v_proj(states))
        return tuple(self._split_heads(part) for part in parts)

    def _project_source(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self._split_heads(self.k_proj(states)), self._split_heads(self.v_proj(states))


class VanillaTransformerLayer(GradientCheckpointingLayer):
    """
    What encoder and decoder layers share: residual connections with normalisation, and the feed-forward sub-layer.

    Sub-layers are combined as section 3.1 says, `LayerNorm(x + Dropout(Sublayer(x)))`.
    Differs from the paper: with `normalize_before`, `x + Dropout(Sublayer(LayerNorm(x)))`.
    """

    def __init__(self, config: VanillaTransformerConfig, ffn_dim: int):
        super().__init__()
        self.normalize_before = config.normalize_before
        self.dropout = VanillaTransformerDropout(config.dropout)
        self.activation_dropout = VanillaTransformerDropout(config.activation_dropout)
        self.activation_fn = ACT2FN[config.activation_function]
        self.fc1 = VanillaTransformerLinear(config.d_model, ffn_dim)
        self.fc2 = VanillaTransformerLinear(ffn_dim, config.d_model)
        self.final_layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)

    def add_and_norm(self, hidden_states: torch.Tensor, norm: nn.LayerNorm, sublayer: Callable) -> torch.Tensor:
        """Residual connection around `sublayer` and normalisation, `(B, L, D)` to `(B, L, D)`."""
        if self.normalize_before:
            return hidden_states + self.dropout(sublayer(norm(hidden_states)))
        return norm(hidden_states + self.dropout(sublayer(hidden_states)))

    def feed_forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Equation 2: `max(0, x W_1 + b_1) W_2 + b_2`."""
        inner = self.activation_fn(self.fc1(hidden_states))  # (B, L, D) -> (B, L, F)
        return self.fc2(self.activation_dropout(inner))  # (B, L, F) -> (B, L, D)


class VanillaTransformerEncoderLayer(VanillaTransformerLayer):
    """Self-attention, then feed-forward (section 3.1, figure 1 left)."""

    def __init__(self, config: VanillaTransformerConfig, layer_idx: int):
        super().__init__(config, config.encoder_ffn_dim)
        self.self_attn = VanillaTransformerAttention(config, config.encoder_attention_heads, layer_idx)
        self.self_attn_layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        def attend_to_source(states: torch.Tensor) -> torch.Tensor:
            return self.self_attn(states, attention_mask, **kwargs)[0]

        hidden_states = self.add_and_norm(hidden_states, self.self_attn_layer_norm, attend_to_source)
        return self.add_and_norm(hidden_states, self.final_layer_norm, self.feed_forward)


class VanillaTransformerDecoderLayer(VanillaTransformerLayer):
    """Masked self-attention, attention to the encoder's output, then feed-forward (section 3.1, figure 1 right)."""

    def __init__(self, config: VanillaTransformerConfig, layer_idx: int):
        super().__init__(config, config.decoder_ffn_dim)
        heads = config.decoder_attention_heads
        self.self_attn = VanillaTransformerAttention(config, heads, layer_idx, is_causal=True)
        self.self_attn_layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)
        self.encoder_attn = VanillaTransformerAttention(config, heads, layer_idx)
        self.encoder_attn_layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        encoder_hidden_states: torch.Tensor,
        encoder_attention_mask: torch.Tensor | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        def attend_to_target(states: torch.Tensor) -> torch.Tensor:
            return self.self_attn(states, attention_mask, past_key_values=past_key_values, **kwargs)[0]

        def attend_to_source(states: torch.Tensor) -> torch.Tensor:
            return self.encoder_attn(
                states, encoder_attention_mask, encoder_hidden_states, past_key_values=past_key_values, **kwargs
            )[0]

        hidden_states = self.add_and_norm(hidden_states, self.self_attn_layer_norm, attend_to_target)
        hidden_states = self.add_and_norm(hidden_states, self.encoder_attn_layer_norm, attend_to_source)
        return self.add_and_norm(hidden_states, self.final_layer_norm, self.feed_forward)


class VanillaTransformerPreTrainedModel(PreTrainedModel):
    """Initialisation and what the library may do with these models."""

    config_class = VanillaTransformerConfig
    config: VanillaTransformerConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["VanillaTransformerEncoderLayer", "VanillaTransformerDecoderLayer"]
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_compile_fullgraph = True

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:
        """
        Loads a model as the library does. With `dtype="int8"` its matrix products are in 8 bits, for translating on a
        CPU (see [`VanillaTransformerInt8Linear`]).

        Raises:
            OSError: there are no weights, or a file of them is cut off or damaged.
        """
        in_8_bits = any(kwargs.get(name) in ("int8", torch.int8) for name in ("dtype", "torch_dtype"))
        if in_8_bits:
            kwargs = {name: value for name, value in kwargs.items() if name != "torch_dtype"} | {
                "dtype": torch.float32
            }
        try:
            model = super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        except SafetensorError as error:
            raise OSError(
                f"The weights of {pretrained_model_name_or_path} are cut off or damaged ({error}). Copy or download "
                "the safetensors files again."
            ) from error
        return quantize_linears(model) if in_8_bits else model

    def save_pretrained(self, save_directory: Any, *args: Any, **kwargs: Any) -> None:
        """
        Saves a model as the library does.

        Raises:
            ValueError: the model is in 8 bits; the one that it was loaded from is to be kept.
        """
        if any(isinstance(module, VanillaTransformerInt8Linear) for module in self.modules()):
            raise ValueError(
                f"A model in 8 bits is not saved, but made on loading. Keep the one that it was loaded from, "
                f"{self.name_or_path or 'whose weights are floats'}."
            )
        super().save_pretrained(save_directory, *args, **kwargs)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Glorot-uniform projections and `N(0, 1/d_model)` embeddings, or `N(0, init_std²)` for both if it is set."""
        std = self.config.init_std
        if isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight) if std is None else init.normal_(module.weight, std=std)
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            init.normal_(module.weight, std=self.config.d_model**-0.5 if std is None else std)
            if module.padding_idx is not None and not getattr(module.weight, "_is_hf_initialized", False):
                init.zeros_(module.weight[module.padding_idx])
        elif isinstance(module, nn.LayerNorm):
            init.ones_(module.weight)
            init.zeros_(module.bias)

    def _resize_token_embeddings(
        self, new_num_tokens: int, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        """Resizes what a source token has a row in, which is more than the library sees in two of three layouts."""
        encoder, decoder = self.base_model.encoder, self.base_model.decoder
        if not self.config.share_encoder_decoder_embeddings:  # the output projection belongs to the target alone
            return self._get_resized_embeddings(
                encoder.embed_tokens, new_num_tokens, pad_to_multiple_of, mean_resizing
            )
        embeddings = super()._resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        if not self.config.tie_word_embeddings:
            self._get_resized_embeddings(decoder.embed_tokens, embeddings.num_embeddings, None, mean_resizing)
        self.config.decoder_vocab_size = embeddings.num_embeddings
        return embeddings


class VanillaTransformerStack(VanillaTransformerPreTrainedModel):
    """What encoder and decoder share: embeddings, positions, dropout on their sum, pre-norm's last normalisation."""

    create_mask = staticmethod(create_bidirectional_mask)  # who sees whom

    def __init__(self, config: VanillaTransformerConfig, vocab_size: int):
        super().__init__(config)
        scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0
        self.embed_tokens: nn.Embedding = VanillaTransformerEmbedding(
            vocab_size, config.d_model, config.pad_token_id, scale
        )
        self.embed_positions = _position_embeddings(config)
        self.dropout = VanillaTransformerDropout(config.dropout)
        self.layer_norm = nn.LayerNorm(config.d_model, config.layer_norm_eps) if config.normalize_before else None
        self.gradient_checkpointing = False

    def init_parallel_plans(self) -> None:
        """Leaves this stack without plans of its own: those of the configuration name modules of the whole model."""
        for plan in ("_tp_plan", "_ep_plan", "_pp_plan", "_fsdp_plan"):
            setattr(self, plan, {})

    def embed(self, name: str, input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None) -> torch.Tensor:
        """Scaled embeddings of `input_ids`, or `inputs_embeds` as they are: `(B, L, D)`."""
        if input_ids is None and inputs_embeds is not None:
            return inputs_embeds
        if input_ids is None or inputs_embeds is not None:
            given = "neither" if input_ids is None else "both"
            raise ValueError(f"Give exactly one of `{name}_ids` and `{name}s_embeds`, got {given}.")
        check_ids(f"{name}_ids", input_ids, self.embed_tokens.weight.shape[0])
        return self.embed_tokens(input_ids)

    def add_positions(self, inputs_embeds: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
        """Section 3.5 (the sum) and 5.4 (dropout on it)."""
        return self.dropout(inputs_embeds + self.embed_positions(position_ids).to(inputs_embeds.dtype))

    def enter(
        self,
        name: str,
        input_ids: torch.Tensor | None,
        inputs_embeds: torch.Tensor | None,
        attention_mask: torch.Tensor | None,
        position_ids: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """What the first layer gets: embedded tokens with positions `(B, L, D)`, and who sees whom."""
        inputs_embeds = self.embed(name, input_ids, inputs_embeds)
        if position_ids is None:
            past = past_key_values.get_seq_length() if past_key_values is not None else 0
            position_ids = count_positions(attention_mask, inputs_embeds.shape[1], past, inputs_embeds.device)
        attention_mask = self.create_mask(
            config=self.config,
            inputs_embeds=inputs_embeds,
            attention_mask=attention_mask,
            past_key_values=getattr(past_key_values, "self_attention_cache", past_key_values),
        )
        return self.add_positions(inputs_embeds, position_ids), attention_mask

    def final_norm(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return hidden_states if self.layer_norm is None else self.layer_norm(hidden_states)


class VanillaTransformerEncoder(VanillaTransformerStack):
    """N encoder layers over embedded source tokens."""

    layer_class = VanillaTransformerEncoderLayer
    _can_record_outputs = {
        "hidden_states": VanillaTransformerEncoderLayer,
        "attentions": VanillaTransformerAttention,
    }

    def __init__(self, config: VanillaTransformerConfig):
        super().__init__(config, config.vocab_size)
        self.layers = nn.ModuleList(self.layer_class(config, layer_idx) for layer_idx in range(config.encoder_layers))
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutput:
        """
        Args:
            input_ids (`torch.LongTensor` of shape `(batch_size, source_length)`): Source tokens with EOS.
            attention_mask (`torch.Tensor` of shape `(batch_size, source_length)`):
                1 for tokens, 0 for padding. Derived from `input_ids` where it is not given.
            inputs_embeds (`torch.FloatTensor` of shape `(batch_size, source_length, d_model)`):
                Continuous inputs in place of `input_ids`. They are not scaled by √d_model.
        """
        attention_mask = source_mask(self.config, input_ids, attention_mask)
        hidden_states, attention_mask = self.enter("input", input_ids, inputs_embeds, attention_mask)
        return BaseModelOutput(last_hidden_state=self.run_layers(hidden_states, attention_mask, **kwargs))

    def run_layers(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        """All layers over embedded tokens with positions, `(B, S, D)`, with a mask as the attention takes it."""
        for layer in self.layers:
            hidden_states = layer(hidden_states, attention_mask, **kwargs)
        return self.final_norm(hidden_states)


class VanillaTransformerDecoder(VanillaTransformerStack):
    """N decoder layers over embedded target tokens, each attending to the encoder's output."""

    create_mask = staticmethod(create_causal_mask)
    layer_class = VanillaTransformerDecoderLayer
    _can_record_outputs = {
        "hidden_states": VanillaTransformerDecoderLayer,
        "attentions": OutputRecorder(VanillaTransformerAttention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(VanillaTransformerAttention, index=1, layer_name="encoder_attn"),
    }

    def __init__(self, config: VanillaTransformerConfig):
        super().__init__(config, config.decoder_vocab_size or config.vocab_size)
        self.layers = nn.ModuleList(self.layer_class(config, layer_idx) for layer_idx in range(config.decoder_layers))
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """
        Args:
            input_ids (`torch.LongTensor` of shape `(batch_size, target_length)`):
                Target tokens shifted right; with a cache, only those that it has not seen.
            attention_mask (`torch.Tensor` of shape `(batch_size, past_length + target_length)`):
                1 for tokens, 0 for padding. Padding on the right needs none, since no earlier position sees it.
            encoder_hidden_states (`torch.FloatTensor` of shape `(batch_size, source_length, d_model)`):
                The encoder's output.
            encoder_attention_mask (`torch.Tensor` of shape `(batch_size, source_length)`):
                1 for tokens, 0 for padding.
            past_key_values (`EncoderDecoderCache`): Keys and values of earlier steps. Changed in place.
            inputs_embeds (`torch.FloatTensor` of shape `(batch_size, target_length, d_model)`):
                Continuous inputs in place of `input_ids`. They are not scaled by √d_model.
            position_ids (`torch.LongTensor` of shape `(batch_size, target_length)`):
                By default counted from the attention mask, or from the cache's length.
        """
        if encoder_hidden_states is None:
            raise ValueError(
                "`encoder_hidden_states` must be given: every decoder layer attends to the encoder's output."
            )
        if use_cache and past_key_values is None:
            past_key_values = self.new_cache()
        hidden_states, attention_mask = self.enter(
            "decoder_input", input_ids, inputs_embeds, attention_mask, position_ids, past_key_values
        )
        encoder_attention_mask = create_bidirectional_mask(
            config=self.config,
            inputs_embeds=hidden_states,
            attention_mask=encoder_attention_mask,
            encoder_hidden_states=encoder_hidden_states,
        )
        hidden_states = self.run_layers(
            hidden_states, attention_mask, encoder_hidden_states, encoder_attention_mask, past_key_values, **kwargs
        )
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=hidden_states, past_key_values=past_key_values
        )

    def new_cache(self) -> EncoderDecoderCache:
        """An empty cache, of the target's keys and values and of the source's."""
        return EncoderDecoderCache(DynamicCache(), DynamicCache())

    def run_layers(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        encoder_hidden_states: torch.Tensor,
        encoder_attention_mask: torch.Tensor | None,
        past_key_values: EncoderDecoderCache | None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        """All layers over embedded tokens with positions, `(B, T, D)`, with masks as the attention takes them."""
        for layer in self.layers:
            hidden_states = layer(
                hidden_states,
                attention_mask,
                encoder_hidden_states,  # by position: gradient checkpointing keeps gradients of positional inputs only
                encoder_attention_mask,
                past_key_values=past_key_values,
                **kwargs,
            )
        return self.final_norm(hidden_states)


class VanillaTransformerModel(VanillaTransformerPreTrainedModel):
    """Encoder and decoder, without the output projection."""

    encoder_class = VanillaTransformerEncoder
    decoder_class = VanillaTransformerDecoder
    _auto_class = "AutoModel"  # saved models bring their code along

    def __init__(self, config: VanillaTransformerConfig):
        super().__init__(config)
        if config.share_encoder_decoder_embeddings:
            self._tied_weights_keys = {"decoder.embed_tokens.weight": "encoder.embed_tokens.weight"}
        self.encoder = self.encoder_class(config)
        self.decoder = self.decoder_class(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.encoder.embed_tokens = value
        if self.config.share_encoder_decoder_embeddings and self.config.tie_word_embeddings:
            self.decoder.embed_tokens = value

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple[torch.Tensor] | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        decoder_position_ids: torch.Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqModelOutput:
        """
        Runs the encoder, unless its outputs are given, and the decoder over its output.

        Args:
            input_ids (`torch.LongTensor` of shape `(batch_size, source_length)`): Source tokens with EOS.
            attention_mask (`torch.Tensor` of shape `(batch_size, source_length)`):
                1 for source tokens, 0 for padding. Derived from `input_ids` where it is not given.
            decoder_input_ids (`torch.LongTensor` of shape `(batch_size, target_length)`): Target tokens shifted right.
            decoder_attention_mask (`torch.Tensor` of shape `(batch_size, target_length)`):
                1 for target tokens, 0 for padding; needed only for padding on the left.
            encoder_outputs (`BaseModelOutput` or `tuple`): The encoder's outputs, if they are known already.
            past_key_values, decoder_position_ids: See [`VanillaTransformerDecoder.forward`].
            inputs_embeds, decoder_inputs_embeds: Continuous inputs in place of ids, `(batch_size, length, d_model)`.

        Raises:
            ValueError: ids outside the vocabulary, or both or neither of ids and embeddings on one side.
        """
        attention_mask = source_mask(self.config, input_ids, attention_mask)
        encoded: BaseModelOutput = encoder_outputs
        if encoder_outputs is None:
            encoded = self.encoder(
                input_ids=input_ids, attention_mask=attention_mask, inputs_embeds=inputs_embeds, **kwargs
            )
        elif not isinstance(encoder_outputs, BaseModelOutput):
            encoded = BaseModelOutput(*encoder_outputs)
        decoder_outputs = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_hidden_states=encoded.last_hidden_state,
            encoder_attention_mask=attention_mask,
            past_key_values=past_key_values,
            inputs_embeds=decoder_inputs_embeds,
            position_ids=decoder_position_ids,
            use_cache=use_cache,
            **kwargs,
        )
        return Seq2SeqModelOutput(
            last_hidden_state=decoder_outputs.last_hidden_state,
            past_key_values=decoder_outputs.past_key_values,
            decoder_hidden_states=decoder_outputs.hidden_states,
            decoder_attentions=decoder_outputs.attentions,
            cross_attentions=decoder_outputs.cross_attentions,
            encoder_last_hidden_state=encoded.last_hidden_state,
            encoder_hidden_states=encoded.hidden_states,
            encoder_attentions=encoded.attentions,
        )


class VanillaTransformerForConditionalGeneration(PaperGenerationMixin, VanillaTransformerPreTrainedModel):
    """The whole Transformer of figure 1: encoder, decoder, and the projection to the vocabulary."""

    model_class = VanillaTransformerModel
    _auto_class = "AutoModelForSeq2SeqLM"

    _tp_plan = {"lm_head": "colwise_gather_output"}
    _pp_plan = {"lm_head": (["last_hidden_state"], ["logits"])}

    def __init__(self, config: VanillaTransformerConfig):
        super().__init__(config)
        shared = "encoder" if config.share_encoder_decoder_embeddings else "decoder"
        self._tied_weights_keys = {"lm_head.weight": f"model.{shared}.embed_tokens.weight"}
        self.model = self.model_class(config)
        target_vocab_size = self.model.decoder.embed_tokens.num_embeddings
        self.lm_head = VanillaTransformerLinear(config.d_model, target_vocab_size, bias=config.lm_head_bias)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple[torch.Tensor] | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        decoder_inputs_embeds: torch.Tensor | None = None,
        decoder_position_ids: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqLMOutput:
        """
        Takes what [`VanillaTransformerModel.forward`] takes, and:

        Args:
            labels (`torch.LongTensor` of shape `(batch_size, target_length)`):
                Target tokens with EOS, -100 where there is none. They are not shifted: `labels[:, t]` is what
                `logits[:, t]` should be. Where no decoder input is given it is `labels` shifted right.
            logits_to_keep (`int` or `torch.Tensor`):
                Compute only that many last logits (or those positions); 0 for all.
            num_items_in_batch (`int` or `torch.Tensor`, among the keyword arguments):
                Target tokens of the whole step. The loss is then the sum over tokens divided by it, which makes
                accumulated batches weigh the same as one large batch. Without it the loss is the mean over tokens.

        Returns:
            `Seq2SeqLMOutput` with `logits` of shape `(batch_size, target_length, decoder_vocab_size)` and, where
            labels are given, `loss` in nats a token.

        Raises:
            ValueError: ids or labels outside the vocabulary, or both or neither of ids and embeddings on one side.
        """
        if labels is not None:
            check_ids("labels", labels, self.lm_head.out_features, ignored=-100)
            use_cache = False
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        outputs: Seq2SeqModelOutput = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            decoder_inputs_embeds=decoder_inputs_embeds,
            decoder_position_ids=decoder_position_ids,
            use_cache=use_cache,
            **kwargs,
        )
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(outputs.last_hidden_state[:, kept, :])  # (B, T, D) -> (B, T, V)
        loss = None
        if labels is not None:
            # Labels stand where their logits do, so the library's shift by one is switched off with `shift_labels`.
            loss = self.loss_function(logits, labels, logits.shape[-1], shift_labels=labels.contiguous(), **kwargs)
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            decoder_hidden_states=outputs.decoder_hidden_states,
            decoder_attentions=outputs.decoder_attentions,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=outputs.encoder_last_hidden_state,
            encoder_hidden_states=outputs.encoder_hidden_states,
            encoder_attentions=outputs.encoder_attentions,
        )

    def prepare_inputs_for_generation(
        self,
        input_ids: torch.Tensor,
        *args: Any,
        decoder_attention_mask: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Counts positions while the mask of a padded prompt is still there: static caches turn it into a 4D mask."""
        if decoder_attention_mask is not None and kwargs.get("decoder_position_ids") is None:
            length = decoder_attention_mask.shape[-1]
            kwargs["decoder_position_ids"] = count_positions(decoder_attention_mask, length, 0, input_ids.device)
        return super().prepare_inputs_for_generation(
            input_ids, *args, decoder_attention_mask=decoder_attention_mask, **kwargs
        )

    def prepare_decoder_input_ids_from_labels(self, labels: torch.Tensor) -> torch.Tensor:
        """
        The decoder's input for `labels` of shape `(batch_size, target_length)`; the library's label smoothing uses it.

        Raises:
            ValueError: the configuration has no `pad_token_id` or no `decoder_start_token_id`.
        """
        pad, start = self.config.pad_token_id, self.config.decoder_start_token_id
        if pad is None or start is None:
            raise ValueError(
                "`config.pad_token_id` and `config.decoder_start_token_id` must be set to shift labels right, "
                f"got {pad} and {start}."
            )
        return shift_tokens_right(labels, pad, start)

    def resize_decoder_token_embeddings(self, new_num_tokens: int) -> nn.Embedding:
        """
        Gives a separate target vocabulary `new_num_tokens` entries: decoder embedding, output projection and
        `config.decoder_vocab_size`. Kept rows keep their values, new ones are drawn around the mean of the old ones.

        Raises:
            ValueError: source and target share their embeddings; `resize_token_embeddings` is the method then.
        """
        if self.config.share_encoder_decoder_embeddings:
            raise ValueError(
                "`resize_decoder_token_embeddings` is for separate vocabularies, but this model shares its "
                "embeddings. Call `resize_token_embeddings` instead."
            )
        decoder = self.model.decoder
        decoder.embed_tokens = self._get_resized_embeddings(decoder.embed_tokens, new_num_tokens)
        self.lm_head = self._get_resized_lm_head(self.lm_head, new_num_tokens)
        self.config.decoder_vocab_size = new_num_tokens
        self.tie_weights()
        return decoder.embed_tokens


__all__ = [
    "VanillaTransformerForConditionalGeneration",
    "VanillaTransformerModel",
    "VanillaTransformerPreTrainedModel",
    "shift_tokens_right",
    "sinusoidal_positions",
]
