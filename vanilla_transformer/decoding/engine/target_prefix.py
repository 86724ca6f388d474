"""
The first tokens of targets: one for all sentences, or a prefix of each.

Letters in shapes: B slots, N beams, R room for positions, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from vanilla_transformer.machine.transfers import copy_to_device, to_device

from .search_options import SearchFeature

if TYPE_CHECKING:
    from .search_state import SearchState


@dataclass(frozen=True)
class ForcedToken(SearchFeature):
    """Begin every target with its language, for example, or end it at its limit.

    This adds nothing to scores.
    """

    token: int
    is_last: bool = False
    changes_scores = True

    def change_logits(
        self, logits: Tensor, log_norms: Tensor, state: "SearchState", memory: tuple[()]
    ) -> Tensor:
        is_token = torch.arange(logits.shape[2], device=logits.device) == self.token  # (V,)
        forced = torch.where(is_token, log_norms[..., None], -torch.inf)  # (B, N, V)
        is_here = state.time + 1 >= state.limits if self.is_last else state.time == 0  # (B,)
        return torch.where(is_here[:, None, None], forced, logits)


class PrefixMemory(NamedTuple):
    """The tokens of the prefix of each slot, `(B, R)`, and their number, `(B,)`."""

    tokens: Tensor
    lengths: Tensor


@dataclass(frozen=True)
class TargetPrefix(SearchFeature):
    """Force the tokens of [`DecodeRequest.prefix`]. Their log-probabilities are the model's."""

    def allocate(self, slots: int, beams: int, room: int, device: torch.device) -> PrefixMemory:
        tokens = torch.zeros(slots, room, dtype=torch.long, device=device)
        return PrefixMemory(tokens, torch.zeros(slots, dtype=torch.long, device=device))

    def enter(self, memory: PrefixMemory, slots: Tensor, requests: Sequence[Any]) -> None:
        tokens = torch.zeros(len(requests), memory.tokens.shape[1], dtype=torch.long)
        for row, request in zip(tokens, requests, strict=True):
            row[: len(request.prefix)] = torch.tensor(request.prefix, dtype=torch.long)
        memory.tokens[slots] = copy_to_device(tokens, slots.device)
        memory.lengths[slots] = to_device(
            [len(request.prefix) for request in requests], slots.device
        )

    def change_logits(
        self, logits: Tensor, log_norms: Tensor, state: "SearchState", memory: PrefixMemory
    ) -> Tensor:
        token = memory.tokens.gather(1, state.time[:, None])  # (B, 1)
        others = torch.arange(logits.shape[2], device=logits.device) != token  # (B, V)
        return logits.masked_fill(
            (others & (state.time < memory.lengths)[:, None])[:, None], -torch.inf
        )
