# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""
Linear attention of "Transformers are RNNs" (Katharopoulos et al., 2020), called "the paper" here.

The exponential of softmax is replaced by a product of features, `φ(q)ᵀ φ(k)` with `φ(x) = elu(x) + 1`, so that what a
query sees is a sum over keys that does not know the query:

    out_i = φ(q_i)ᵀ Σ_j φ(k_j) v_jᵀ / φ(q_i)ᵀ Σ_j φ(k_j)

Letters in shapes: B batch, T queries, S keys, H heads, K width of a head, C positions of a chunk, N chunks.
"""

from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache, DynamicLayer
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface

_CHUNK = 64


def feature_map(states: torch.Tensor) -> torch.Tensor:
    """Equation 7: `φ(x) = elu(x) + 1`, positive everywhere. Any shape."""
    return nn.functional.elu(states) + 1.0


def causal_sums(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, before: torch.Tensor, chunk: int = _CHUNK
) -> torch.Tensor:
    """
    `out_i = q_iᵀ (before + Σ_{j ≤ i} k_j v_jᵀ)`, the prefix sums of equations 9 to 11, in time linear in T.

    What stands in earlier chunks is one running total of the chunks' sums; within a chunk there is a square of C.

    Args:
        query, key (`(B, H, T, K)`): Features.
        value (`(B, H, T, W)`): Of any width W.
        before (`(B, H, K, W)`): The sum over all positions before the first.

    Returns:
        `(B, H, T, W)`.
    """
    length = query.shape[2]
    padding = (0, 0, 0, -length % chunk)  # of zeros, which add nothing to sums
    query, key, value = (
        nn.functional.pad(states, padding).unflatten(2, (-1, chunk)) for states in (query, key, value)
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
    Linear attention under the name "linear" of transformers' attention functions. Sums are in float32 at least.

    `query` is `(B, H, T, K)`, `key` and `value` are `(B, H, S, K)`. If the module is causal, the last query belongs to
    the last key. `attention_mask` is `(B, ≥ S)` with 1 for tokens, whose last S columns count; without one all do.
    `cache` has layers of [`LinearStateLayer`]: sums over earlier keys, to which those of these keys are added.

    Returns:
        `(B, T, H, K)`, and None, since there are no probabilities.

    Raises:
        ValueError: a mask that is more than one of padding.
    """
    dtype = torch.promote_types(query.dtype, torch.float32)
    with torch.autocast(query.device.type, enabled=False):
        features = feature_map(query.to(dtype))
        key_features = feature_map(key.to(dtype)) * padding_of(attention_mask, key).to(dtype)
        ones = nn.functional.pad(value.to(dtype), (0, 1), value=1.0)  # the denominator is the sum of ones
        if module.is_causal if is_causal is None else is_causal:
            summed = _causal(features, key_features, ones, cache, module)
        else:
            summed = features @ (key_features.transpose(-1, -2) @ ones)  # equation 6
        denominator = summed[..., -1:].clamp(min=torch.finfo(dtype).tiny)  # 0 where there is only padding
        return (summed[..., :-1] / denominator).transpose(1, 2).to(query.dtype), None


def _causal(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, cache: Cache | None, module: nn.Module
) -> torch.Tensor:
    length = query.shape[2]
    early, key = key.split([key.shape[2] - length, length], dim=2)
    early_value, value = value.split([value.shape[2] - length, length], dim=2)
    before = early.transpose(-1, -2) @ early_value  # (B, H, K, K + 1)
    if cache is not None:
        total = key.transpose(-1, -2) @ value
        denominator, numerator = cache.update(total[..., -1], total[..., :-1], module.layer_idx, length)
        before = before + torch.cat([numerator, denominator.unsqueeze(-1)], dim=-1)
    return causal_sums(query, key, value, before, min(_CHUNK, length))


def padding_of(attention_mask: torch.Tensor | None, key: torch.Tensor) -> torch.Tensor:
    """
    What a mask says of the keys `(B, H, S, K)`: `(B, 1, S, 1)`, True for tokens.

    Raises:
        ValueError: a mask that is more than one of padding.
    """
    if attention_mask is None:
        return key.new_ones((1, 1, 1, 1), dtype=torch.bool)
    if attention_mask.dim() != 2:
        raise ValueError(
            "Linear and LSH attention take a mask of padding, `(batch_size, length)`, got one of shape "
            f"{tuple(attention_mask.shape)}."
        )
    return attention_mask[:, -key.shape[2] :].bool()[:, None, :, None]


def padding_mask(attention_mask: torch.Tensor | None = None, **kwargs: Any) -> torch.Tensor | None:
    """The mask of padding as it is, where transformers asks for that of an attention function."""
    return attention_mask


class LinearStateLayer(DynamicLayer):
    """
    What linear attention remembers of one layer: `keys` `(B, H, K)`, the sum of φ(k), and `values` `(B, H, K, K)`,
    that of φ(k) vᵀ. They are as large after one token as after a million.
    """

    is_croppable = False

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.cumulative_length = 0

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, length: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Adds the sums over `length` new positions, and returns those over all positions before them."""
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
        """
        Raises:
            ValueError: a token is to be taken back, which sums cannot.
        """
        if tokens_to_remove:
            raise ValueError(
                f"Linear attention cannot take back tokens that it has summed up, got {tokens_to_remove}."
            )


AttentionInterface.register("linear", linear_attention_forward)
AttentionMaskInterface.register("linear", padding_mask)

__all__ = ["LinearStateLayer", "causal_sums", "feature_map", "linear_attention_forward", "padding_mask", "padding_of"]
