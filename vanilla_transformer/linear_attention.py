# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""
Linear attention of "Transformers are RNNs" (Katharopoulos et al., 2020), called "the paper" below.

The paper replaces `exp(qᵀk)` in softmax by `φ(q)ᵀ φ(k)` with the feature map `φ(x) = elu(x) + 1`.
The sums over keys then do not depend on the query:

    out_i = φ(q_i)ᵀ Σ_j φ(k_j) v_jᵀ / φ(q_i)ᵀ Σ_j φ(k_j)

Letters in shapes: B batch, T queries, S keys, H heads, K head width, C positions per chunk, N
chunks.
"""

from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache, DynamicLayer
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface

from .errors import UserError
from .modeling_vanilla_transformer import VanillaTransformerAttention

_CHUNK_SIZE = 64


def feature_map(states: torch.Tensor) -> torch.Tensor:
    """Compute the feature map `φ(x) = elu(x) + 1 > 0` (equation 7) elementwise."""
    return nn.functional.elu(states) + 1.0


def causal_sums(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    before: torch.Tensor,
    chunk_size: int = _CHUNK_SIZE,
) -> torch.Tensor:
    """
    Compute `out_i = q_iᵀ (before + Σ_{j ≤ i} k_j v_jᵀ)`, the prefix sums of equations 9 to 11, in
    time linear in T.

    The cumulative sum of earlier chunks is added to the products of all pairs of positions within a
    chunk.

    Args:
        query, key: Features, `(B, H, T, K)`.
        value: Values of any width W, `(B, H, T, W)`.
        before: The sum of `k_j v_jᵀ` over earlier positions, `(B, H, K, W)`.
        chunk_size: Positions per chunk; T need not be a multiple.
    """
    length = query.shape[2]
    padding = (0, 0, 0, -length % chunk_size)  # zeros add nothing to sums
    query, key, value = (
        nn.functional.pad(states, padding).unflatten(2, (-1, chunk_size))
        for states in (query, key, value)
    )  # (B, H, N, C, ·)
    totals = (key.transpose(-1, -2) @ value).cumsum(dim=2)  # (B, H, N, K, W)
    earlier = torch.cat([before.unsqueeze(2), before.unsqueeze(2) + totals[:, :, :-1]], dim=2)
    within = (query @ key.transpose(-1, -2)).tril()  # (B, H, N, C, C)
    return (query @ earlier + within @ value).flatten(2, 3)[:, :, :length]


def linear_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    is_causal: bool | None = None,
    cache: Cache | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """
    Compute linear attention; transformers knows this function as `attn_implementation="linear"`.

    Sums are computed in float32 or higher precision. There are no attention probabilities.

    Args:
        query: `(B, H, T, K)`. In causal attention the last query is at the position of the last
            key.
        key, value: `(B, H, S, K)`.
        attention_mask: Padding mask `(B, ≥ S)`, 1 for tokens and 0 for padding; only its last S
            columns are used.
        is_causal: Whether to mask later positions; by default `module.is_causal`.
        cache: Layers of [`LinearAttentionCacheLayer`] with the sums over earlier keys, to which
            this call adds.
    """
    dtype = torch.promote_types(query.dtype, torch.float32)
    with torch.autocast(query.device.type, enabled=False):
        features = feature_map(query.to(dtype))
        key_features = feature_map(key.to(dtype)) * key_padding(attention_mask, key).to(dtype)
        # A column of ones sums to the denominator.
        ones = nn.functional.pad(value.to(dtype), (0, 1), value=1.0)
        if module.is_causal if is_causal is None else is_causal:
            summed = _causal(features, key_features, ones, cache, module)
        else:
            summed = features @ (key_features.transpose(-1, -2) @ ones)  # equation 6
        # The sum is 0 if all keys are padding.
        denominator = summed[..., -1:].clamp(min=torch.finfo(dtype).tiny)
        return (summed[..., :-1] / denominator).transpose(1, 2).to(query.dtype), None


def _causal(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cache: Cache | None,
    module: nn.Module,
) -> torch.Tensor:
    """Return causal sums `(B, H, T, K + 1)`, which include the keys before the first query and the
    sums in `cache`.
    """
    length = query.shape[2]
    early, key = key.split([key.shape[2] - length, length], dim=2)
    early_value, value = value.split([value.shape[2] - length, length], dim=2)
    before = early.transpose(-1, -2) @ early_value  # (B, H, K, K + 1)
    if cache is not None:
        total = key.transpose(-1, -2) @ value
        denominator, numerator = cache.update(
            total[..., -1], total[..., :-1], module.layer_idx, length
        )
        before = before + torch.cat([numerator, denominator.unsqueeze(-1)], dim=-1)
    return causal_sums(query, key, value, before, min(_CHUNK_SIZE, length))


def key_padding(attention_mask: torch.Tensor | None, key: torch.Tensor) -> torch.Tensor:
    """Return the mask `(B, 1, S, 1)` of the keys `(B, H, S, K)`, True for tokens; all ones without
    a mask.
    """
    if attention_mask is None:
        return key.new_ones((1, 1, 1, 1), dtype=torch.bool)
    if attention_mask.dim() != 2:
        raise UserError(
            "Linear and LSH attention take a padding mask of shape `(batch_size, length)`, got the "
            f"shape {tuple(attention_mask.shape)}."
        )
    return attention_mask[:, -key.shape[2] :].bool()[:, None, :, None]


def padding_mask(attention_mask: torch.Tensor | None = None, **kwargs: Any) -> torch.Tensor | None:
    """Return the padding mask `(B, S)` unchanged, as linear attention needs it."""
    return attention_mask


class LinearAttentionCacheLayer(DynamicLayer):
    """
    Cache of one layer of linear attention, whose size does not depend on the number of tokens.

    `keys` `(B, H, K)` is the sum of φ(k), and `values` `(B, H, K, K)` is the sum of φ(k) vᵀ. Unlike
    transformers' own cache layer for linear attention, this layer counts tokens.
    """

    is_croppable = False

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.cumulative_length = 0

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        length: int,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add the sums over `length` new positions, and return the sums over earlier positions."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = torch.zeros_like(key_states), torch.zeros_like(value_states)
        before = self.keys, self.values
        self.keys, self.values = self.keys + key_states, self.values + value_states
        self.cumulative_length += length
        return before

    def get_seq_length(self) -> int:
        return self.cumulative_length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.cumulative_length + query_length, 0

    def crop(self, tokens_to_remove: int) -> None:
        """Reject the removal of tokens."""
        if tokens_to_remove:
            raise UserError(
                f"Linear attention cannot remove tokens from its sums, got {tokens_to_remove}."
            )


class VanillaTransformerLinearAttention(VanillaTransformerAttention):
    """Linear attention with the projections of the base model; its cache stores sums instead of
    keys and values.
    """

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        key_value_states: torch.Tensor | None = None,
        cache: Cache | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, None]:
        """Map `(B, T, D)` to `(B, T, D)`, and return None instead of attention probabilities."""
        # (B, H, T, K)
        query, target_cache = self.split_heads(self.q_proj(hidden_states), self.head_dim), None
        if key_value_states is None:
            key, value = self.project(hidden_states)  # (B, H, T, K)
            target_cache = getattr(cache, "self_attention_cache", cache)
        else:
            key, value = self.project_source(key_value_states, cache)  # (B, H, S, K)
            attention_mask = source_padding(attention_mask)
        output, _ = linear_attention_forward(
            self, query, key, value, attention_mask, cache=target_cache
        )
        return self.out_proj(output.flatten(2)), None  # (B, T, H, K) -> (B, T, D)


def source_padding(attention_mask: torch.Tensor | None) -> torch.Tensor | None:
    """Return the padding mask `(B, S)` of a cross-attention mask `(B, 1, T, S)`, whose rows are
    equal.
    """
    if attention_mask is None or attention_mask.dim() != 4:
        return attention_mask
    attention_mask = attention_mask[:, 0, 0]
    return attention_mask if attention_mask.dtype == torch.bool else attention_mask == 0


AttentionInterface.register("linear", linear_attention_forward)
AttentionMaskInterface.register("linear", padding_mask)

__all__ = [
    "LinearAttentionCacheLayer",
    "VanillaTransformerLinearAttention",
    "causal_sums",
    "feature_map",
    "key_padding",
    "linear_attention_forward",
    "padding_mask",
]
