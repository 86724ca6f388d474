"""
Softmax attention in a decoder step of static shape, and what the static forms of all attentions share.

A static form computes one of the model's attentions for one token of each beam. It takes that attention
as an argument, for its projections and settings, and keeps two kinds of memory:

- its own, of the target. All beams of a slot share it: the key of beam n at step t stays where it was written, and
  `ancestors` names the beam of each step that a hypothesis descends from. So no key or value ever moves.
- of the source, the same for all beams: the encoder's output for cross-attention, or the prompt for the
  self-attention of a model without an encoder.

Letters in shapes: B slots, N beams, R room for positions of the source or the target, W sources in a batch, S their
positions, D d_model, H heads, K head width.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vanilla_transformer.inference.weight_packing import inputs_of, join_biases

_UNSEEN = -1.0e9  # added to the scores of positions that must not be seen


class Moment(NamedTuple):
    """
    What all layers share in a step.

    Attributes:
        time: Position of the tokens in the target, `(B,)`.
        done: Slots whose sentences are done, `(B,)`.
        ancestors: The beam of each step that a hypothesis descends from, `(B, N, R)`; at this step, itself.
        past, source: Masks to add to the scores of positions of the target and of the source, `(B, 1, 1, R)`.
    """

    time: Tensor
    done: Tensor
    ancestors: Tensor
    past: Tensor
    source: Tensor


class KeysAndValues(NamedTuple):
    """Keys and values of one layer: of the target, `(B, H, R, N, K)`, or of the source, `(B, H, R, K)`."""

    keys: Tensor
    values: Tensor


class StaticSelfAttention(nn.Module):
    """The static form of softmax self-attention: the projections of one input are one product."""

    def __init__(self, attention: Any):
        super().__init__()
        self.qkv_proj = join_linears(self.inputs_of(attention))

    @staticmethod
    def inputs_of(attention: Any) -> list[Any]:
        """Return the projections that become one product."""
        return inputs_of(attention)

    @staticmethod
    def own_memory(attention: Any, slots: int, beams: int, room: int) -> KeysAndValues:
        return KeysAndValues(*zeros_like_heads(attention, 2, slots, room, beams))

    @staticmethod
    def prompt_memory(attention: Any, slots: int, room: int) -> KeysAndValues:
        return KeysAndValues(*zeros_like_heads(attention, 2, slots, room))

    @staticmethod
    def read_prompt(cache: Any) -> KeysAndValues:
        """Return the keys and values of prompts in the cache of a layer, `(W, H, S, K)`."""
        return KeysAndValues(cache.keys, cache.values)

    def forward(
        self, attention: Any, states: Tensor, moment: Moment, own: KeysAndValues, prompt: KeysAndValues | None
    ) -> Tensor:
        """Map `(B, N, D)` to `(B, N, D)`, after the tokens of the prompt, if there is one."""
        query, key, value = (attention.split_heads(part) for part in self.qkv_proj(states).chunk(3, dim=-1))
        write(own, moment.time, key, value)
        keys, values = (trace(memory, moment.ancestors) for memory in own)  # (B, H, N, R, K)
        if prompt is None:
            output = attend(query[:, :, :, None], keys, values, moment.past[:, :, None], attention.scaling)
        else:
            query = query * attention.scaling
            of_prompt = query @ prompt.keys.transpose(-1, -2) + moment.source
            of_target = times_each(query, keys.transpose(-1, -2)) + moment.past
            output = join_heads(mix(of_target, values, of_prompt, prompt.values))
        return attention.out_proj(output)


class StaticCrossAttention(nn.Module):
    """
    The static form of softmax cross-attention.

    Args:
        kept_heads: Heads whose queries are kept, from which [`read_attention`] computes their attention.
    """

    def __init__(self, kept_heads: Sequence[int] = ()):
        super().__init__()
        self.kept_heads = tuple(kept_heads)

    @staticmethod
    def source_memory(attention: Any, slots: int, room: int) -> KeysAndValues:
        return KeysAndValues(*zeros_like_heads(attention, 2, slots, room))

    @staticmethod
    def read_source(attention: Any, states: Tensor, lengths: Tensor) -> KeysAndValues:
        """Return keys and values of states `(W, S, D)`, of which attention may see `(W,)`: `(W, H, S, K)`."""
        return KeysAndValues(*attention.project(states))

    def forward(
        self, attention: Any, states: Tensor, moment: Moment, source: KeysAndValues, queries: Sequence[Tensor] = ()
    ) -> Tensor:
        """Map `(B, N, D)` to `(B, N, D)`. Write the queries of the kept heads into `queries`, `(B, R, N, K)` each."""
        query = attention.split_heads(attention.q_proj(states))  # (B, H, N, K)
        for head, memory in zip(self.kept_heads, queries, strict=True):
            place = torch.arange(len(states), device=states.device), moment.time
            kept = torch.where(moment.done[:, None, None], memory[place], query[:, head])
            memory.index_put_(place, kept)
        return attention.out_proj(attend(query, *source, moment.source, attention.scaling))

    def extra_repr(self) -> str:
        return f"kept_heads={self.kept_heads}" if self.kept_heads else ""  # in the identity of a compiled step


def zeros_like_heads(attention: Any, count: int, slots: int, *sizes: int) -> list[Tensor]:
    """Return tensors `(slots, H, *sizes, K)` of the type and on the device of an attention's weights."""
    weight, width = attention.out_proj.weight, attention.head_dim
    heads = attention.out_proj.in_features // width
    like = {"dtype": weight.dtype, "device": weight.device}
    return [torch.zeros(slots, heads, *sizes, width, **like) for _ in range(count)]


