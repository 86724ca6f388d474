"""
Options of a search that add to the decoding step: tensors of each slot, and changes of logits and scores.

A search without such options has none of these tensors, and computes nothing for them.

Letters in shapes: B slots, N beams, R room for positions, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from .top_k import Candidates


class SearchFeature:
    """
    One option of a search. Subclasses are frozen dataclasses, so that their fields are part of the identity of a step.

    Methods change tensors of static shape in place or return them, and never look at a value: the step is compiled.
    `memory` is what `allocate` returned. `state` is the [`SearchState`].

    Attributes:
        changes_scores: True if scores of hypotheses are not the model's log-probabilities, which are kept beside them.
        ranks_candidates: True if candidates of beam search get beams in another order than that of their scores.
    """

    changes_scores: ClassVar[bool] = False
    ranks_candidates: ClassVar[bool] = False

    def allocate(self, slots: int, beams: int, room: int, device: torch.device) -> Any:
        """Return a named tuple of tensors that have a row for each slot."""
        return ()

    def enter(self, memory: Any, slots: Tensor, requests: Sequence[Any]) -> None:
        """Start the search of new sentences, given the [`Request`] of each, in the given slots."""

    def change_logits(self, logits: Tensor, log_norms: Tensor, state: Any, memory: Any) -> Tensor:
        """Return the logits `(B, N, V)` by which the search chooses tokens; minus infinity forbids one.

        Args:
            log_norms: `logsumexp` of the model's logits, `(B, N)`. Log-probabilities are logits minus this.
        """
        return logits

    def observe(self, logits: Tensor, log_scale: Tensor, state: Any) -> None:
        """Look at the tokens from which the search is about to choose.

        Args:
            logits, log_scale: `(B, N, V)` and `(B, N)`, whose sum are the scores of continuations.
        """

    def rank(self, best: Candidates, logits: Tensor, log_scale: Tensor, state: Any, memory: Any) -> Candidates:
        """Return as many candidates of beam search as there are best ones, in the order in which they get beams.

        Args:
            best: The candidates with the best scores.
            logits, log_scale: `(B, N, V)` and `(B, N)`, whose sum are the scores of continuations.
        """
        return best

    def bonus(self, state: Any, memory: Any, slot_memory: Any) -> Tensor | None:
        """Return a number to add to the final score of hypotheses that end with this step's token, `(B, N)`, if any.

        Args:
            slot_memory: The [`SlotMemory`] of each model, after this step of its decoder.
        """
        return None

    def may_end(self, memory: Any, running: Candidates) -> Tensor | None:
        """Tell which running hypotheses may end, `(B, N)`, or return None if all of them may.

        The search of a slot is done when no hypothesis that may end has a better score than the finished ones.
        """
        return None

    def ends_now(self, memory: Any) -> Tensor | None:
        """Tell in which slots running hypotheses count as if they ended now, `(B,)`, or return None if in no slot.

        That is the rule without `early_stopping="never"`. Where bounds are loose, it saves many steps.
        """
        return None

    def follow(self, state: Any, memory: Any, parents: Tensor, tokens: Tensor) -> None:
        """Update the memory of running hypotheses, given the beams and the tokens that were chosen, `(B, N)` each.

        The memory of slots that are done must stay as it is.
        """


__all__ = ["SearchFeature"]
