"""
Drafts: tokens that a target may turn out to have, which the search checks many at once.

A step of greedy search or sampling feeds the last token of a slot and the next tokens of its draft
to the decoder in one pass, and then chooses tokens one after the other, as it always does, for as
long as they are those that it has fed. So the right start of a draft costs one step. After a
difference, the draft continues after the longest end of the target that it contains.

A bias prefers the draft, as in biased decoding (Arivazhagan et al., 2020): tokens are chosen from
`(1 - bias) p + bias [is of the draft]`.

Letters in shapes: B slots, R room for positions, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from vanilla_transformer.machine.transfers import copy_to_device, to_device

from .search_options import SearchFeature

if TYPE_CHECKING:
    from .search_state import SearchState

WIDTHS = (4, 8, 16)  # tokens of a slot that a step reads, besides one
_LEAST, _MOST = 2, 6  # tokens by which the place in a draft is found again
_NONE, _UNWRITTEN = -1, -2  # no tokens


class DraftMemory(NamedTuple):
    """
    The draft of each slot.

    Attributes:
        tokens: Its tokens, `(B, R)`.
        lengths: Their number, `(B,)`.
        places: The place of the token that comes next, `(B,)`; the length if there is none.
        bonuses: Probability that each token may lack to be the best, `(B, R)`.
    """

    tokens: Tensor
    lengths: Tensor
    places: Tensor
    bonuses: Tensor

    def next_tokens(self, count: int) -> Tensor:
        """Return the next tokens of each draft, and -1 after the last one, `(B, count)`."""
        places = self.places[:, None] + torch.arange(count, device=self.places.device)
        last = self.tokens.shape[1] - 1  # buffers may have become smaller
        tokens = self.tokens.gather(1, places.clamp(max=last))
        ends = self.lengths[:, None].clamp(max=last + 1)
        return torch.where(places < ends, tokens, _NONE)

    def remaining(self) -> Tensor:
        """Return the number of tokens that come next, `(B,)`."""
        return self.lengths - self.places


@dataclass(frozen=True)
class Drafts(SearchFeature):
    """Follow [`DecodeRequest.draft`] in a search with one beam."""

    def allocate(self, slots: int, beams: int, room: int, device: torch.device) -> DraftMemory:
        tokens = torch.zeros(slots, room, dtype=torch.long, device=device)
        lengths = torch.zeros(slots, dtype=torch.long, device=device)
        bonuses = torch.zeros(slots, room, dtype=torch.float32, device=device)
        return DraftMemory(tokens, lengths, torch.zeros_like(lengths), bonuses)

    def enter(self, memory: DraftMemory, slots: Tensor, requests: Sequence[Any]) -> None:
        room = memory.tokens.shape[1]
        tokens = torch.zeros(len(requests), room, dtype=torch.long)
        bonuses = torch.zeros(tokens.shape)
        lengths = list[int]()
        for row, bonus, request in zip(tokens, bonuses, requests, strict=True):
            draft = torch.tensor(request.draft[:room], dtype=torch.long)
            row[: len(draft)] = draft
            lengths.append(len(draft))
            bias = torch.atleast_1d(torch.tensor(request.draft_bias))[: len(draft)]
            bonus[: len(draft)] = bias / (1.0 - bias)
        memory.tokens[slots] = copy_to_device(tokens, slots.device)
        memory.lengths[slots] = to_device(lengths, slots.device)
        memory.places[slots] = torch.zeros_like(slots)
        memory.bonuses[slots] = copy_to_device(bonuses, slots.device)

    def prefer(
        self,
        tokens: Tensor,
        logits: Tensor,
        log_scale: Tensor,
        state: "SearchState",
        memory: DraftMemory,
    ) -> Tensor:
        preferred = memory.next_tokens(1)  # (B, 1)
        choices = torch.cat([tokens, preferred.clamp(min=0)], dim=1)  # (B, 2)
        log_probabilities = logits[:, 0].gather(1, choices) + log_scale - state.scores
        best, of_draft = log_probabilities.exp().split(1, dim=1)
        last = memory.tokens.shape[1] - 1
        bonus = memory.bonuses.gather(1, memory.places[:, None].clamp(max=last))
        is_near = (of_draft > 0) & (of_draft + bonus >= best)  # a forbidden token has 0
        is_preferred = is_near & (bonus > 0) & (preferred >= 0)
        return torch.where(is_preferred, preferred, tokens)

    def end_step(self, state: "SearchState", memory: DraftMemory) -> None:
        """
        Continue in the draft if its next token was chosen.

        Otherwise find the place again: after the longest end of the target, and of equal ones after
        the last.
        """
        room, device = memory.tokens.shape[1], memory.tokens.device
        next_places = memory.places + 1
        is_next = (state.last_tokens == memory.next_tokens(1))[:, 0]
        places, back = torch.arange(room + 1, device=device), torch.arange(_MOST, device=device)
        padded = nn.functional.pad(memory.tokens, (_MOST, 0), value=_NONE)
        # The tokens before each place, (B, R + 1, 6). `unfold` would not export for any room.
        before = padded[:, places[:, None] + back]
        times = state.time[:, None] + back + 1 - _MOST  # (B, 6)
        written = state.tokens[:, :, 0].gather(1, times.clamp(0, room - 1))
        written = torch.cat([written[:, :-1], state.last_tokens], dim=1)
        written = torch.where(times > 0, written, _UNWRITTEN)  # the start symbol is none of them
        is_equal = (before == written[:, None]).flip(2)
        common = is_equal.cumprod(dim=2).sum(dim=2)  # (B, R + 1)
        # Tokens that no other one can beat are worth finding sooner.
        least = torch.where(memory.bonuses.amax(dim=1) >= 1, 1, _LEAST)[:, None]
        is_place = (common >= least) & (places <= memory.lengths[:, None])
        best = torch.where(is_place, common * (room + 1) + places, 0).amax(dim=1)
        others = torch.where(best > 0, best % (room + 1), memory.lengths)
        continues = is_next & (next_places < memory.lengths)
        next_places = torch.where(continues, next_places, others)
        memory.places.copy_(torch.where(state.done, memory.places, next_places))


def find_drafts(features: Sequence[SearchFeature], memories: Sequence[Any]) -> DraftMemory | None:
    """Return the drafts among the memories of features, or None if there are none."""
    for feature, memory in zip(features, memories, strict=True):
        if isinstance(feature, Drafts):
            return memory
    return None
