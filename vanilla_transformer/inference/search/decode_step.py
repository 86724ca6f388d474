"""
Run the decoder for the next token of every hypothesis.

The beams of a sentence are positions of one sequence: all share its keys and values, also for the source,
and a mask lets each beam see its own past, so that nothing moves when beams change places. Keys and values are written
to memory that is already there.

Letters in shapes: B sentences in the batch, N beams, T new positions, L cached positions, S source length, D d_model,
H heads, K head width, V vocabulary.
"""

from typing import Any

import torch
from torch import nn

from vanilla_transformer.inference.weight_packing import inputs_of

# Pairs of positions up to which plain products take less time than SDPA on a CPU.
_FEW_PAIRS = {torch.float32: 2**14, torch.bfloat16: 2**18}
_POSITIONS_AT_ONCE = 128
_LEAST_ROOM = 16  # positions for which keys and values get memory at first


class IncrementalDecoder:
    """
    The decoder with the keys and values of everything that it has read.

    Args:
        model: A `VanillaTransformerForConditionalGeneration`.
        source_states (`torch.FloatTensor` of shape `(B, S, D)`): The encoder's output.
        source_mask (`torch.Tensor` of shape `(B, S)`): 1 for tokens, 0 for padding.
        beams: N.
    """

    def __init__(self, model: Any, source_states: torch.Tensor, source_mask: torch.Tensor | None, beams: int):
        self._decoder, self._lm_head = model.model.decoder, model.lm_head
        self._dtype = source_states.dtype
        self._source_mask = None
        if source_mask is not None and not source_mask.all():
            self._source_mask = _additive(source_mask[:, None, None, :].bool(), self._dtype)
        self._layers = [_Layer(layer, source_states) for layer in self._decoder.layers]
        self._beams = beams
        self._seen: torch.Tensor | None = None  # (B, N, L): which of its sentence's keys a beam may see
        self._length = 0
        self._positions = source_states.new_empty(0, source_states.shape[-1])

    def start(self, prompt: torch.Tensor) -> torch.Tensor:
        """Return the logits `(B, V)` after `prompt` of shape `(B, T)`, which all beams of a sentence share."""
        length = prompt.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=prompt.device).tril_()
        states = self._run(prompt, range(length), _additive(causal, self._dtype) if length > 1 else None)
        if self._beams > 1:
            self._seen = prompt.new_ones(len(prompt), self._beams, length, dtype=torch.bool)
        self._length = length
        return self._lm_head(states[:, -1]).float()

    def step(self, tokens: torch.Tensor, parents: torch.Tensor | None = None) -> torch.Tensor:
        """
        Return the logits `(B * N, V)` after one more token of each beam.

        Args:
            tokens (`torch.LongTensor` of shape `(B, N)`): The new tokens.
            parents (`torch.LongTensor` of shape `(B, N)`): The beam that each token continues, with several beams.
        """
        mask = None
        if parents is not None:
            assert self._seen is not None
            inherited = self._seen.gather(1, parents[:, :, None].expand(-1, -1, self._seen.shape[2]))
            itself = torch.eye(self._beams, dtype=torch.bool, device=tokens.device).expand(len(tokens), -1, -1)
            self._seen = torch.cat([inherited, itself], dim=2)
            mask = _additive(self._seen[:, None], self._dtype)  # (B, 1, N, L)
        states = self._run(tokens, range(self._length, self._length + 1), mask)
        self._length += 1
        return self._lm_head(states.flatten(0, 1)).float()

    def keep(self, sentences: torch.Tensor) -> None:
        """Leave only the given sentences, by their places `(B,)`, in the batch."""
        if self._source_mask is not None:
            self._source_mask = self._source_mask[sentences]
        if self._seen is not None:
            self._seen = self._seen[sentences]
        for layer in self._layers:
            layer.keep(sentences)

    def _run(self, tokens: torch.Tensor, positions: range, mask: torch.Tensor | None) -> torch.Tensor:
        """Return the decoder's output `(B, T, D)` at `tokens` `(B, T)`."""
        states = self._decoder.embed_tokens(tokens) + self._encodings(positions)  # (B, T, D)
        for layer in self._layers:
            states = layer.run(states, mask, self._source_mask)
        norm = self._decoder.layer_norm
        return states if norm is None else norm(states)

    def _encodings(self, positions: range) -> torch.Tensor:
        """Return the positional encodings, `(len(positions), D)`, computed many at a time."""
        known = len(self._positions)
        if positions.stop > known:
            end = max(positions.stop, known + _POSITIONS_AT_ONCE)
            if isinstance(self._decoder.embed_positions, nn.Embedding):
                end = min(end, self._decoder.embed_positions.num_embeddings)
            ids = torch.arange(known, end, device=self._positions.device)[None]
            new = self._decoder.embed_positions(ids)[0].to(self._dtype)
            self._positions = torch.cat([self._positions, new])
        return self._positions[positions.start : positions.stop]


