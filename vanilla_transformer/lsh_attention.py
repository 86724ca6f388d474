# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""
LSH attention of "Reformer: The Efficient Transformer" (Kitaev et al., 2020), called "the paper" here.

Queries and keys are the same projection, keys of length 1. A query attends to what falls into its bucket, which is
found by random rotations (section 2): positions are sorted by bucket, cut into chunks, and each chunk sees itself and
the one before it. Several rounds of hashing are combined by the log-sum-exps of their scores (appendix A).

Letters in shapes: B batch, T queries, S keys, L length of either, H heads, K width of a head, R rounds, C positions of
a chunk, N chunks.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache, DynamicLayer
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface

from .linear_attention import padding_mask, padding_of
from .reversible import chosen

# The score of a position with itself, so low that it counts only beside nothing else (section 2, "Causal masking").
_SELF = -1e5
# What fills up the last chunk is in a bucket of its own, behind all others.
_FILLING = 2**30


@lru_cache(maxsize=64)
def rotations(seed: int, heads: int, width: int, rounds: int, buckets: int) -> torch.Tensor:
    """Random rotations `(heads, width, rounds, buckets / 2)` in float32, always the same for a seed."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((heads, width, rounds, buckets // 2), generator=generator)


def hash_buckets(query_keys: torch.Tensor, seed: int, rounds: int, buckets: int) -> torch.Tensor:
    """
    Buckets `(B, H, R, L)` of shared queries and keys `(B, H, L, K)`: `argmax([xR; -xR])`, section 2.

    One bucket takes everything; more must be an even number.
    """
    batch, heads, length, width = query_keys.shape
    if buckets == 1:
        return torch.zeros((batch, heads, rounds, length), dtype=torch.long, device=query_keys.device)
    rotation = rotations(seed, heads, width, rounds, buckets).to(query_keys.device)
    rotated = torch.einsum("bhlk,hkrn->bhrln", query_keys.detach().float(), rotation)
    best, place = rotated.max(dim=-1)
    worst, opposite = rotated.min(dim=-1)
    return torch.where(best >= -worst, place, opposite + buckets // 2)


def hashed_attention(
    query_keys: torch.Tensor,
    value: torch.Tensor,
    buckets: torch.Tensor,
    padding: torch.Tensor,
    is_causal: bool,
    chunk: int,
    dropout: float = 0.0,
) -> torch.Tensor:
    """
    Attention of each position to those of its bucket in its chunk and the one before, in any of the rounds. A pair
    that meets in several rounds counts once (appendix A), so that one bucket and one chunk are full attention.

    Args:
        query_keys, value (`(B, H, L, K)`): The former are queries as they are, and keys divided by their lengths.
        buckets (`(B, H, R, L)`): From [`hash_buckets`].
        padding (`(B, 1, L, 1)`): True for tokens.
        dropout (`float`): On the probabilities.

    Returns:
        `(B, H, L, K)`.
    """
    length = query_keys.shape[2]
    if length <= chunk:  # no chunk cuts a bucket
        return bucket_attention(query_keys, query_keys, value, buckets, buckets, padding, is_causal, dropout)
    filled = -length % chunk
    buckets = nn.functional.pad(buckets, (0, filled), value=_FILLING)
    padding = nn.functional.pad(padding, (0, 0, 0, filled)).squeeze(-1).unsqueeze(1)  # (B, 1, 1, L)
    query_keys, value = (nn.functional.pad(states, (0, 0, 0, filled)) for states in (query_keys, value))
    order = buckets.argsort(dim=-1, stable=True)  # (B, H, R, L): by bucket, then by position
    chunks = order.argsort(dim=-1).div(chunk, rounding_mode="floor")  # of each position
    queries = _sorted(query_keys, order).unflatten(3, (-1, chunk))  # (B, H, R, N, C, K)
    keys = _with_previous(nn.functional.normalize(queries, dim=-1))  # (B, H, R, N, 2C, K)
    values = _with_previous(_sorted(value, order).unflatten(3, (-1, chunk)))

    places = order.unflatten(3, (-1, chunk))  # (B, H, R, N, C)
    others = _with_previous(places, fill=-1)
    allowed, meetings = _meetings(places, others, buckets, chunks)
    seen = padding.expand(*order.shape).gather(3, order).unflatten(3, (-1, chunk))
    allowed &= _with_previous(seen)[..., None, :]
    if is_causal:
        allowed &= others[..., None, :] <= places[..., None]
    scores = (queries @ keys.transpose(-1, -2)).to(torch.promote_types(queries.dtype, torch.float32))
    scores = scores - meetings.clamp(min=1).to(scores.dtype).log()
    scores = scores.masked_fill(others[..., None, :] == places[..., None], _SELF)
    scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
    total = scores.logsumexp(dim=-1, keepdim=True)  # (B, H, R, N, C, 1)
    probabilities = nn.functional.dropout((scores - total).exp().to(value.dtype), p=dropout, training=dropout > 0.0)
    output = probabilities @ values  # (B, H, R, N, C, K)

    back = order.argsort(dim=-1)
    output = output.flatten(3, 4).gather(3, back[..., None].expand(*back.shape, value.shape[-1]))  # (B, H, R, L, K)
    weights = total.flatten(3, 5).gather(3, back).softmax(dim=2)[..., None].to(value.dtype)
    return (output * weights).sum(dim=2)[:, :, :length]


def _sorted(states: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """`(B, H, L, K)` in the order `(B, H, R, L)` of each round: `(B, H, R, L, K)`."""
    rounds = states.unsqueeze(2).expand(*order.shape, states.shape[-1])
    return rounds.gather(3, order[..., None].expand_as(rounds))


def _with_previous(chunks: torch.Tensor, fill: float = 0) -> torch.Tensor:
    """Before each chunk the one before it, `(B, H, R, N, C, …)` to `(B, H, R, N, 2C, …)`; `fill` before the first."""
    previous = torch.cat([torch.full_like(chunks[:, :, :, :1], fill), chunks[:, :, :, :-1]], dim=3)
    return torch.cat([previous, chunks], dim=4)


def _meetings(
    places: torch.Tensor, others: torch.Tensor, buckets: torch.Tensor, chunks: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Whether positions meet in this round, and in how many rounds they do: both `(B, H, R, N, C, 2C)`."""
    first, second = places.flatten(3), others.clamp(min=0).flatten(3)  # positions of queries and keys
    meetings: torch.Tensor | None = None
    met_here: list[torch.Tensor] = []
    for number in range(buckets.shape[2]):
        bucket, chunk = (each[:, :, number : number + 1].expand_as(buckets) for each in (buckets, chunks))
        query_bucket, query_chunk = (each.gather(3, first).view_as(places)[..., None] for each in (bucket, chunk))
        key_bucket, key_chunk = (each.gather(3, second).view_as(others)[..., None, :] for each in (bucket, chunk))
        behind = query_chunk - key_chunk
        met = (query_bucket == key_bucket) & ((behind == 0) | (behind == 1))
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
    Attention of the last positions to all that share a bucket with them in any round, without chunks: equation 3, for
    short texts and for the few queries of a step of generation.

    Args:
        query (`(B, H, T, K)`): Query-keys of the last T positions.
        key, value (`(B, H, S, K)`): Query-keys and values of all positions.
        query_buckets, key_buckets (`(B, H, R, T)` and `(B, H, R, S)`): From [`hash_buckets`].
        padding (`(B, 1, S, 1)`): True for tokens.
        dropout (`float`): On the probabilities.

    Returns:
        `(B, H, T, K)`.
    """
    places = torch.arange(key.shape[2], device=key.device)
    own = places[-query.shape[2] :, None]
    allowed = (query_buckets[..., None] == key_buckets[..., None, :]).any(dim=2)  # (B, H, T, S)
    allowed = allowed & padding.transpose(-1, -2)
    if is_causal:
        allowed = allowed & (places <= own)
    scores = query @ nn.functional.normalize(key, dim=-1).transpose(-1, -2)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32)).masked_fill(places == own, _SELF)
    scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
    probabilities = scores.softmax(dim=-1).to(value.dtype)
    return nn.functional.dropout(probabilities, p=dropout, training=dropout > 0.0) @ value


def lsh_attention_forward(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    cache: Cache | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """
    LSH attention under the name "lsh" of transformers' attention functions. `module.config` has
    `lsh_attn_chunk_length`, `num_hashes`, `num_buckets` and `hash_seed`, to which the layer's number is added.

    `query` is `(B, H, T, K)` and is the key as well; `key` is not read. `attention_mask` is `(B, ≥ S)` with 1 for
    tokens, whose last S columns count; without one all do. `cache` has layers of [`HashedLayer`]. Scores have no
    factor `1 / √K`, since keys are of length 1.

    Returns:
        `(B, T, H, K)`, and None, since there is no square of probabilities.

    Raises:
        ValueError: a mask that is more than one of padding.
    """
    config = module.config
    seed = config.hash_seed + module.layer_idx
    buckets = chosen(lambda: hash_buckets(query, seed, config.num_hashes, config.num_buckets))
    known = cache.get_seq_length(module.layer_idx) if cache is not None else 0
    keys, values, key_buckets = query, value, buckets
    if cache is not None:
        keys, values = cache.update(query, value, module.layer_idx, buckets)
        key_buckets = cache.layers[module.layer_idx].buckets
    padding = padding_of(attention_mask, keys).expand(keys.shape[0], 1, keys.shape[2], 1)
    causal = module.is_causal if is_causal is None else is_causal
    if known:
        output = bucket_attention(query, keys, values, buckets, key_buckets, padding, causal, dropout)
    else:
        output = hashed_attention(query, value, buckets, padding, causal, config.lsh_attn_chunk_length, dropout)
    return output.transpose(1, 2), None


class HashedLayer(DynamicLayer):
    """What LSH attention remembers of one layer: query-keys, values `(B, H, S, K)`, and `buckets` `(B, H, R, S)`."""

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.buckets: torch.Tensor | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, buckets: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.buckets = buckets if self.buckets is None else torch.cat([self.buckets, buckets], dim=-1)
        return super().update(key_states, value_states)

    def _rows(self, take: Callable[[torch.Tensor], torch.Tensor]) -> None:
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
        self._rows(lambda buckets: buckets.index_select(0, beam_idx.to(buckets.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        super().batch_repeat_interleave(repeats)
        self._rows(lambda buckets: buckets.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        super().batch_select_indices(indices)
        self._rows(lambda buckets: buckets[indices, ...])


AttentionInterface.register("lsh", lsh_attention_forward)
AttentionMaskInterface.register("lsh", padding_mask)

__all__ = ["HashedLayer", "bucket_attention", "hash_buckets", "hashed_attention", "lsh_attention_forward", "rotations"]
