# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""
LSH attention of "Reformer: The Efficient Transformer" (Kitaev et al., 2020), called "the paper"
below.

Queries and keys share one projection, and keys are normalized to unit length. Random rotations hash
each position to a bucket, and a query attends to the keys in its bucket (section 2). Positions are
sorted by bucket and cut into chunks; each chunk attends to itself and to the previous one. Several
hashing rounds are combined by the log-sum-exps of their scores (appendix A).

Letters in shapes: B batch, T queries, S keys, L length of either, H heads, K head width, R rounds,
C positions per chunk, N chunks.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache, DynamicLayer

from .configuration_vanilla_transformer_long import VanillaTransformerLongFields
from .linear_attention import key_padding
from .modeling_vanilla_transformer import VanillaTransformerAttention
from .reversible import Replay, compute

# Score of a position with itself, low enough to matter only without other keys (section 2, "Causal
# masking").
SELF_SCORE = -1e5
# Bucket of padding, which is sorted after all others: chunks of tokens do not depend on it.
_PADDING_BUCKET = 2**30


@lru_cache(maxsize=64)
def rotations(seed: int, heads: int, width: int, rounds: int, buckets: int) -> torch.Tensor:
    """Draw random rotations `(heads, width, rounds, buckets / 2)` in float32 from `seed`, and cache
    them.
    """
    generator = torch.Generator().manual_seed(seed)
    shape = (heads, width, rounds, buckets // 2)
    return torch.randn(shape, generator=generator, dtype=torch.float32)


def hash_buckets(query_keys: torch.Tensor, seed: int, rounds: int, buckets: int) -> torch.Tensor:
    """
    Hash shared queries and keys `(B, H, L, K)` to buckets `(B, H, R, L)`: `argmax([xR; -xR])`
    (section 2).

    `buckets` is even, or 1 for no hashing.
    """
    heads, width = query_keys.shape[1], query_keys.shape[3]
    rotation = rotations(seed, heads, width, rounds, buckets).to(query_keys.device)
    return nearest_buckets(query_keys, rotation)


def nearest_buckets(query_keys: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
    """Hash `(B, H, L, K)` to buckets `(B, H, R, L)` by [`rotations`]; without any, all share a
    bucket.
    """
    batch, heads, length, _ = query_keys.shape
    rounds, half = rotation.shape[2:]
    if half == 0:
        shape = (batch, heads, rounds, length)
        return torch.zeros(shape, dtype=torch.long, device=query_keys.device)
    rotated = torch.einsum("bhlk,hkrn->bhrln", query_keys.detach().float(), rotation)
    best, nearest = rotated.max(dim=-1)
    worst, opposite = rotated.min(dim=-1)
    return torch.where(best >= -worst, nearest, opposite + half)


def hash_settings(module: "VanillaTransformerLSHAttention") -> tuple[int, int, int]:
    """Return the seed, the rounds and the buckets of an attention.

    The seed of a layer is `hash_seed + layer_idx`.
    """
    config = module.config
    return config.hash_seed + module.layer_idx, config.num_hashes, config.num_buckets


def chunked_lsh_attention(
    query_keys: torch.Tensor,
    value: torch.Tensor,
    buckets: torch.Tensor,
    padding: torch.Tensor,
    is_causal: bool,
    chunk_size: int,
    dropout: float = 0.0,
) -> torch.Tensor:
    """
    Attend to the positions of the same bucket in the same or the previous chunk, in any round.

    A pair of positions that share a bucket in several rounds counts once (appendix A), so that one
    bucket in one chunk is full attention.

    Args:
        query_keys, value: `(B, H, L, K)`; the keys are the queries normalized to unit length.
        buckets: `(B, H, R, L)`, from [`hash_buckets`].
        padding: True for tokens, False for padding, `(B, 1, L, 1)`.
        chunk_size: Positions per chunk; L need not be a multiple.
    """
    length = query_keys.shape[2]
    if length <= chunk_size:  # a single chunk
        return bucket_attention(
            query_keys, query_keys, value, buckets, buckets, padding, is_causal, dropout
        )
    added = -length % chunk_size
    buckets = nn.functional.pad(buckets, (0, added), value=_PADDING_BUCKET)
    padding = nn.functional.pad(padding, (0, 0, 0, added)).squeeze(-1).unsqueeze(1)  # (B, 1, 1, L)
    buckets = buckets.masked_fill(~padding, _PADDING_BUCKET)
    query_keys = nn.functional.pad(query_keys, (0, 0, 0, added))
    value = nn.functional.pad(value, (0, 0, 0, added))
    order = buckets.argsort(dim=-1, stable=True)  # (B, H, R, L): by bucket, then by position
    # (B, H, R, L): chunk of each position
    chunks = order.argsort(dim=-1).div(chunk_size, rounding_mode="floor")
    queries = _sorted(query_keys, order).unflatten(3, (-1, chunk_size))  # (B, H, R, N, C, K)
    keys = _with_previous(nn.functional.normalize(queries, dim=-1))  # (B, H, R, N, 2C, K)
    values = _with_previous(_sorted(value, order).unflatten(3, (-1, chunk_size)))

    places = order.unflatten(3, (-1, chunk_size))  # (B, H, R, N, C)
    others = _with_previous(places, fill=-1)
    allowed, rounds_together = _meetings(places, others, buckets, chunks)
    seen = padding.expand(*order.shape).gather(3, order).unflatten(3, (-1, chunk_size))
    allowed &= _with_previous(seen)[..., None, :]
    if is_causal:
        allowed &= others[..., None, :] <= places[..., None]
    scores = queries @ keys.transpose(-1, -2)
    scores = scores.to(torch.promote_types(queries.dtype, torch.float32))
    scores = scores - rounds_together.clamp(min=1).to(scores.dtype).log()
    scores = scores.masked_fill(others[..., None, :] == places[..., None], SELF_SCORE)
    scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
    total = scores.logsumexp(dim=-1, keepdim=True)  # (B, H, R, N, C, 1)
    probabilities = (scores - total).exp().to(value.dtype)
    probabilities = nn.functional.dropout(probabilities, p=dropout, training=dropout > 0.0)
    output = probabilities @ values  # (B, H, R, N, C, K)

    back = order.argsort(dim=-1)
    columns = back[..., None].expand(*back.shape, value.shape[-1])
    output = output.flatten(3, 4).gather(3, columns)  # (B, H, R, L, K)
    weights = total.flatten(3, 5).gather(3, back).softmax(dim=2)[..., None].to(value.dtype)
    return (output * weights).sum(dim=2)[:, :, :length]


def _sorted(states: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """Sort `(B, H, L, K)` by the `order` `(B, H, R, L)` of each round, to `(B, H, R, L, K)`."""
    rounds = states.unsqueeze(2).expand(*order.shape, states.shape[-1])
    return rounds.gather(3, order[..., None].expand_as(rounds))


def _with_previous(chunks: torch.Tensor, fill: float = 0) -> torch.Tensor:
    """Prepend the previous chunk, or `fill`, to each: `(B, H, R, N, C, …)` to
    `(B, H, R, N, 2C, …)`.
    """
    first = torch.full_like(chunks[:, :, :, :1], fill)
    previous = torch.cat([first, chunks[:, :, :, :-1]], dim=3)
    return torch.cat([previous, chunks], dim=4)


def _meetings(
    places: torch.Tensor, others: torch.Tensor, buckets: torch.Tensor, chunks: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return whether each pair shares bucket and chunks in each round, and in how many:
    `(B, H, R, N, C, 2C)` both.
    """
    query_positions = places.flatten(3)
    key_positions = others.clamp(min=0).flatten(3)
    meetings: torch.Tensor | None = None
    met_here: list[torch.Tensor] = []
    for number in range(buckets.shape[2]):
        bucket = buckets[:, :, number : number + 1].expand_as(buckets)
        chunk = chunks[:, :, number : number + 1].expand_as(buckets)
        query_bucket = bucket.gather(3, query_positions).view_as(places)[..., None]
        query_chunk = chunk.gather(3, query_positions).view_as(places)[..., None]
        key_bucket = bucket.gather(3, key_positions).view_as(others)[..., None, :]
        key_chunk = chunk.gather(3, key_positions).view_as(others)[..., None, :]
        distance = query_chunk - key_chunk
        met = (query_bucket == key_bucket) & ((distance == 0) | (distance == 1))
        met_here.append(met[:, :, number])
        meetings = met.to(torch.uint8) if meetings is None else meetings + met
    assert meetings is not None
    return torch.stack(met_here, dim=2) & (others >= 0)[..., None, :], meetings


def bucket_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    query_buckets: torch.Tensor,
    key_buckets: torch.Tensor,
    padding: torch.Tensor,
    is_causal: bool,
    dropout: float = 0.0,
) -> torch.Tensor:
    """
    Attend from the last T positions to all positions in the same bucket in any round, without
    chunks (equation 3).

    This serves short sequences and the few queries of a generation step.

    Args:
        query: Query-keys of the last T positions, `(B, H, T, K)`.
        key, value: Query-keys and values of all positions, `(B, H, S, K)`.
        query_buckets, key_buckets: `(B, H, R, T)` and `(B, H, R, S)`, from [`hash_buckets`].
        padding: True for tokens, False for padding, `(B, 1, S, 1)`.
    """
    places = torch.arange(key.shape[2], device=key.device)
    query_places = places[-query.shape[2] :, None]
    allowed = (query_buckets[..., None] == key_buckets[..., None, :]).any(dim=2)  # (B, H, T, S)
    allowed = allowed & padding.transpose(-1, -2)
    if is_causal:
        allowed = allowed & (places <= query_places)
    scores = query @ nn.functional.normalize(key, dim=-1).transpose(-1, -2)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    scores = scores.masked_fill(places == query_places, SELF_SCORE)
    scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
    probabilities = scores.softmax(dim=-1).to(value.dtype)
    return nn.functional.dropout(probabilities, p=dropout, training=dropout > 0.0) @ value


def lsh_attention_forward(
    module: "VanillaTransformerLSHAttention",
    query_keys: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    cache: Cache | None = None,
    replay: Replay = compute,
) -> torch.Tensor:
    """
    Compute LSH attention with the settings of `module.config`.

    Scores are not scaled by `1 / √K`, since keys have unit length.

    Args:
        query_keys, value: Query-keys and values of the last T positions, `(B, H, T, K)`.
        attention_mask: Padding mask `(B, ≥ S)`, 1 for tokens and 0 for padding; only its last S
            columns are used.
        cache: Layers of [`LSHCacheLayer`], to which query-keys, values and buckets are appended.
        replay: Returns the buckets of the forward pass when a reversible layer is recomputed.
    """
    config, layer_idx = module.config, module.layer_idx
    buckets = replay(lambda: hash_buckets(query_keys, *hash_settings(module)))
    past = cache.get_seq_length(layer_idx) if cache is not None else 0
    keys, values, key_buckets = query_keys, value, buckets
    if cache is not None:
        keys, values = cache.update(query_keys, value, layer_idx, buckets)
        key_buckets = cache.layers[layer_idx].buckets
    padding = key_padding(attention_mask, keys).expand(keys.shape[0], 1, keys.shape[2], 1)
    causal, chunk_size = module.is_causal, config.lsh_attn_chunk_length
    if past:
        output = bucket_attention(
            query_keys, keys, values, buckets, key_buckets, padding, causal, dropout
        )
    else:
        output = chunked_lsh_attention(
            query_keys, value, buckets, padding, causal, chunk_size, dropout
        )
    return output.transpose(1, 2)


class VanillaTransformerLSHAttention(VanillaTransformerAttention):
    """LSH self-attention with one shared projection for queries and keys."""

    config: VanillaTransformerLongFields

    def __init__(self, config: Any, num_heads: int, layer_idx: int, is_causal: bool = False):
        super().__init__(config, num_heads, layer_idx, is_causal)
        del self.k_proj

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        key_value_states: torch.Tensor | None = None,
        cache: Cache | None = None,
        replay: Replay = compute,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, None]:
        """Map `(B, T, D)` to `(B, T, D)` given a padding mask, and return None instead of attention
        probabilities.
        """
        query_keys = self.split_heads(self.q_proj(hidden_states), self.head_dim)  # (B, H, T, K)
        value = self.split_heads(self.v_proj(hidden_states), self.value_dim)
        cache = getattr(cache, "self_attention_cache", cache)
        dropout = self.dropout if self.training else 0.0
        output = lsh_attention_forward(
            self, query_keys, value, attention_mask, dropout, cache, replay
        )
        return self.out_proj(output.flatten(2)), None  # (B, T, H, K) -> (B, T, D)


class LSHCacheLayer(DynamicLayer):
    """Cache of one layer of LSH attention: query-keys and values `(B, H, S, K)`, and `buckets`
    `(B, H, R, S)`.
    """

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.buckets: torch.Tensor | None = None

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        buckets: torch.Tensor,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append query-keys, values and buckets, and return all query-keys and values."""
        if self.buckets is not None:
            buckets = torch.cat([self.buckets, buckets], dim=-1)
        self.buckets = buckets
        return super().update(key_states, value_states)

    def _select(self, take: Callable[[torch.Tensor], torch.Tensor]) -> None:
        if self.buckets is not None:
            self.buckets = take(self.buckets)

    def reset(self) -> None:
        super().reset()
        self.is_initialized, self.buckets = False, None

    def crop(self, tokens_to_remove: int) -> None:
        super().crop(tokens_to_remove)
        if tokens_to_remove and self.buckets is not None:
            self.buckets = self.buckets[..., : self.keys.shape[2]]

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        super().reorder_cache(beam_idx)
        self._select(lambda buckets: buckets.index_select(0, beam_idx.to(buckets.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        super().batch_repeat_interleave(repeats)
        self._select(lambda buckets: buckets.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        super().batch_select_indices(indices)
        self._select(lambda buckets: buckets[indices, ...])


__all__ = [
    "LSHCacheLayer",
    "SELF_SCORE",
    "VanillaTransformerLSHAttention",
    "bucket_attention",
    "chunked_lsh_attention",
    "hash_buckets",
    "hash_settings",
    "lsh_attention_forward",
    "nearest_buckets",
    "rotations",
]