def join_linears(linears: list[Any]) -> nn.Linear:
    """Return one layer with the outputs of several layers of the same input, side by side."""
    first, bias = linears[0], join_biases(linears)
    outputs = sum(linear.out_features for linear in linears)
    joined = nn.Linear(first.in_features, outputs, bias is not None, device="meta")
    joined.weight = nn.Parameter(torch.cat([linear.weight.detach() for linear in linears]), requires_grad=False)
    if bias is not None:
        joined.bias = nn.Parameter(bias, requires_grad=False)
    return joined


def write(memory: tuple[Tensor, ...], time: Tensor, *entries: Tensor) -> None:
    """Write the entries of this step, `(B, H, N, ·)`, into memory of the target, `(B, H, R, N, ·)`."""
    slots, heads = (torch.arange(size, device=time.device) for size in entries[0].shape[:2])
    place = slots[:, None], heads, time[:, None]
    for tensor, entry in zip(memory, entries, strict=True):
        tensor.index_put_(place, entry)


def trace(memory: Tensor, ancestors: Tensor) -> Tensor:
    """Return what each hypothesis has written, `(B, H, N, R, ·)`, from what all beams have, `(B, H, R, N, ·)`."""
    if memory.shape[3] == 1:
        return memory.transpose(2, 3)
    slots, heads, steps = (torch.arange(size, device=memory.device) for size in memory.shape[:3])
    if torch.compiler.is_compiling() or memory.device.type != "cpu":
        return memory[slots[:, None, None, None], heads[:, None, None], steps, ancestors[:, None]]
    # The same in a third of the time, if the step is not compiled: each row is copied as a whole.
    first = ((slots[:, None] * len(heads) + heads)[:, :, None] * len(steps) + steps) * memory.shape[3]  # (B, H, R)
    rows = (first[:, :, None] + ancestors[:, None]).flatten()
    return memory.flatten(0, 3).index_select(0, rows).view(*memory.shape[:2], *ancestors.shape[1:], *memory.shape[4:])


def attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scaling: float) -> Tensor:
    """Return `softmax(Q Kᵀ · scaling + mask) V` with heads joined, `(B, N, D)`."""
    scores = (query * scaling) @ keys.transpose(-1, -2)
    probabilities = nn.functional.softmax(scores.float() + mask, dim=-1).to(values.dtype)
    output = probabilities @ values  # (B, H, N, 1, K) or (B, H, N, K)
    return join_heads(output.reshape(*query.shape[:3], -1))


def mix(of_target: Tensor, target: Tensor, of_prompt: Tensor, prompt: Tensor) -> Tensor:
    """
    Return the mean of all values, weighted by the softmax of their scores: `(B, H, N, K)`.

    Args:
        of_target, of_prompt: Scores `(B, H, N, R)`.
        target, prompt: Values `(B, H, N, R, K)` and `(B, H, R, K)`.
    """
    scores = torch.cat([of_prompt, of_target], dim=-1).float()
    probabilities = nn.functional.softmax(scores, dim=-1).to(target.dtype)
    for_prompt, for_target = probabilities.split([of_prompt.shape[-1], of_target.shape[-1]], dim=-1)
    return for_prompt @ prompt + times_each(for_target, target)


def times_each(rows: Tensor, matrices: Tensor) -> Tensor:
    """Multiply each row of `(B, H, N, I)` by its own matrix of `(B, H, N, I, J)`: `(B, H, N, J)`."""
    return (rows[:, :, :, None] @ matrices)[:, :, :, 0]


def join_heads(states: Tensor) -> Tensor:
    """Map `(B, H, N, K)` to `(B, N, D)`."""
    return states.transpose(1, 2).flatten(2)


def additive(seen: Tensor) -> Tensor:
    """Return a mask to add to scores from one that is True where a position may be seen."""
    return torch.where(seen, 0.0, _UNSEEN)


__all__ = ["KeysAndValues", "Moment", "StaticCrossAttention", "StaticSelfAttention", "additive", "attend"]
__all__ += ["join_heads", "join_linears", "mix", "times_each", "trace", "write", "zeros_like_heads"]
