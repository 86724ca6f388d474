# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""
Segment-level recurrence and relative positions of "Transformer-XL: Attentive Language Models beyond
a Fixed-Length Context" (Dai et al., 2019), called "the paper" below.

The model reads a text in segments. Each layer also attends to a memory of its inputs in earlier
segments; no gradient flows through the memory. Attention depends on the distance between query and
key, not on absolute positions.

Letters in shapes: B batch, L segment length, M memory length, D d_model, H heads, K head width.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache, DynamicLayer

from .configuration_vanilla_transformer_long import VanillaTransformerLongFields
from .errors import UserError
from .modeling_vanilla_transformer import VanillaTransformerAttention, sinusoidal_positions


class TransfoXLCacheLayer(DynamicLayer):
    """
    Memory of one layer: `keys` `(B, M, D)` are its earlier inputs, and `values` `(B, M)` is True
    for tokens.

    Padding of earlier segments is moved to the front, so that no padding separates tokens.
    """

    is_croppable = False

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.cumulative_length = 0

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        mem_len: int | None,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """
        Append a segment's inputs `(B, L, D)` and padding mask `(B, L)` to the memory; return both,
        `(B, M + L, …)`.

        The memory keeps the last `mem_len` positions, or all positions if `mem_len` is None.
        """
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states[:, :0].detach(), value_states[:, :0]
        states = torch.cat([self.keys, key_states], dim=1)
        tokens = torch.cat([self.values, value_states], dim=1)
        order = tokens.to(torch.uint8).argsort(dim=1, stable=True)
        if mem_len is not None:
            order = order[:, -mem_len:]
        self.keys = states.detach().gather(
            1, order[..., None].expand(*order.shape, states.shape[-1])
        )
        self.values = tokens.gather(1, order)
        self.cumulative_length += key_states.shape[1]
        return states, tokens

    def get_seq_length(self) -> int:
        """Return the number of positions since the start, or since the last call of
        [`restart_positions`].
        """
        return self.cumulative_length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.cumulative_length + query_length, 0

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        self.batch_select_indices(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.is_initialized:
            self.keys = self.keys.repeat_interleave(repeats, dim=0)
            self.values = self.values.repeat_interleave(repeats, dim=0)

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        if self.is_initialized:
            self.keys = self.keys.index_select(0, indices.to(self.keys.device))
            self.values = self.values.index_select(0, indices.to(self.values.device))

    def crop(self, tokens_to_remove: int) -> None:
        """Reject the removal of tokens."""
        if tokens_to_remove:
            raise UserError(
                f"A Transformer-XL memory cannot remove tokens, got {tokens_to_remove}."
            )


def restart_positions(cache: Cache) -> None:
    """Count positions from 0 again for the next text, which still attends to the memory."""
    for layer in cache.layers:
        layer.cumulative_length = 0


def relative_shift(scores: torch.Tensor) -> torch.Tensor:
    """
    Shift each row of `(B, H, L, M + L)` so that its columns are keys instead of distances (appendix
    B).

    Column c of the input has the distance `M + L - 1 - c`; column c of the output has the key c.
    Columns of keys after the query contain values of neighboring rows and must be masked.
    """
    batch, heads, rows, columns = scores.shape
    padded = nn.functional.pad(scores, (1, 0)).view(batch, heads, columns + 1, rows)
    return padded[:, :, 1:].reshape(batch, heads, rows, columns)


class VanillaTransformerTransfoXLAttention(VanillaTransformerAttention):
    """
    Masked self-attention with relative positions and memory (section 3.3):

        score_ij = (q_i + u)ᵀ k_j + (q_i + v)ᵀ W_r R_{i-j}

    where R contains the sinusoids of the distance. Differs from the paper: u and v are not shared
    between layers.
    """

    config: VanillaTransformerLongFields

    def __init__(self, config: Any, num_heads: int, layer_idx: int, is_causal: bool = True):
        super().__init__(config, num_heads, layer_idx, is_causal)
        self.r_proj = nn.Linear(config.d_model, config.d_model, bias=False)
        self.content_bias = nn.Parameter(torch.empty(num_heads, 1, self.head_dim))  # u
        self.position_bias = nn.Parameter(torch.empty(num_heads, 1, self.head_dim))  # v

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        key_value_states: torch.Tensor | None = None,
        cache: Cache | None = None,
        norm: Callable[[torch.Tensor], torch.Tensor] | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """
        Map `(B, L, D)` to the output `(B, L, D)` and the probabilities `(B, H, L, M + L)`.

        With pre-norm, `norm` normalizes the input and the memory, which holds inputs before
        normalization: as in the authors' code, an earlier segment is normalized by the parameters
        of today.

        The last L columns of `attention_mask` `(B, ≥ L)` are 1 for tokens and 0 for padding. The
        memory stores its own mask.
        """
        batch, length = hidden_states.shape[:2]
        states = hidden_states
        tokens = hidden_states.new_ones((batch, length), dtype=torch.bool)
        if attention_mask is not None:
            tokens = attention_mask[:, -length:].bool()
        if cache is not None:
            memory = getattr(cache, "self_attention_cache", cache)
            states, tokens = memory.update(states, tokens, self.layer_idx, self.config.mem_len)
        if norm is not None:
            states = norm(states)
        query = self.split_heads(self.q_proj(states[:, -length:]), self.head_dim)  # (B, H, L, K)
        key, value = self.project(states)  # (B, H, M + L, K)
        distances = torch.arange(key.shape[2] - 1, -1, -1, device=key.device)
        relative = sinusoidal_positions(distances, self.config.d_model, self.config.sinusoid_layout)
        relative = self.split_heads(
            self.r_proj(relative[None].to(hidden_states.dtype)), self.head_dim
        )  # (1, H, M + L, K)
        by_content = (query + self.content_bias) @ key.transpose(2, 3)
        by_distance = relative_shift((query + self.position_bias) @ relative.transpose(2, 3))
        scores = (by_content + by_distance) * self.scaling  # (B, H, L, M + L)
        future = torch.ones_like(scores[0, 0], dtype=torch.bool).triu(key.shape[2] - length + 1)
        scores = scores.masked_fill(
            future | ~tokens[:, None, None, :], torch.finfo(scores.dtype).min
        )
        probabilities = nn.functional.softmax(scores, dim=-1)
        probabilities = nn.functional.dropout(probabilities, p=self.dropout, training=self.training)
        # (B, H, L, K) -> (B, L, D)
        output = (probabilities @ value).transpose(1, 2).reshape(batch, length, -1)
        return self.out_proj(output), probabilities


__all__ = [
    "TransfoXLCacheLayer",
    "VanillaTransformerTransfoXLAttention",
    "relative_shift",
    "restart_positions",
]
