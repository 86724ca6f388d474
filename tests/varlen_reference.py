"""`torch.nn.attention.varlen.varlen_attn` sentence by sentence, on any device."""

from typing import Any

import torch
from torch import Tensor


def varlen_attn(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    *,
    scale: float,
    window_size: tuple[int, int],
) -> Tensor:
    """Return the attention of queries `(T_q, H, K)` to keys and values `(T_k, H, K)` of the same sentence."""
    assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32 and window_size in ((-1, -1), (-1, 0))
    assert cu_seq_q[-1] == len(query) and cu_seq_k[-1] == len(key) == len(value)
    targets, sources = cu_seq_q.diff().tolist(), cu_seq_k.diff().tolist()
    assert 0 < min(targets) <= max(targets) <= max_q and 0 < min(sources) <= max(sources) <= max_k
    sentences: Any = zip(query.split(targets), key.split(sources), value.split(sources), strict=True)
    return torch.cat([_attend(*states, scale, window_size == (-1, 0)) for states in sentences])


def _attend(query: Tensor, key: Tensor, value: Tensor, scale: float, causal: bool) -> Tensor:
    scores = torch.einsum("qhk,shk->hqs", query, key) * scale
    if causal:  # the last query is at the last key
        later = torch.ones(scores.shape[1:], dtype=torch.bool).triu(1 + len(key) - len(query))
        scores = scores.masked_fill(later, -torch.inf)
    return torch.einsum("hqs,shk->qhk", scores.softmax(dim=-1), value)
