"""
The first tokens of targets: one for all sentences, or a prefix of each.

The last word of a prefix is complete if the prefix is [`WholeWords`]: no token that continues a
word follows it.

Letters in shapes: B slots, N beams, R room for positions, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from vanilla_transformer.machine.transfers import copy_to_device, to_device

from .phrase_constraints import NO_CONTINUATIONS, WholeWords, WordContinuations
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
    """The tokens of the prefix of each slot, `(B, R)`, their number, and whether the last word is
    complete, `(B,)`.
    """

    tokens: Tensor
    lengths: Tensor
    closes: Tensor


@dataclass(frozen=True)
class TargetPrefix(SearchFeature):
    """
    Force the tokens of [`DecodeRequest.prefix`]. Their log-probabilities are the model's.

    Attributes:
        word_continuations: The tokens that must not follow [`WholeWords`].
        penalties: [`UNLIKELY`] for these tokens, otherwise 0, `(V,)`, if there are any.
    """

    word_continuations: WordContinuations = NO_CONTINUATIONS
    penalties: Tensor | None = field(default=None, repr=False, compare=False)

    def allocate(self, slots: int, beams: int, room: int, device: torch.device) -> PrefixMemory:
        tokens = torch.zeros(slots, room, dtype=torch.long, device=device)
        lengths = torch.zeros(slots, dtype=torch.long, device=device)
        return PrefixMemory(tokens, lengths, torch.zeros_like(lengths))

    def enter(self, memory: PrefixMemory, slots: Tensor, requests: Sequence[Any]) -> None:
        tokens = torch.zeros(len(requests), memory.tokens.shape[1], dtype=torch.long)
        for row, request in zip(tokens, requests, strict=True):
            row[: len(request.prefix)] = torch.tensor(request.prefix, dtype=torch.long)
        memory.tokens[slots] = copy_to_device(tokens, slots.device)
        lengths = [len(request.prefix) for request in requests]
        memory.lengths[slots] = to_device(lengths, slots.device)
        closes = []
        for request in requests:
            closes.append(int(isinstance(request.prefix, WholeWords) and len(request.prefix) > 0))
        memory.closes[slots] = to_device(closes, slots.device)

    def change_logits(
        self, logits: Tensor, log_norms: Tensor, state: "SearchState", memory: PrefixMemory
    ) -> Tensor:
        token = memory.tokens.gather(1, state.time[:, None])  # (B, 1)
        others = torch.arange(logits.shape[2], device=logits.device) != token  # (B, V)
        is_within = (state.time < memory.lengths)[:, None]
        logits = logits.masked_fill((others & is_within)[:, None], -torch.inf)
        if self.penalties is None:
            return logits
        has_closed = (state.time == memory.lengths) & memory.closes.bool()
        penalties = has_closed[:, None].to(logits.dtype) * self.penalties.to(logits.dtype)
        return logits + penalties[:, None]
