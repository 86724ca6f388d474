"""
The options of the engine's search, and the interface of further options.

A [`SearchFeature`] adds to the decoding step: tensors of each slot, and changes of logits and
scores. A search without features has none of these tensors, and computes nothing for them.

Letters in shapes: B slots, N beams, R room for positions, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from vanilla_transformer.decoding.options import OptionError
from vanilla_transformer.generation_vanilla_transformer import length_penalty

from .sampling import SamplingOptions
from .top_k import Candidates

if TYPE_CHECKING:
    from .search_state import SearchState


class SearchFeature:
    """
    One option of a search. Subclasses are frozen dataclasses, so that their fields are part of the
    identity of a step.

    Methods change tensors of static shape in place or return them, and never look at a value: the
    step is compiled. `memory` is what `allocate` returned. `state` is the [`SearchState`].

    Attributes:
        changes_scores: True if scores of hypotheses are not the model's log-probabilities, which
            are kept beside them.
        ranks_candidates: True if candidates of beam search get beams in another order than that of
            their scores.
    """

    changes_scores: ClassVar[bool] = False
    ranks_candidates: ClassVar[bool] = False

    def allocate(self, slots: int, beams: int, room: int, device: torch.device) -> Any:
        """Return a named tuple of tensors that have a row for each slot."""
        return ()

    def enter(self, memory: Any, slots: Tensor, requests: Sequence[Any]) -> None:
        """Start the search of new sentences, given the [`DecodeRequest`] of each, in the given
        slots.
        """

    def change_logits(
        self, logits: Tensor, log_norms: Tensor, state: "SearchState", memory: Any
    ) -> Tensor:
        """Return the logits `(B, N, V)` by which the search chooses tokens; minus infinity forbids
        one.

        Args:
            log_norms: `logsumexp` of the model's logits, `(B, N)`. Log-probabilities are logits
                minus this.
        """
        return logits

    def prefer(
        self, tokens: Tensor, logits: Tensor, log_scale: Tensor, state: "SearchState", memory: Any
    ) -> Tensor:
        """Return the tokens that a search with one beam takes instead of the chosen ones, `(B, 1)`.

        Args:
            logits, log_scale: `(B, 1, V)` and `(B, 1)`, whose sum are the scores of continuations.
        """
        return tokens

    def observe(self, logits: Tensor, log_scale: Tensor, state: "SearchState") -> None:
        """Look at the tokens from which the search is about to choose.

        Args:
            logits, log_scale: `(B, N, V)` and `(B, N)`, whose sum are the scores of continuations.
        """

    def rank(
        self, best: Candidates, logits: Tensor, log_scale: Tensor, state: "SearchState", memory: Any
    ) -> Candidates:
        """Return as many candidates of beam search as there are best ones, in the order in which
        they get beams.

        Args:
            best: The candidates with the best scores.
            logits, log_scale: `(B, N, V)` and `(B, N)`, whose sum are the scores of continuations.
        """
        return best

    def may_end(self, memory: Any, running: Candidates) -> Tensor | None:
        """Tell which running hypotheses may end, `(B, N)`, or return None if all of them may.

        The search of a slot is done when no hypothesis that may end has a better score than the
        finished ones.
        """
        return None

    def ends_now(self, memory: Any) -> Tensor | None:
        """Tell in which slots running hypotheses count as if they ended now, `(B,)`, or return None
        if in no slot.

        That is the rule without `early_stopping="never"`. Where bounds are loose, it saves many
        steps.
        """
        return None

    def follow(self, state: "SearchState", memory: Any, parents: Tensor, tokens: Tensor) -> None:
        """Update the memory of running hypotheses, given the beams and the tokens that were chosen,
        `(B, N)` each.

        The memory of slots that are done must stay as it is.
        """

    def end_step(self, state: "SearchState", memory: Any) -> None:
        """Update the memory of running hypotheses once at the end of a step, which may choose
        several tokens.
        """


@dataclass(frozen=True)
class SearchOptions:
    """
    Options of a search, the same for all sentences; see [`PaperGenerationMixin`] for the length
    penalty.

    Attributes:
        num_beams: 1 for greedy search and sampling.
        eos_token_ids: Tokens that end a hypothesis.
        early_stopping: Value as in a generation config: True, False or `"never"`.
        min_new_tokens: EOS may end a hypothesis only after so many other tokens.
        sampling: Way to draw tokens, or None to take the most likely ones.
        features: Further options, each with its own tensors.
        renormalizes: Whether the probabilities of the tokens that features allow sum up to 1.
    """

    num_beams: int
    eos_token_ids: tuple[int, ...]
    length_penalty: float = 1.0
    length_penalty_type: str = "power"
    early_stopping: bool | int | str = False
    min_new_tokens: int = 0
    sampling: SamplingOptions | None = None
    features: tuple[SearchFeature, ...] = ()
    renormalizes: bool = False

    def __post_init__(self) -> None:
        if self.sampling is not None and self.num_beams != 1:
            raise OptionError(f"Sampling needs `num_beams=1`, got {self.num_beams}.")

    @property
    def changes_scores(self) -> bool:
        """Whether scores of hypotheses are something else than log-probabilities divided by the
        length penalty.
        """
        return self.renormalizes or any(feature.changes_scores for feature in self.features)

    @property
    def candidates(self) -> int:
        """How many continuations of the beams are compared: as many as beams continue if the best
        end.
        """
        return max(2, 1 + len(self.eos_token_ids)) * self.num_beams

    def divisor(self, lengths: Tensor) -> Tensor:
        """Return the divisors of log-probabilities for lengths.

        A power in float32 is rounded by the place of a length among the others. Apple's GPUs have
        no float64.
        """
        dtype = torch.float32 if lengths.device.type == "mps" else torch.float64
        return length_penalty(
            lengths.to(dtype), self.length_penalty, self.length_penalty_type
        ).float()
