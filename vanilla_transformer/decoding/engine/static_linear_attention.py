"""
Linear attention in a decoder step of static shape; see [`static_attention`].

A hypothesis remembers sums of `φ(k) vᵀ`, which grow by one product at each step. Since they change, each beam takes
the sums of its parent, the beam that its hypothesis was in at the step before. A column of ones beside the values sums
to the denominator. As in the model, sums are computed in float32 or higher precision.

Letters in shapes: B slots, N beams, W sources in a batch, S their positions, D d_model, H heads, K head width.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vanilla_transformer.linear_attention import feature_map

from .static_attention import Moment, StaticSelfAttention, join_heads, product


class Sums(NamedTuple):
    """Sums of `φ(k) vᵀ` of one layer: over the target, `(B, N, H, K, K + 1)`, or the source, `(B, H, K, K + 1)`."""

    sums: Tensor


class StaticLinearAttention(StaticSelfAttention):
    """The static form of linear self-attention."""

    @staticmethod
    def own_memory(attention: Any, slots: int, beams: int, room: int) -> Sums:  # type: ignore[override]
        return _no_sums(attention, slots, beams)

    @staticmethod
    def prompt_memory(attention: Any, slots: int, room: int) -> Sums:  # type: ignore[override]
        return _no_sums(attention, slots)

    @staticmethod
    def read_prompt(cache: Any) -> Sums:  # type: ignore[override]
        """Return the sums over prompts in the cache of a layer, `(W, H, K, K + 1)`."""
        return Sums(torch.cat([cache.values, cache.keys[..., None]], dim=-1))

    def forward(  # type: ignore[override]
        self, attention: Any, states: Tensor, moment: Moment, own: Sums, prompt: Sums | None
    ) -> Tensor:
        query, key, value = (
            attention.split_heads(part, attention.head_dim) for part in self.qkv_proj(states).chunk(3, dim=-1)
        )
        new = _features(key)[..., None] * _with_ones(value)[..., None, :]  # (B, H, N, K, K + 1)
        slots = torch.arange(states.shape[0], device=states.device)
        before = (moment.time - 1).clamp(min=0)[:, None, None].expand(-1, states.shape[1], 1)
        parents = moment.ancestors.gather(2, before)[..., 0]  # (B, N)
        is_first = (moment.time == 0)[:, None, None, None, None]
        past = torch.where(is_first, 0.0, own.sums[slots[:, None], parents])
        if prompt is not None:  # which has the token at time 0
            new = torch.where(is_first, 0.0, new)
        own.sums.copy_(past + new.transpose(1, 2))
        query = _features(query)
        summed = product(query[:, :, :, None], own.sums.transpose(1, 2))[:, :, :, 0]  # (B, H, N, K + 1)
        if prompt is not None:
            summed = summed + product(query, prompt.sums)
        return attention.out_proj(_divide(summed, states))


class StaticLinearCrossAttention(nn.Module):
    """The static form of linear cross-attention."""

    @staticmethod
    def source_memory(attention: Any, slots: int, room: int) -> Sums:
        return _no_sums(attention, slots)

    @staticmethod
    def read_source(attention: Any, states: Tensor, lengths: Tensor) -> Sums:
        """Return the sums over states `(W, S, D)`, of which attention may see `(W,)`: `(W, H, K, K + 1)`."""
        keys, values = attention.project(states)
        seen = torch.arange(states.shape[1], device=states.device) < lengths[:, None]  # (W, S)
        return Sums((_features(keys) * seen[:, None, :, None]).transpose(-1, -2) @ _with_ones(values))

    def forward(self, attention: Any, states: Tensor, moment: Moment, source: Sums, *_: Any) -> Tensor:
        """Map `(B, N, D)` to `(B, N, D)`."""
        query = attention.split_heads(attention.q_proj(states), attention.head_dim)  # (B, H, N, K)
        return attention.out_proj(_divide(product(_features(query), source.sums), states))


def _no_sums(attention: Any, slots: int, *beams: int) -> Sums:
    weight, width = attention.out_proj.weight, attention.head_dim
    sizes = slots, *beams, attention.out_proj.in_features // width, width, width + 1
    return Sums(torch.zeros(sizes, dtype=torch.promote_types(weight.dtype, torch.float32), device=weight.device))


def _features(states: Tensor) -> Tensor:
    return feature_map(states.to(torch.promote_types(states.dtype, torch.float32)))


def _with_ones(values: Tensor) -> Tensor:
    values = values.to(torch.promote_types(values.dtype, torch.float32))
    return nn.functional.pad(values, (0, 1), value=1.0)


def _divide(summed: Tensor, states: Tensor) -> Tensor:
    """Divide sums `(B, H, N, K + 1)` by their last column, and join the heads: `(B, N, D)` of the type of `states`."""
    denominator = summed[..., -1:].clamp(min=torch.finfo(summed.dtype).tiny)
    return join_heads((summed[..., :-1] / denominator).to(states.dtype))


__all__ = ["StaticLinearAttention", "StaticLinearCrossAttention", "Sums"]
