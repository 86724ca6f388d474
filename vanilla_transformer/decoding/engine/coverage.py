"""
The coverage penalty of Wu et al. (2016, section 7, eq. 14): hypotheses should attend to every token of the source.

    s(Y, X) = log P(Y | X) / lp(Y) + β Σᵢ log(min(Σⱼ pᵢⱼ, 1))

pᵢⱼ is the attention of the j-th target token to the i-th source token. As there, the penalty decides which finished
hypotheses are best, and not which running ones get beams.

Letters in shapes: B slots, N beams, R room for positions of the source or the target.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vanilla_transformer.decoding.options import OptionError
from vanilla_transformer.errors import UserError
from vanilla_transformer.utils.device_utils import fill_rows

from .search_options import SearchFeature
from .source_attention import alignment_heads_of, attention_weights, check_cross_attention
from .static_decoder import AlignmentHeads, heads_of_layer
from .top_k import pick

_LEAST = 1e-6  # of the attention that a source token gets, so that its logarithm is finite


class CoverageMemory(NamedTuple):
    """The attention that each source token has got from the tokens of running hypotheses, `(B, N, R)`."""

    attention: Tensor


@dataclass(frozen=True)
class CoveragePenalty(SearchFeature):
    """
    Add the coverage penalty to the scores of finished hypotheses.

    Args:
        weight: β.
        heads: Heads of cross-attention whose mean attention counts; the engine keeps their queries.
        scaling: Scaling of their scores.
    """

    weight: float
    heads: tuple[tuple[int, int], ...]
    scaling: float
    changes_scores = True

    def __post_init__(self) -> None:
        if type(self.weight) not in (int, float) or not 0.0 < self.weight < float("inf"):
            raise OptionError(f"`coverage_penalty` must be a number of 0 or more, got {self.weight!r}.")

    def allocate(self, slots: int, beams: int, room: int, device: torch.device) -> CoverageMemory:
        return CoverageMemory(torch.zeros(slots, beams, room, device=device))

    def enter(self, memory: CoverageMemory, slots: Tensor, requests: Any) -> None:
        fill_rows(memory.attention, slots, 0.0)

    def bonus(self, state: Any, memory: CoverageMemory, slot_memory: Any) -> Tensor:
        slots, first = torch.arange(state.time.shape[0], device=state.time.device), slot_memory[0]
        seen = torch.arange(memory.attention.shape[2], device=slots.device) < first.source_lengths[:, None]  # (B, R)
        found = []
        for layer, own in enumerate(first.layers):
            for head, queries in zip(heads_of_layer(self.heads, layer), own.queries, strict=True):
                now = queries[slots, state.time]  # (B, N, K)
                found.append(attention_weights(now, own.source.keys[:, head], seen, self.scaling))
        attention = memory.attention + torch.stack(found).mean(dim=0)
        memory.attention.copy_(torch.where(state.done[:, None, None], memory.attention, attention))
        logs = attention.clamp(_LEAST, 1.0).log()
        return self.weight * torch.where(seen[:, None], logs, 0.0).sum(dim=2)

    def ends_now(self, memory: CoverageMemory) -> Tensor:
        return torch.ones(memory.attention.shape[0], dtype=torch.bool, device=memory.attention.device)

    def follow(self, state: Any, memory: CoverageMemory, parents: Tensor, tokens: Tensor) -> None:
        attention = pick(memory.attention, parents)
        memory.attention.copy_(torch.where(state.done[:, None, None], memory.attention, attention))


def coverage_of(model: Any, weight: float) -> CoveragePenalty:
    """Return the coverage penalty for a model: of its `config.alignment_heads`, or else of a layer's heads.

    That is the last decoder layer but one, whose attention is closest to word alignments (Garg et al., 2019).
    """
    try:
        check_cross_attention(model)
    except UserError as error:
        raise OptionError(f"`coverage_penalty` must be 0 for this model. {error}") from error
    return CoveragePenalty(weight, tuple(coverage_heads(model)), model.get_decoder().layers[0].encoder_attn.scaling)


def coverage_heads(model: Any) -> AlignmentHeads:
    """Return the heads whose mean attention is the coverage."""
    if getattr(model.config, "alignment_heads", None):
        return alignment_heads_of(model)
    layer = max(0, model.config.decoder_layers - 2)
    return [(layer, head) for head in range(model.config.decoder_attention_heads)]
