"""
One decoder step of static shape, for all slots of the engine at once.

No tensor changes its shape from step to step, and nothing looks at a value: the same function runs
eagerly, compiled on a CPU, and in a CUDA graph. The slots are at different positions of their
sentences.

A decoder without an encoder has its prompts as sources. Reading a prompt also computes the state
after its last token: the first step takes it instead of computing it again.

Letters in shapes: B slots, N beams, R room for positions of the source or the target, W sources in
a batch, S their positions, D d_model, V vocabulary.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

from vanilla_transformer.linear_attention import VanillaTransformerLinearAttention
from vanilla_transformer.lsh_attention import VanillaTransformerLSHAttention
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerAttention
from vanilla_transformer.reversible import apply_storing_activations

from .static_attention import (
    Moment,
    StaticCrossAttention,
    StaticLinearAttention,
    StaticLinearCrossAttention,
    StaticLSHAttention,
    StaticSelfAttention,
    additive,
)

# The static form of each attention that has one.
SELF_ATTENTIONS: dict[type, Any] = {
    VanillaTransformerAttention: StaticSelfAttention,
    VanillaTransformerLinearAttention: StaticLinearAttention,
    VanillaTransformerLSHAttention: StaticLSHAttention,
}
CROSS_ATTENTIONS: dict[type, Any] = {
    VanillaTransformerAttention: StaticCrossAttention,
    VanillaTransformerLinearAttention: StaticLinearCrossAttention,
}
# Each a layer of the decoder and a head of its cross-attention
AlignmentHeads = Sequence[tuple[int, int]]


class LayerMemory(NamedTuple):
    """
    The memory of one layer's attentions: of the target, and of the source or the prompt.

    `queries` has the queries of each head whose attention to the source is kept, `(B, R, N, K)`.
    """

    target: Any
    source: Any
    queries: list[Tensor]


class SlotMemory(NamedTuple):
    """
    What the decoder remembers of all slots.

    Attributes:
        positions: Positional encodings, `(R, D)`, or `(2R, D)` if the target follows a prompt.
        source_lengths: Tokens of each source or prompt, `(B,)`.
        first_states: One tensor, the states after the last tokens of prompts, `(B, D)`; none with
            an encoder.
        layers: The memory of each layer, updated in place.
    """

    positions: Tensor
    source_lengths: Tensor
    first_states: list[Tensor]
    layers: list[LayerMemory]

    @classmethod
    def empty(
        cls, model: Any, slots: int, beams: int, room: int, alignment_heads: AlignmentHeads = ()
    ) -> "SlotMemory":
        """Allocate memory for the decoder of a model.

        Learned positions beyond the last one repeat it.
        """
        decoder, follows_prompt = model.get_decoder(), not model.config.is_encoder_decoder
        first_states = torch.zeros(
            slots, model.config.d_model, dtype=model.dtype, device=model.device
        )
        steps = torch.arange(2 * room if follows_prompt else room, device=model.device)
        if isinstance(decoder.embed_positions, nn.Embedding):
            steps = steps.clamp(max=decoder.embed_positions.num_embeddings - 1)
        layers = []
        for index, layer in enumerate(decoder.layers):
            form, queries = SELF_ATTENTIONS[type(layer.self_attn)], list[Tensor]()
            target = form.empty_memory(layer.self_attn, slots, room, beams)
            if layer.has_cross_attention:
                source = CROSS_ATTENTIONS[type(layer.encoder_attn)].empty_memory(
                    layer.encoder_attn, slots, room
                )
                for _ in heads_of_layer(alignment_heads, index):
                    queries.append(source.keys.new_zeros(slots, room, beams, source.keys.shape[-1]))
            else:
                source = form.empty_memory(layer.self_attn, slots, room)
            layers.append(LayerMemory(target, source, queries))
        return cls(
            positions=decoder.embed_positions(steps[None])[0].to(model.dtype),
            source_lengths=torch.ones(slots, dtype=torch.long, device=model.device),
            first_states=[first_states] if follows_prompt else [],
            layers=layers,
        )

    def prefilled(self) -> Iterator[Tensor]:
        """Yield the tensors that a source or a prompt fills when it enters, in the order of
        [`prefill`].
        """
        yield from self.first_states
        for layer in self.layers:
            yield from layer.source


class StaticDecoder(nn.Module):
    """
    The decoder and the output projection, with the weights of a model.

    Args:
        model: A model that [`is_supported`].
        alignment_heads: Heads of cross-attention whose queries are kept.
    """

    def __init__(self, model: Any, alignment_heads: AlignmentHeads = ()):
        super().__init__()
        decoder, self._config = model.get_decoder(), model.config
        self.follows_prompt = not model.config.is_encoder_decoder
        self.is_reversible = getattr(model.config, "reversible", False)
        self.embed_tokens, self.layer_norm, self.lm_head = (
            decoder.embed_tokens,
            decoder.layer_norm,
            model.lm_head,
        )
        self.layers = nn.ModuleList(
            StaticDecoderLayer(layer, heads_of_layer(alignment_heads, index))
            for index, layer in enumerate(decoder.layers)
        )

    @property
    def can_be_wide(self) -> bool:
        """Whether it computes several tokens of a beam at once: all its attentions are softmax
        attention, and it has an encoder.
        """
        forms = set[type]()
        for layer in self.layers:
            forms |= {type(layer.self_attn), type(getattr(layer, "encoder_attn", None))}
        return forms == {StaticSelfAttention, StaticCrossAttention}

    def forward(
        self, tokens: Tensor, time: Tensor, done: Tensor, ancestors: Tensor, memory: SlotMemory
    ) -> Tensor:
        """
        Compute the logits `(B, N, V)` after one more token of each beam, or after each of N more
        tokens of one beam, in float32.

        Args:
            tokens: `(B, N)`. After a prompt, those at time 0 are not used: the prompt's last token
                is at this time.
            time: Position of these tokens in the target, `(B,)`, or `(B, N)` for N tokens of one
                beam.
            done: Slots whose sentences are done, `(B,)`.
            ancestors: The beam of each step that a hypothesis descends from, `(B, N, R)`; at this
                step, itself.
            memory: Updated in place.
        """
        slots, steps = (torch.arange(size, device=time.device) for size in ancestors.shape[::2])
        positions = time if time.dim() > 1 else time[:, None]  # (B, 1) or (B, N)
        past = steps <= positions[..., None]  # (B, 1, R) or (B, N, R)
        source = (steps < memory.source_lengths[:, None])[:, None]  # (B, 1, R)
        if self.follows_prompt:
            past = past & (steps > 0)  # the memory of the prompt has its last token
            positions = positions + memory.source_lengths[:, None] - 1
        masks = (additive(seen).to(memory.positions.dtype)[:, None] for seen in (past, source))
        moment = Moment(slots, time, done, ancestors, *masks)
        states = self.embed_tokens(tokens) + memory.positions[positions]  # (B, N, D)
        layers: list[Any] = [*self.layers]
        sublayers = [
            (layer.layer, norm, sublayer)
            for layer, layer_memory in zip(layers, memory.layers, strict=True)
            for norm, sublayer in layer.sublayers(moment, layer_memory)
        ]
        if self.is_reversible:
            branches = [layer.branch(norm, sublayer) for layer, norm, sublayer in sublayers]
            states = apply_storing_activations(branches, states, None)
        else:
            for layer, norm, sublayer in sublayers:
                states = layer.add_and_norm(states, norm, sublayer)
        states = states if self.layer_norm is None else self.layer_norm(states)
        if self.follows_prompt:
            states = torch.where(
                (time == 0)[:, None, None], memory.first_states[0][:, None], states
            )
        return self.lm_head(states).float()

    def extra_repr(self) -> str:
        """Return the fields of the configuration on which compiled code may depend: not weights,
        nor training.
        """
        others = {field.name for field in fields(PreTrainedConfig)} | {
            "init_std",
            "max_source_length",
            "use_cache",
        }
        names = [field.name for field in fields(type(self._config)) if field.name not in others]
        names = [name for name in names if not name.startswith("encoder_")]
        names = [name for name in names if not name.endswith(("dropout", "_token_id"))]
        return repr({name: getattr(self._config, name) for name in names})


class StaticDecoderLayer(nn.Module):
    """A decoder layer for one token of each beam.

    The queries of `kept_heads` of cross-attention are kept.
    """

    def __init__(self, layer: Any, kept_heads: Sequence[int] = ()):
        super().__init__()
        self.layer = layer
        self.self_attn = SELF_ATTENTIONS[type(layer.self_attn)](layer.self_attn)
        if layer.has_cross_attention:
            self.encoder_attn = CROSS_ATTENTIONS[type(layer.encoder_attn)](
                *([kept_heads] if kept_heads else [])
            )

    def sublayers(
        self, moment: Moment, memory: LayerMemory
    ) -> list[tuple[nn.LayerNorm, Callable[..., Tensor]]]:
        """Return the sub-layers in order, which map `(B, N, D)` to `(B, N, D)`, each with its
        normalization.
        """
        layer, prompt = self.layer, None if self.layer.has_cross_attention else memory.source
        sublayers: list[tuple[nn.LayerNorm, Callable[..., Tensor]]] = [
            (
                layer.self_attn_layer_norm,
                lambda states, *_: self.self_attn(
                    layer.self_attn, states, moment, memory.target, prompt
                ),
            )
        ]
        if layer.has_cross_attention:
            source = moment, memory.source, memory.queries
            sublayers.append(
                (
                    layer.encoder_attn_layer_norm,
                    lambda states, *_: self.encoder_attn(layer.encoder_attn, states, *source),
                )
            )
        return [
            *sublayers,
            (layer.final_layer_norm, lambda states, *_: layer.position_wise(states)),
        ]


def heads_of_layer(heads: AlignmentHeads, layer: int) -> list[int]:
    """Return the heads of one layer."""
    return [head for its_layer, head in heads if its_layer == layer]
