"""
The first tokens of targets: one for all sentences, or a prefix of each, forced or preferred.

Letters in shapes: B slots, N beams, R room for positions, V vocabulary.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vanilla_transformer.decoding.options import OptionError
from vanilla_transformer.utils.device_utils import copy_to_device, fill_rows, to_device

from .search_options import SearchFeature


@dataclass(frozen=True)
class ForcedBos(SearchFeature):
    """Begin every target with the same token, such as its language. As in the library, it adds nothing to scores."""

    token: int
    changes_scores = True

    def change_logits(self, logits: Tensor, log_norms: Tensor, state: Any, memory: tuple[()]) -> Tensor:
        is_token = torch.arange(logits.shape[2], device=logits.device) == self.token  # (V,)
        forced = torch.where(is_token, log_norms[..., None], -torch.inf)  # (B, N, V)
        return torch.where((state.time == 0)[:, None, None], forced, logits)


class PrefixMemory(NamedTuple):
    """The tokens of the prefix of each slot, `(B, R)`, and their number, `(B,)`."""

    tokens: Tensor
    lengths: Tensor


@dataclass(frozen=True)
class TargetPrefix(SearchFeature):
    """Force the tokens of [`SearchRequest.prefix`]. Their log-probabilities are the model's."""

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


class BiasedPrefixMemory(NamedTuple):
    """A [`PrefixMemory`], and whether each running hypothesis has followed the prefix so far, `(B, N)`."""

    prefix: PrefixMemory
    follows: Tensor


@dataclass(frozen=True)
class BiasedPrefix(SearchFeature):
    """
    Prefer the tokens of [`SearchRequest.prefix`] as long as a hypothesis has followed them.

    The next token is chosen by `(1 - bias) p + bias [it is the next token of the prefix]`, where p is the model's
    probability (the biased beam search of Arivazhagan et al., 2020, "Re-translation Strategies for Long Form,
    Simultaneous, Spoken Language Translation").
    """

    bias: float
    changes_scores = True

    def __post_init__(self) -> None:
        if type(self.bias) is not float or not 0.0 < self.bias < 1.0:
            raise OptionError(f"`prefix_bias` must be a number between 0 and 1, got {self.bias!r}.")

    def allocate(self, slots: int, beams: int, room: int, device: torch.device) -> BiasedPrefixMemory:
        prefix = TargetPrefix().allocate(slots, beams, room, device)
        return BiasedPrefixMemory(prefix, torch.zeros(slots, beams, dtype=torch.bool, device=device))

    def enter(self, memory: BiasedPrefixMemory, slots: Tensor, requests: Sequence[Any]) -> None:
        TargetPrefix().enter(memory.prefix, slots, requests)
        fill_rows(memory.follows, slots, True)

    def change_logits(self, logits: Tensor, log_norms: Tensor, state: Any, memory: BiasedPrefixMemory) -> Tensor:
        follows = memory.follows & (state.time < memory.prefix.lengths)[:, None]  # (B, N)
        token = self._token(state, memory)[:, None].expand(-1, logits.shape[1], -1)  # (B, N, 1)
        others = logits + (follows * math.log1p(-self.bias))[..., None]
        preferred = torch.logaddexp(others.gather(2, token), math.log(self.bias) + log_norms[..., None])
        return others.scatter(2, token, torch.where(follows[..., None], preferred, others.gather(2, token)))

    def follow(self, state: Any, memory: BiasedPrefixMemory, parents: Tensor, tokens: Tensor) -> None:
        follows = memory.follows.gather(1, parents) & (tokens == self._token(state, memory))
        memory.follows.copy_(torch.where(state.done[:, None], memory.follows, follows))

    @staticmethod
    def _token(state: Any, memory: BiasedPrefixMemory) -> Tensor:
        """Return the next token of the prefix of each slot, `(B, 1)`."""
        return memory.prefix.tokens.gather(1, state.time[:, None])
