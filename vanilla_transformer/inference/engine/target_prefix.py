"""A prefix for the target of each sentence, which its hypotheses begin with."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .device_copies import copy_to_device, to_device
from .search_features import SearchFeature


class PrefixMemory(NamedTuple):
    """The tokens of the prefix of each slot, `(B, R)`, and their number, `(B,)`."""

    tokens: Tensor
    lengths: Tensor


@dataclass(frozen=True)
class TargetPrefix(SearchFeature):
    """Force the tokens of [`Request.prefix`]. Their log-probabilities are the model's."""

    def allocate(self, slots: int, beams: int, room: int, device: torch.device) -> PrefixMemory:
        tokens = torch.zeros(slots, room, dtype=torch.long, device=device)
        return PrefixMemory(tokens, torch.zeros(slots, dtype=torch.long, device=device))

    def enter(self, memory: PrefixMemory, slots: Tensor, requests: Sequence[Any]) -> None:
        tokens = torch.zeros(len(requests), memory.tokens.shape[1], dtype=torch.long)
        for row, request in zip(tokens, requests, strict=True):
            row[: len(request.prefix)] = torch.tensor(request.prefix, dtype=torch.long)
        memory.tokens[slots] = copy_to_device(tokens, slots.device)
        memory.lengths[slots] = to_device([len(request.prefix) for request in requests], slots.device)

    def change_logits(self, logits: Tensor, log_norms: Tensor, state: Any, memory: PrefixMemory) -> Tensor:
        token = memory.tokens.gather(1, state.time[:, None])  # (B, 1)
        others = torch.arange(logits.shape[2], device=logits.device) != token  # (B, V)
        return logits.masked_fill((others & (state.time < memory.lengths)[:, None])[:, None], -torch.inf)


__all__ = ["PrefixMemory", "TargetPrefix"]
