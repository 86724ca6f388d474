"""
The attention of a few heads over the source, for each token of a hypothesis. Alignments are
computed from it.

The engine keeps the queries of these heads, which are few numbers. Their attention is computed when
a sentence is done.

Letters in shapes: B slots, N beams, R room for positions of the source or the target, K head width.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from vanilla_transformer.errors import UserError
from vanilla_transformer.machine.transfers import HostCopy
from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerAttention

from .search_state import Hypothesis, SearchState
from .static_attention import additive, scores_of
from .static_decoder import AlignmentHeads, SlotMemory, heads_of_layer

if TYPE_CHECKING:
    from vanilla_transformer.decoding.ensemble import DecodedModel

CHOOSE = (
    "`vanilla-transformer choose-alignment-head MODEL --source FILE --target FILE` chooses one."
)


def alignment_heads_of(model: "DecodedModel") -> list[tuple[int, int]]:
    """Return the layer and the number of each head in `config.alignment_heads`."""
    check_cross_attention(model)
    heads, config = getattr(model.config, "alignment_heads", None), model.config
    if not heads:
        requirement = "The model's configuration must have `alignment_heads`"
        raise UserError(f"{requirement}, got none. {CHOOSE}")
    pairs = heads if isinstance(heads, list | tuple) else [heads]
    sizes = config.decoder_layers, config.decoder_attention_heads
    layer_and_head = list[tuple[int, int]]()
    for pair in pairs:
        is_pair = isinstance(pair, list | tuple) and [*map(type, pair)] == [int, int]
        if is_pair and 0 <= pair[0] < sizes[0] and 0 <= pair[1] < sizes[1]:
            layer_and_head.append((pair[0], pair[1]))
    if len(layer_and_head) < len(pairs):
        requirement = (
            f"[layer, head] pairs of {sizes[0]} layers and {sizes[1]} heads, counted from 0"
        )
        raise UserError(f"`alignment_heads` must be a list of {requirement}, got {heads!r}.")
    return layer_and_head


def check_cross_attention(model: "DecodedModel") -> None:
    """Check that a model of this package attends to its source with weights that sum to 1."""
    layers: Sequence[Any] = []
    if hasattr(model, "get_decoder"):
        layers = getattr(model.get_decoder(), "layers", [])
    kinds = {type(getattr(layer, "encoder_attn", None)) for layer in layers}
    if kinds != {VanillaTransformerAttention}:
        names = [kind.__name__ for kind in kinds - {type(None)}]
        if type(None) in kinds or not kinds:
            names.append("none")
        requirement = "Alignments need a model of this package with softmax cross-attention"
        raise UserError(f"{requirement}, got {', '.join(sorted(names))}.")


def read_attention(
    model: "DecodedModel",
    heads: AlignmentHeads,
    state: SearchState,
    memory: SlotMemory,
    slots: Tensor,
    count: int,
) -> list[list[list[list[float]]]]:
    """Return the mean attention of the heads in each step of the `count` best hypotheses of each
    given slot.
    """
    # (slots, R, count, 1)
    lines = state.finished_ancestors[slots, :count].transpose(1, 2)[..., None]
    # (slots, R)
    seen = torch.arange(lines.shape[1], device=slots.device) < memory.source_lengths[slots, None]
    attention = list[Tensor]()
    for layer, layer_memory in enumerate(memory.layers):
        for head, queries in zip(heads_of_layer(heads, layer), layer_memory.queries, strict=True):
            # (slots, R, count, K)
            written = queries[slots].gather(2, lines.expand(-1, -1, -1, queries.shape[-1]))
            scaling = model.get_decoder().layers[layer].encoder_attn.scaling
            keys = layer_memory.source.keys[slots, head]  # (slots, R, K)
            scores = (
                scores_of(written.flatten(1, 2) * scaling, keys).float() + additive(seen)[:, None]
            )
            weights = nn.functional.softmax(scores, dim=-1)  # (slots, R * count, R)
            attention.append(weights.unflatten(1, written.shape[1:3]).transpose(1, 2))
    (rows,) = HostCopy(torch.stack(attention).mean(dim=0)).wait()
    return rows


def with_attention(
    hypotheses: Sequence[Hypothesis], rows: Sequence[Any], length: int
) -> list[Hypothesis]:
    """Return the hypotheses of a source of some length with their attention, given what
    [`read_attention`] returns.
    """
    attended = []
    for hypothesis, steps in zip(hypotheses, rows, strict=True):
        attention = [weights[:length] for weights in steps[: len(hypothesis.tokens)]]
        attended.append(hypothesis._replace(attention=attention))
    return attended
