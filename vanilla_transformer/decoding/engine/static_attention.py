"""
The attentions of a decoder step of static shape: softmax, linear and LSH attention.

A static form computes one of the model's attentions for one token of each beam. It takes that
attention as an argument, for its projections and settings, and keeps two kinds of memory:

- its own, of the target. The beams of a slot are positions of one sequence: the key of beam n at
  step t stays where it was written, so no key or value ever moves. Code that is compiled for a CPU
  reads the keys of each hypothesis where its ancestors wrote them. Otherwise every beam scores the
  keys of all beams, in one product, and a mask hides the keys that are not of its hypothesis.
- of the source, the same for all beams: the encoder's output for cross-attention, or the prompt for
  the self-attention of a model without an encoder.

A hypothesis of linear attention remembers sums of `φ(k) vᵀ`, which grow by one product at each
step. Since they change, each beam takes the sums of its parent, the beam that its hypothesis was in
at the step before. A column of ones beside the values sums to the denominator. As in the model,
sums are computed in float32 or higher precision.

A token of LSH attention attends to all positions that share its bucket in any round, as in a step
of the model with a cache. The buckets are kept beside the keys.

Letters in shapes: B slots, N beams, R room for positions of the source or the target, W sources in
a batch, S their positions, D d_model, H heads, K width of a head, d_k of keys and d_v of values, C
hashing rounds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from vanilla_transformer.decoding.weight_packing import PackedLinear, inputs_of
from vanilla_transformer.linear_attention import feature_map
from vanilla_transformer.lsh_attention import SELF_SCORE, hash_settings, nearest_buckets, rotations

if TYPE_CHECKING:
    from vanilla_transformer.lsh_attention import VanillaTransformerLSHAttention
    from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerAttention

_UNSEEN = -1.0e9  # added to the scores of positions that must not be seen


@dataclass(frozen=True)
class Moment:
    """
    What all layers share in a step.

    Attributes:
        slots: The numbers of the slots, `(B,)`.
        time: Position of the tokens in the target, `(B,)`; or `(B, N)` if they are N tokens of one
            beam.
        done: Slots whose sentences are done, `(B,)`.
        ancestors: The beam of each step that a hypothesis descends from, `(B, N, R)`; at this step,
            itself.
        past: Mask to add to the scores of a hypothesis' own keys, `(B, 1, 1, R)`; or
            `(B, 1, N, R)`.
        source: Mask to add to the scores of positions of the source, `(B, 1, 1, R)`.
    """

    slots: Tensor
    time: Tensor
    done: Tensor
    ancestors: Tensor
    past: Tensor
    source: Tensor

    @property
    def is_wide(self) -> bool:
        """Whether the tokens are several of one beam."""
        return self.time.dim() > 1

    @cached_property
    def past_of_all(self) -> Tensor:
        """The mask to add to the scores of the keys of all beams, `(B, 1, N, R * N)`; of one beam,
        `past`.
        """
        beams = self.ancestors.shape[1]
        if beams == 1:
            return self.past
        # (B, N, R, N)
        is_own = self.ancestors[..., None] == torch.arange(beams, device=self.ancestors.device)
        return torch.where(is_own, self.past[:, 0, :, :, None], _UNSEEN).flatten(2)[:, None]


class KeysAndValues(NamedTuple):
    """Keys and values of one layer: of the target, `(B, H, R, N, K)`, or of the source,
    `(B, H, R, K)`.
    """

    keys: Tensor
    values: Tensor


def _heads(attention: "VanillaTransformerAttention") -> int:
    return attention.out_proj.in_features // attention.value_dim


def empty_keys(attention: "VanillaTransformerAttention", slots: int, *sizes: int) -> KeysAndValues:
    """Return keys and values `(B, H, *sizes, K)` of zeros, of the type and on the device of an
    attention's weights.
    """
    weight, shape = attention.out_proj.weight, (slots, _heads(attention), *sizes)
    return KeysAndValues(
        *(weight.new_zeros(*shape, width) for width in (attention.head_dim, attention.value_dim))
    )


class StaticSelfAttention(nn.Module):
    """The static form of softmax self-attention: the projections of one input are one product."""

    def __init__(self, attention: "VanillaTransformerAttention"):
        super().__init__()
        self.qkv_proj = PackedLinear(*self.inputs_of(attention))

    inputs_of = staticmethod(inputs_of)  # the projections that become one product
    empty_memory = staticmethod(empty_keys)

    @staticmethod
    def read_prompt(cache: Any) -> KeysAndValues:
        """Return the keys and values of prompts in the cache of a layer, `(W, H, S, K)`."""
        return KeysAndValues(cache.keys, cache.values)

    def forward(
        self,
        attention: "VanillaTransformerAttention",
        states: Tensor,
        moment: Moment,
        memory: KeysAndValues,
        prompt: KeysAndValues | None,
    ) -> Tensor:
        """Map `(B, N, D)` to `(B, N, D)`, after the tokens of the prompt, if there is one."""
        # (B, H, N, K) each
        query, *key_and_value = split_heads(attention, self.qkv_proj(states), "qkv")
        for tensor, entry in zip(memory, key_and_value, strict=True):
            if moment.is_wide:
                rows = entry.transpose(1, 2)  # (B, N, H, K)
                tensor[moment.slots[:, None], :, moment.time, 0] = rows
            else:
                tensor[moment.slots, :, moment.time] = entry
        (keys, values), past = _readable(memory, moment, _is_fused(query) and not moment.is_wide)
        if prompt is None:
            output = attend(query, keys, values, past, attention.scaling)
        else:
            query = query * attention.scaling
            of_prompt = scores_of(query, prompt.keys) + moment.source
            output = mix(scores_of(query, keys) + past, values, of_prompt, prompt.values)
        return attention.out_proj(output)


class StaticCrossAttention(nn.Module):
    """
    The static form of softmax cross-attention.

    Args:
        kept_heads: Heads whose queries are kept, from which [`read_attention`] computes their
            attention.
    """

    def __init__(self, kept_heads: Sequence[int] = ()):
        super().__init__()
        self.kept_heads = tuple(kept_heads)

    empty_memory = staticmethod(empty_keys)

    @staticmethod
    def read_source(
        attention: "VanillaTransformerAttention", states: Tensor, lengths: Tensor
    ) -> KeysAndValues:
        """Return keys and values of states `(W, S, D)`, of which attention may see `(W,)`:
        `(W, H, S, K)`.
        """
        return KeysAndValues(*attention.project(states))

    def forward(
        self,
        attention: "VanillaTransformerAttention",
        states: Tensor,
        moment: Moment,
        source: KeysAndValues,
        queries: Sequence[Tensor] = (),
    ) -> Tensor:
        """Map `(B, N, D)` to `(B, N, D)`.

        Write the queries of the kept heads into `queries`, `(B, R, N, K)` each.
        """
        (query,) = split_heads(attention, attention.q_proj(states), "q")  # (B, H, N, K)
        for head, memory in zip(self.kept_heads, queries, strict=True):
            places, new, done = (moment.slots, moment.time), query[:, head], moment.done
            if moment.is_wide:
                places = moment.slots[:, None], moment.time
                new, done = new[:, :, None], done[:, None]  # (B, N, 1, K)
            kept = torch.where(done[..., None, None], memory[places], new)
            memory.index_put_(places, kept)
        output = attend(query, source.keys, source.values, moment.source, attention.scaling)
        return attention.out_proj(output)

    def extra_repr(self) -> str:
        # This text is part of the identity of a compiled step.
        return f"kept_heads={self.kept_heads}" if self.kept_heads else ""


def split_heads(
    attention: "VanillaTransformerAttention", states: Tensor, parts: str
) -> Sequence[Tensor]:
    """Split joined projections `(B, N, ·)` into `parts` of the letters q, k and v with their heads,
    `(B, H, N, K)`.
    """
    slots, beams = states.shape[:2]
    if attention.value_dim == attention.head_dim:  # one view of all parts: few operations in a step
        joined = states.view(slots, beams, len(parts), -1, attention.head_dim)
        return joined.permute(2, 0, 3, 1, 4).unbind()
    widths, heads = (
        [attention.value_dim if part == "v" else attention.head_dim for part in parts],
        _heads(attention),
    )
    split = states.split([heads * width for width in widths], dim=-1)
    return [attention.split_heads(part, width) for part, width in zip(split, widths, strict=True)]


def _readable(memory: Sequence[Tensor], moment: Moment, fused: bool) -> tuple[list[Tensor], Tensor]:
    """Return what attention reads of the target's memory, `(B, H, R, N, ·)`, and the mask to add to
    its scores.

    Fused, it reads the positions that the ancestors of each hypothesis wrote, `(B, H, N, R, ·)`;
    otherwise the positions of all beams, `(B, H, R * N, ·)`.
    """
    if not fused:
        return [tensor.flatten(2, 3) for tensor in memory], moment.past_of_all
    if memory[0].shape[3] == 1:
        return [tensor.transpose(2, 3) for tensor in memory], moment.past
    heads, steps = (torch.arange(size, device=memory[0].device) for size in memory[0].shape[1:3])
    places = (
        moment.slots[:, None, None, None],
        heads[:, None, None],
        steps,
        moment.ancestors[:, None],
    )
    return [tensor[places] for tensor in memory], moment.past


def attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scaling: float) -> Tensor:
    """Return `softmax(Q Kᵀ · scaling + mask) V` with heads joined, `(B, N, D)`."""
    of_many = query.device.type == "cpu" and query.dtype == torch.float32 and query.shape[0] > 1
    if _is_fused(query) or of_many:
        # In float32, flash attention takes up to four times as long as these products for the few
        # queries of many slots. In bfloat16 it is faster, and they would round otherwise than it
        # does for one slot.
        scores = scores_of(query * scaling, keys) + mask
        return join_heads(weighted(nn.functional.softmax(scores, dim=-1), values))
    attended = nn.functional.scaled_dot_product_attention(
        query, keys, values, attn_mask=mask, scale=scaling
    )
    return join_heads(attended)


def scores_of(query: Tensor, keys: Tensor) -> Tensor:
    """Return `Q Kᵀ`, `(…, N, M)`, of queries `(…, N, K)` and keys `(…, M, K)`.

    Fused, keys may also be `(…, N, M, K)`: others for each query.
    """
    if _is_fused(query):
        return (query[..., None, :] * _for_each(query, keys)).sum(dim=-1)
    return query @ keys.transpose(-1, -2)


def weighted(weights: Tensor, values: Tensor) -> Tensor:
    """Return sums of values, `(…, N, K)`, with weights `(…, N, M)`.

    Args:
        values: `(…, M, K)`, or others for each row of weights, `(…, N, M, K)`.
    """
    if _is_fused(weights):
        return (weights[..., None] * _for_each(weights, values)).sum(dim=-2)
    return (
        weights @ values
        if values.dim() == weights.dim()
        else (weights[..., None, :] @ values)[..., 0, :]
    )


def _for_each(rows: Tensor, others: Tensor) -> Tensor:
    """Return the vectors by which each row `(…, N, ·)` is multiplied, `(…, N, M, K)`, or
    `(…, 1, M, K)` for all.
    """
    return others if others.dim() > rows.dim() else others[..., None, :, :]


def _is_fused(states: Tensor) -> bool:
    """Tell whether products become sums that a compiler for CPUs fuses with what comes before and
    after.

    They replace a call of BLAS for each head of each slot, which has a few rows.
    """
    return states.device.type == "cpu" and torch.compiler.is_compiling()


def mix(of_target: Tensor, target: Tensor, of_prompt: Tensor, prompt: Tensor) -> Tensor:
    """
    Return the mean of all values, weighted by the softmax of their scores, with heads joined:
    `(B, N, D)`.

    Args:
        of_target, of_prompt: Scores `(B, H, N, M)` and `(B, H, N, R)`.
        target, prompt: Values of [`weighted`] with these scores.
    """
    scores = torch.cat([of_prompt, of_target], dim=-1).float()
    probabilities = nn.functional.softmax(scores, dim=-1).to(target.dtype)
    for_prompt, for_target = probabilities.split([of_prompt.shape[-1], of_target.shape[-1]], dim=-1)
    return join_heads(weighted(for_prompt, prompt) + weighted(for_target, target))


def join_heads(states: Tensor) -> Tensor:
    """Map `(B, H, N, K)` to `(B, N, D)`."""
    return states.transpose(1, 2).flatten(2)


def additive(seen: Tensor) -> Tensor:
    """Return a mask to add to scores from one that is True where a position may be seen."""
    return torch.where(seen, 0.0, _UNSEEN)


class Sums(NamedTuple):
    """Sums of `φ(k) vᵀ` of one layer: over the target, `(B, N, H, K, K + 1)`, or the source,
    `(B, H, K, K + 1)`.
    """

    sums: Tensor


def _empty_sums(
    attention: "VanillaTransformerAttention", slots: int, room: int, *beams: int
) -> Sums:
    weight, width = attention.out_proj.weight, attention.head_dim
    sizes = slots, *beams, _heads(attention), width, width + 1
    return Sums(
        torch.zeros(
            sizes, dtype=torch.promote_types(weight.dtype, torch.float32), device=weight.device
        )
    )


class StaticLinearAttention(StaticSelfAttention):
    """The static form of linear self-attention."""

    empty_memory = staticmethod(_empty_sums)  # type: ignore[assignment]

    @staticmethod
    def read_prompt(cache: Any) -> Sums:  # type: ignore[override]
        """Return the sums over prompts in the cache of a layer, `(W, H, K, K + 1)`."""
        return Sums(torch.cat([cache.values, cache.keys[..., None]], dim=-1))

    def forward(  # type: ignore[override]
        self,
        attention: "VanillaTransformerAttention",
        states: Tensor,
        moment: Moment,
        memory: Sums,
        prompt: Sums | None,
    ) -> Tensor:
        query, key, value = (
            attention.split_heads(part, attention.head_dim)
            for part in self.qkv_proj(states).chunk(3, dim=-1)
        )
        new = _features(key)[..., None] * _with_ones(value)[..., None, :]  # (B, H, N, K, K + 1)
        slots = torch.arange(states.shape[0], device=states.device)
        before = (moment.time - 1).clamp(min=0)[:, None, None].expand(-1, states.shape[1], 1)
        parents = moment.ancestors.gather(2, before)[..., 0]  # (B, N)
        is_first = (moment.time == 0)[:, None, None, None, None]
        past = torch.where(is_first, 0.0, memory.sums[slots[:, None], parents])
        if prompt is not None:  # which has the token at time 0
            new = torch.where(is_first, 0.0, new)
        memory.sums.copy_(past + new.transpose(1, 2))
        query = _features(query)
        summed = weighted(query, memory.sums.transpose(1, 2))  # (B, H, N, K + 1)
        if prompt is not None:
            summed = summed + weighted(query, prompt.sums)
        return attention.out_proj(_divide(summed, states))


class StaticLinearCrossAttention(nn.Module):
    """The static form of linear cross-attention."""

    empty_memory = staticmethod(_empty_sums)

    @staticmethod
    def read_source(
        attention: "VanillaTransformerAttention", states: Tensor, lengths: Tensor
    ) -> Sums:
        """Return the sums over states `(W, S, D)`, of which attention may see `(W,)`:
        `(W, H, K, K + 1)`.
        """
        keys, values = attention.project(states)
        seen = torch.arange(states.shape[1], device=states.device) < lengths[:, None]  # (W, S)
        return Sums(
            (_features(keys) * seen[:, None, :, None]).transpose(-1, -2) @ _with_ones(values)
        )

    def forward(
        self,
        attention: "VanillaTransformerAttention",
        states: Tensor,
        moment: Moment,
        source: Sums,
        *_: Any,
    ) -> Tensor:
        """Map `(B, N, D)` to `(B, N, D)`."""
        query = attention.split_heads(attention.q_proj(states), attention.head_dim)  # (B, H, N, K)
        return attention.out_proj(_divide(weighted(_features(query), source.sums), states))


def _features(states: Tensor) -> Tensor:
    return feature_map(states.to(torch.promote_types(states.dtype, torch.float32)))


def _with_ones(values: Tensor) -> Tensor:
    values = values.to(torch.promote_types(values.dtype, torch.float32))
    return nn.functional.pad(values, (0, 1), value=1.0)


def _divide(summed: Tensor, states: Tensor) -> Tensor:
    """Divide sums `(B, H, N, K + 1)` by their last column, and join the heads: `(B, N, D)` of the
    type of `states`.
    """
    denominator = summed[..., -1:].clamp(min=torch.finfo(summed.dtype).tiny)
    return join_heads((summed[..., :-1] / denominator).to(states.dtype))


class HashedKeys(NamedTuple):
    """
    Keys of unit length, values and buckets of one layer.

    Of the target, `(B, H, R, N, K)` and `(B, H, R, N, C)`, or of the source, `(B, H, R, K)` and
    `(B, H, R, C)`.
    """

    keys: Tensor
    values: Tensor
    buckets: Tensor


class StaticLSHAttention(StaticSelfAttention):
    """The static form of LSH self-attention."""

    has_batched_products = True  # its rotations; see `kinds_of`
    rotations: Tensor

    def __init__(self, attention: "VanillaTransformerLSHAttention"):
        super().__init__(attention)
        seed, rounds, buckets = hash_settings(attention)
        drawn = rotations(seed, _heads(attention), attention.head_dim, rounds, buckets)
        self.register_buffer("rotations", drawn)  # in the identity of a compiled step

    @staticmethod
    def inputs_of(attention: "VanillaTransformerAttention") -> list[Any]:
        """Return the projections that become one product: queries are keys, too."""
        return [attention.q_proj, attention.v_proj]

    @staticmethod
    def empty_memory(  # type: ignore[override]
        attention: "VanillaTransformerAttention", slots: int, *sizes: int
    ) -> HashedKeys:
        keys, values = empty_keys(attention, slots, *sizes)
        shape = *keys.shape[:-1], attention.config.num_hashes
        return HashedKeys(keys, values, keys.new_zeros(shape, dtype=torch.int32))

    @staticmethod
    def read_prompt(cache: Any) -> HashedKeys:  # type: ignore[override]
        """Return keys, values and buckets of prompts in the cache of a layer: `(W, H, S, K)`,
        `(W, H, S, C)`.
        """
        keys = nn.functional.normalize(cache.keys, dim=-1)
        return HashedKeys(keys, cache.values, cache.buckets.transpose(-1, -2).int())

    def forward(  # type: ignore[override]
        self,
        attention: "VanillaTransformerAttention",
        states: Tensor,
        moment: Moment,
        memory: HashedKeys,
        prompt: HashedKeys | None,
    ) -> Tensor:
        query, value = split_heads(attention, self.qkv_proj(states), "qv")
        buckets = nearest_buckets(query, self.rotations).transpose(-1, -2).int()  # (B, H, N, C)
        for tensor, entry in zip(
            memory, (nn.functional.normalize(query, dim=-1), value, buckets), strict=True
        ):
            tensor[moment.slots, :, moment.time] = entry
        fused = _is_fused(query)
        (keys, values, own_buckets), past = _readable(memory, moment, fused)
        steps = torch.arange(keys.shape[-2], device=states.device) // (
            1 if fused else query.shape[2]
        )
        # (B, 1, 1, P), if its beam is not hidden
        is_itself = (steps == moment.time[:, None])[:, None, None]
        scores = torch.where(is_itself, SELF_SCORE, scores_of(query, keys).float())
        scores = scores + past + _if_shared(buckets, own_buckets)
        if prompt is None:
            probabilities = scores.softmax(dim=-1).to(values.dtype)
            return attention.out_proj(join_heads(weighted(probabilities, values)))
        of_prompt = scores_of(query, prompt.keys).float() + moment.source
        of_prompt = of_prompt + _if_shared(buckets, prompt.buckets)
        return attention.out_proj(mix(scores, values, of_prompt, prompt.values))


def _if_shared(buckets: Tensor, others: Tensor) -> Tensor:
    """Return a mask `(B, H, N, P)` to add to scores: of buckets `(B, H, N, C)` with others, see
    [`scores_of`].
    """
    return additive((buckets[..., None, :] == _for_each(buckets, others)).any(dim=-1))
