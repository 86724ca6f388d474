"""
LSH attention in a decoder step of static shape; see [`static_attention`].

A token attends to all positions that share its bucket in any round, as in a step of the model with a cache. The
buckets are kept beside the keys.

Letters in shapes: B slots, N beams, R room for positions of the source or the target, W sources in a batch, S their
positions, D d_model, H heads, K head width, C hashing rounds.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vanilla_transformer.lsh_attention import SELF_SCORE, hash_settings, nearest_buckets, rotations

from .static_attention import (
    Moment,
    StaticSelfAttention,
    additive,
    join_heads,
    mix,
    product,
    split_heads,
    zeros_like_heads,
)


class HashedKeys(NamedTuple):
    """
    Keys of unit length, values and buckets of one layer.

    Of the target, `(B, H, R, N, K)` and `(B, H, R, N, C)`, or of the source, `(B, H, R, K)` and `(B, H, R, C)`.
    """

    keys: Tensor
    values: Tensor
    buckets: Tensor


class StaticLSHAttention(StaticSelfAttention):
    """The static form of LSH self-attention."""

    has_batched_products = True  # its rotations; see `kinds_of`
    rotations: Tensor

    def __init__(self, attention: Any):
        super().__init__(attention)
        heads, width = attention.out_proj.in_features // attention.head_dim, attention.head_dim
        seed, rounds, buckets = hash_settings(attention)
        drawn = rotations(seed, heads, width, rounds, buckets)
        self.register_buffer("rotations", drawn)  # in the identity of a compiled step

    @staticmethod
    def inputs_of(attention: Any) -> list[Any]:
        """Return the projections that become one product: queries are keys, too."""
        return [attention.q_proj, attention.v_proj]

    @staticmethod
    def own_memory(attention: Any, slots: int, beams: int, room: int) -> HashedKeys:  # type: ignore[override]
        return _no_keys(attention, slots, room, beams)

    @staticmethod
    def prompt_memory(attention: Any, slots: int, room: int) -> HashedKeys:  # type: ignore[override]
        return _no_keys(attention, slots, room)

    @staticmethod
    def read_prompt(cache: Any) -> HashedKeys:  # type: ignore[override]
        """Return keys, values and buckets of prompts in the cache of a layer: `(W, H, S, K)`, `(W, H, S, C)`."""
        keys = nn.functional.normalize(cache.keys, dim=-1)
        return HashedKeys(keys, cache.values, cache.buckets.transpose(-1, -2).int())

    def forward(  # type: ignore[override]
        self, attention: Any, states: Tensor, moment: Moment, own: HashedKeys, prompt: HashedKeys | None
    ) -> Tensor:
        query, value = split_heads(attention, self.qkv_proj(states), "qv")
        buckets = nearest_buckets(query, self.rotations).transpose(-1, -2).int()  # (B, H, N, C)
        for memory, entry in zip(own, (nn.functional.normalize(query, dim=-1), value, buckets), strict=True):
            memory[moment.slots, :, moment.time] = entry
        keys, values, own_buckets = (memory.flatten(2, 3) for memory in own)  # (B, H, R * N, ·)
        places = torch.arange(keys.shape[2], device=states.device)
        beams = torch.arange(query.shape[2], device=states.device)
        itself = moment.time[:, None] * len(beams) + beams  # (B, N), its place among the keys
        is_itself = (places == itself[..., None])[:, None]  # (B, 1, N, R * N)
        scores = torch.where(is_itself, SELF_SCORE, product(query, keys.transpose(-1, -2)).float())
        scores = scores + moment.past + _if_shared(buckets, own_buckets)
        if prompt is None:
            probabilities = scores.softmax(dim=-1).to(values.dtype)
            return attention.out_proj(join_heads(product(probabilities, values)))
        of_prompt = product(query, prompt.keys.transpose(-1, -2)).float() + moment.source
        of_prompt = of_prompt + _if_shared(buckets, prompt.buckets)
        return attention.out_proj(join_heads(mix(scores, values, of_prompt, prompt.values)))


def _no_keys(attention: Any, slots: int, *sizes: int) -> HashedKeys:
    keys, values = zeros_like_heads(attention, slots, *sizes)
    return HashedKeys(keys, values, keys.new_zeros(*keys.shape[:-1], attention.config.num_hashes, dtype=torch.int32))


def _if_shared(buckets: Tensor, others: Tensor) -> Tensor:
    """Return a mask `(B, H, N, P)` to add to scores: of buckets `(B, H, N, C)` with others, `(B, H, P, C)`."""
    return additive((buckets[:, :, :, None] == others[:, :, None]).any(dim=-1))


__all__ = ["HashedKeys", "StaticLSHAttention"]