class _Layer:
    """A decoder layer with its keys and values of the source and of the positions before."""

    def __init__(self, layer: Any, source_states: torch.Tensor):
        self._layer = layer
        self._joined_projection = getattr(layer.self_attn, "qkv_proj", None)  # see `weight_packing`
        # (B, H, S, K). Contiguous, or every step would copy them for its products.
        self._source_keys, self._source_values = (
            each.contiguous() for each in layer.encoder_attn.project(source_states)
        )
        self._keys = self._values = self._source_keys[:, :, :0]  # (B, H, room for more than L, K)
        self._length = 0

    def run(self, states: torch.Tensor, mask: torch.Tensor | None, source_mask: torch.Tensor | None) -> torch.Tensor:
        """Map `(B, T, D)` to `(B, T, D)`; masks are added to the scores of attention."""
        layer = self._layer
        if layer.normalize_before:
            states = states + self._attend_to_target(layer.self_attn_layer_norm(states), mask)
            states = states + self._attend_to_source(layer.encoder_attn_layer_norm(states), source_mask)
            return states + layer.feed_forward(layer.final_layer_norm(states))
        states = layer.self_attn_layer_norm(states + self._attend_to_target(states, mask))
        states = layer.encoder_attn_layer_norm(states + self._attend_to_source(states, source_mask))
        return layer.final_layer_norm(states + layer.feed_forward(states))

    def keep(self, sentences: torch.Tensor) -> None:
        """Leave only the given sentences in the batch."""
        for name in ("_source_keys", "_source_values", "_keys", "_values"):
            setattr(self, name, getattr(self, name).index_select(0, sentences))

    def _attend_to_target(self, states: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        attention = self._layer.self_attn
        if self._joined_projection is not None:
            parts = self._joined_projection(states).chunk(3, dim=-1)
        else:
            parts = [project(states) for project in inputs_of(attention)]
        query, key, value = (_split_heads(part, attention.head_dim) for part in parts)
        keys, values = self._store(key, value)
        return attention.out_proj(_attend(query, keys, values, mask, attention.scaling))

    def _attend_to_source(self, states: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        attention = self._layer.encoder_attn
        query = _split_heads(attention.q_proj(states), attention.head_dim)
        return attention.out_proj(_attend(query, self._source_keys, self._source_values, mask, attention.scaling))

    def _store(self, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Append keys and values `(B, H, T, K)` and return all of them; double the memory whenever it is full."""
        start, end = self._length, self._length + key.shape[2]
        if end > self._keys.shape[2]:
            size = max(2 * end, _LEAST_ROOM)
            self._keys, self._values = (_enlarge(room, start, size) for room in (self._keys, self._values))
        self._keys[:, :, start:end] = key
        self._values[:, :, start:end] = value
        self._length = end
        return self._keys[:, :, :end], self._values[:, :, :end]


def _enlarge(room: torch.Tensor, used: int, size: int) -> torch.Tensor:
    larger = room.new_empty(*room.shape[:2], size, room.shape[3])
    larger[:, :, :used] = room[:, :, :used]
    return larger


def _split_heads(states: torch.Tensor, head_dim: int) -> torch.Tensor:
    return states.view(*states.shape[:-1], -1, head_dim).transpose(1, 2)  # (B, T, D) -> (B, H, T, K)


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, scaling: float
) -> torch.Tensor:
    """Return `softmax(Q Kᵀ · scaling + mask) V` with heads joined, `(B, T, D)`."""
    if query.device.type == "cpu" and query.shape[2] * key.shape[2] <= _FEW_PAIRS.get(query.dtype, 0):
        scores = (query * scaling) @ key.transpose(2, 3)  # (B, H, T, L)
        output = nn.functional.softmax(scores if mask is None else scores + mask, dim=-1) @ value
    else:
        output = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling)
    return output.transpose(1, 2).flatten(2)  # (B, H, T, K) -> (B, T, D)


def _additive(visible: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a mask to add to scores, from one that is True where a key may be seen."""
    mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
    return mask.masked_fill_(~visible, torch.finfo(dtype).min)


__all__ = ["IncrementalDecoder"]
