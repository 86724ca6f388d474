"""
One decoder step of static shape, for all slots of the engine at once.

No tensor changes its shape from step to step, and nothing looks at a value: the same function runs eagerly, compiled
on a CPU, and in a CUDA graph. The slots are at different positions of their sentences. All beams of a slot share its
memory: the key of beam n at step t stays where it was written, and `ancestors` names the beam of each step that a
hypothesis descends from. So no key or value ever moves.

Letters in shapes: B slots, N beams, R room for positions of the source or the target, D d_model, H heads, K head
width, V vocabulary.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .weight_packing import inputs_of, join_biases

_UNSEEN = -1.0e9  # added to the scores of positions that must not be seen


class LayerMemory(NamedTuple):
    """Keys and values of one layer: of the target, `(B, H, R, N, K)`, and of the source, `(B, H, R, K)`."""

    keys: Tensor
    values: Tensor
    source_keys: Tensor
    source_values: Tensor


class SlotMemory(NamedTuple):
    """
    What the decoder remembers of all slots.

    Attributes:
        positions: Positional encodings, `(R, D)`.
        source_lengths: Tokens of each source, `(B,)`.
        layers: Keys and values of each layer, updated in place.
    """

    positions: Tensor
    source_lengths: Tensor
    layers: list[LayerMemory]

    @classmethod
    def empty(cls, model: Any, slots: int, beams: int, room: int) -> "SlotMemory":
        """Allocate memory for the decoder of a model. Learned positions beyond the last one repeat it."""
        config, decoder = model.config, model.get_decoder()
        heads, like = config.decoder_attention_heads, {"dtype": model.dtype, "device": model.device}
        width = config.d_model // heads
        steps = torch.arange(room, device=model.device)
        if isinstance(decoder.embed_positions, nn.Embedding):
            steps = steps.clamp(max=decoder.embed_positions.num_embeddings - 1)
        layers = [
            LayerMemory(
                *(torch.zeros(slots, heads, room, beams, width, **like) for _ in range(2)),
                *(torch.zeros(slots, heads, room, width, **like) for _ in range(2)),
            )
            for _ in decoder.layers
        ]
        positions = decoder.embed_positions(steps[None])[0].to(model.dtype)
        return cls(positions, torch.ones(slots, dtype=torch.long, device=model.device), layers)


class StaticDecoder(nn.Module):
    """
    The decoder and the output projection, with the weights of a `VanillaTransformerForConditionalGeneration`.

    Args:
        model: The model.
    """

    def __init__(self, model: Any):
        super().__init__()
        decoder = model.get_decoder()
        self.embed_tokens, self.layer_norm, self.lm_head = decoder.embed_tokens, decoder.layer_norm, model.lm_head
        self.layers = nn.ModuleList(StaticDecoderLayer(layer) for layer in decoder.layers)

    def forward(self, tokens: Tensor, time: Tensor, ancestors: Tensor, memory: SlotMemory) -> Tensor:
        """
        Compute the logits `(B, N, V)` after one more token of each beam, in float32.

        Args:
            tokens: `(B, N)`.
            time: Position of these tokens, `(B,)`.
            ancestors: The beam of each step that a hypothesis descends from, `(B, N, R)`; at this step, itself.
            memory: Its keys and values are updated.
        """
        steps = torch.arange(ancestors.shape[2], device=time.device)
        past = _additive(steps <= time[:, None])  # (B, 1, 1, R)
        source = _additive(steps < memory.source_lengths[:, None])  # (B, 1, 1, R)
        states = self.embed_tokens(tokens) + memory.positions[time][:, None]  # (B, N, D)
        for layer, layer_memory in zip(self.layers, memory.layers, strict=True):
            states = layer(states, time, ancestors, past, source, layer_memory)
        return self.lm_head(states if self.layer_norm is None else self.layer_norm(states)).float()


class StaticDecoderLayer(nn.Module):
    """A decoder layer for one token of each beam."""

    def __init__(self, layer: Any):
        super().__init__()
        self.layer = layer
        self.qkv_proj = _join_linears(inputs_of(layer.self_attn))

    def forward(
        self, states: Tensor, time: Tensor, ancestors: Tensor, past: Tensor, source: Tensor, memory: LayerMemory
    ) -> Tensor:
        """Map `(B, N, D)` to `(B, N, D)`; `past` and `source` are masks that are added to scores."""
        layer, own, cross = self.layer, self.layer.self_attn, self.layer.encoder_attn

        def attend_to_target(states: Tensor) -> Tensor:
            query, key, value = (own.split_heads(part) for part in self.qkv_proj(states).chunk(3, dim=-1))
            slots, heads = (torch.arange(size, device=time.device) for size in key.shape[:2])
            place = slots[:, None], heads, time[:, None]
            memory.keys.index_put_(place, key)
            memory.values.index_put_(place, value)
            keys, values = _trace(memory.keys, ancestors), _trace(memory.values, ancestors)  # (B, H, N, R, K)
            return own.out_proj(_attend(query[:, :, :, None], keys, values, past[:, :, None], own.scaling))

        def attend_to_source(states: Tensor) -> Tensor:
            query = cross.split_heads(cross.q_proj(states))  # (B, H, N, K)
            return cross.out_proj(_attend(query, memory.source_keys, memory.source_values, source, cross.scaling))

        states = layer.add_and_norm(states, layer.self_attn_layer_norm, attend_to_target)
        states = layer.add_and_norm(states, layer.encoder_attn_layer_norm, attend_to_source)
        return layer.add_and_norm(states, layer.final_layer_norm, layer.position_wise)


def _join_linears(linears: list[Any]) -> nn.Linear:
    """Return one layer with the outputs of several layers of the same input, side by side."""
    first, bias = linears[0], join_biases(linears)
    outputs = sum(linear.out_features for linear in linears)
    joined = nn.Linear(first.in_features, outputs, bias is not None, device="meta")
    joined.weight = nn.Parameter(torch.cat([linear.weight.detach() for linear in linears]), requires_grad=False)
    if bias is not None:
        joined.bias = nn.Parameter(bias, requires_grad=False)
    return joined


def _trace(memory: Tensor, ancestors: Tensor) -> Tensor:
    """Return what each hypothesis has written, `(B, H, N, R, K)`, from what all beams have, `(B, H, R, N, K)`."""
    if memory.shape[3] == 1:
        return memory.transpose(2, 3)
    slots, heads, steps = (torch.arange(size, device=memory.device) for size in memory.shape[:3])
    return memory[slots[:, None, None, None], heads[:, None, None], steps, ancestors[:, None]]


def _attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scaling: float) -> Tensor:
    """Return `softmax(Q Kᵀ · scaling + mask) V` with heads joined, `(B, N, D)`."""
    scores = (query * scaling) @ keys.transpose(-1, -2)
    probabilities = nn.functional.softmax(scores.float() + mask, dim=-1).to(values.dtype)
    output = probabilities @ values  # (B, H, N, 1, K) or (B, H, N, K)
    return output.reshape(*query.shape[:3], -1).transpose(1, 2).flatten(2)


def _additive(seen: Tensor) -> Tensor:
    """Return a mask `(B, 1, 1, R)` to add to scores, from one that is True where a position may be seen."""
    return torch.where(seen, 0.0, _UNSEEN)[:, None, None]


__all__ = ["LayerMemory", "SlotMemory", "StaticDecoder"]
