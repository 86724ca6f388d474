"""
Phrases that every hypothesis of a sentence must contain, as an option of the engine's beam search.

See [`lexical_constraints`] for the search. Letters in shapes: B slots, N beams, C candidates, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from .device_copies import to_device
from .hypothesis import Hypothesis
from .lexical_constraints import (
    NO_CONTINUATIONS,
    Candidates,
    ConstraintError,
    PhraseTokens,
    Progress,
    WordContinuations,
    phrase_rows,
)
from .search_features import SearchFeature
from .top_k import UNLIKELY


class PhraseMemory(NamedTuple):
    """
    The phrases of each slot, and what its running hypotheses contain of them.

    Attributes:
        prefix_lengths: The number of tokens with which every hypothesis begins, whatever its phrases: `(B,)`.
    """

    phrases: PhraseTokens
    progress: Progress
    prefix_lengths: Tensor


@dataclass(frozen=True)
class PhraseConstraints(SearchFeature):
    """
    Require the phrases of [`Request.phrases`].

    Attributes:
        room: Tokens that the phrases of a sentence may have.
        num_beams, eos_token_ids: See [`SearchOptions`].
        word_continuations: The tokens that must not follow [`WholeWords`].
        penalties: [`UNLIKELY`] for these tokens, otherwise 0, `(V,)`, if there are any.

    Raises:
        ConstraintError: There is one beam.
    """

    room: int
    num_beams: int
    eos_token_ids: tuple[int, ...]
    word_continuations: WordContinuations = NO_CONTINUATIONS
    penalties: Any = field(default=None, repr=False, compare=False)
    ranks_candidates: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.num_beams == 1:
            raise ConstraintError("Constraints need beam search: `num_beams` must be 2 or more, got 1.")

    def allocate(self, slots: int, beams: int, room: int, device: torch.device) -> PhraseMemory:
        rows = phrase_rows([], self.room)
        phrases = PhraseTokens(*(torch.tensor(row, device=device).repeat(slots, 1) for row in rows))
        return PhraseMemory(phrases, phrases.begin(beams), torch.zeros(slots, dtype=torch.long, device=device))

    def enter(self, memory: PhraseMemory, slots: Tensor, requests: Sequence[Any]) -> None:
        rows = zip(*(phrase_rows(request.phrases, self.room) for request in requests), strict=True)
        for tensor, values in zip(memory.phrases, rows, strict=True):
            tensor[slots] = to_device(values, tensor.device)
        for tensor, first in zip(memory.progress, memory.phrases.begin(self.num_beams), strict=True):
            tensor[slots] = first[slots]
        lengths = [len(request.prefix) for request in requests]
        memory.prefix_lengths[slots] = to_device(lengths, memory.prefix_lengths.device)

    def change_logits(self, logits: Tensor, log_norms: Tensor, state: Any, memory: PhraseMemory) -> Tensor:
        is_incomplete = memory.phrases.missing(memory.progress) > 0
        for eos in self.eos_token_ids:  # in place, since hypotheses with a forbidden EOS are never returned
            logits[:, :, eos].masked_fill_(is_incomplete, -torch.inf)
        if self.word_continuations:
            has_closed = memory.phrases.has_closed(memory.progress) & (state.time >= memory.prefix_lengths)[:, None]
            logits.addcmul_(has_closed[:, :, None].to(logits.dtype), self.penalties.to(logits.dtype))
        return logits

    def rank(
        self, best: Candidates, logits: Tensor, log_scale: Tensor, state: Any, memory: PhraseMemory
    ) -> Candidates:
        phrases, progress = memory.phrases, memory.progress
        every = phrases.add_candidates(best, logits, log_scale, progress)
        ordered = phrases.allocate(every, progress, state.limits - state.time - 1)
        return Candidates(*(each[:, : best.scores.shape[1]] for each in ordered))

    def may_end(self, memory: PhraseMemory, running: Candidates) -> Tensor:
        advanced = memory.phrases.advance(memory.progress, running.parents, running.tokens)
        return memory.phrases.missing(advanced) == 0

    def ends_now(self, memory: PhraseMemory) -> Tensor:
        return (memory.phrases.tokens >= 0).any(dim=1)

    def follow(self, state: Any, memory: PhraseMemory, parents: Tensor, tokens: Tensor) -> None:
        advanced = memory.phrases.advance(memory.progress, parents, tokens)
        for old, new in zip(memory.progress, advanced, strict=True):
            old.copy_(torch.where(state.done[:, None, None], old, new))


def continuation_penalties(tokens: WordContinuations, entries: int, device: torch.device) -> Tensor | None:
    """Return the penalties of [`PhraseConstraints`] for a vocabulary of so many entries."""
    if not tokens:
        return None
    penalties = torch.zeros(entries)
    penalties[[token for token in tokens if token < entries]] = UNLIKELY
    return penalties.to(device)


def check_complete(hypotheses: Sequence[Hypothesis]) -> None:
    """Check that all hypotheses of a sentence contain its phrases.

    Raises:
        ConstraintError: The limit of the length leaves too few different ones.
    """
    complete = sum(each.score > UNLIKELY / 2 for each in hypotheses)
    if complete < len(hypotheses):
        hint = "Raise the limit of the length, or lower `num_return_sequences`."
        raise ConstraintError(f"Only {complete} of {len(hypotheses)} translations can contain the constraints. {hint}")


__all__ = ["PhraseConstraints", "check_complete", "continuation_penalties"]
