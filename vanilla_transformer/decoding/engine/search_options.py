"""The options of the engine's search, and how they follow from a generation config."""

import math
from dataclasses import dataclass

from torch import Tensor
from transformers import GenerationConfig

from vanilla_transformer.decoding.options import OptionError
from vanilla_transformer.generation_vanilla_transformer import length_penalty

from .sampling import SamplingOptions
from .search_features import SearchFeature


@dataclass(frozen=True)
class SearchOptions:
    """
    Options of a search, the same for all sentences; see [`PaperGenerationMixin`] for the length penalty.

    Attributes:
        num_beams: 1 for greedy search and sampling.
        eos_token_ids: Tokens that end a hypothesis.
        early_stopping: As in a generation config: True, False or `"never"`.
        min_new_tokens: EOS may end a hypothesis only after so many other tokens.
        sampling: How to draw tokens, or None to take the most likely ones.
        num_beam_groups: Groups of beams that search one after the other in each step (Vijayakumar et al., 2016).
        diversity_penalty: Subtracted from the score of a token for each beam of earlier groups that just chose it.
        features: Further options, each with its own tensors.
    """

    num_beams: int
    eos_token_ids: tuple[int, ...]
    length_penalty: float = 1.0
    length_penalty_type: str = "power"
    early_stopping: bool | str = False
    min_new_tokens: int = 0
    sampling: SamplingOptions | None = None
    num_beam_groups: int = 1
    diversity_penalty: float = 0.0
    features: tuple[SearchFeature, ...] = ()

    def __post_init__(self) -> None:
        if self.sampling is not None and self.num_beams != 1:
            raise OptionError(f"Sampling needs `num_beams=1`, got {self.num_beams}.")
        self._check_groups()

    @property
    def beams_per_group(self) -> int:
        """The beams of each group: all of them if there is one group."""
        return self.num_beams // self.num_beam_groups

    @property
    def changes_scores(self) -> bool:
        """Whether scores of hypotheses are something else than log-probabilities divided by the length penalty."""
        return self.num_beam_groups > 1 or any(feature.changes_scores for feature in self.features)

    def candidates(self, beams: int) -> int:
        """Return how many continuations of so many beams are compared: as many as beams continue if the best end."""
        return max(2, 1 + len(self.eos_token_ids)) * beams

    def _check_groups(self) -> None:
        groups, penalty = self.num_beam_groups, self.diversity_penalty
        if type(groups) is not int or groups < 1 or self.num_beams % groups:
            found = f"{groups!r} with `num_beams={self.num_beams}`"
            raise OptionError(f"`num_beam_groups` must be an integer that divides `num_beams`, got {found}.")
        if type(penalty) not in (int, float) or not 0 <= penalty < math.inf:
            raise OptionError(f"`diversity_penalty` must be a number of 0 or more, got {penalty!r}.")
        if (groups > 1) != (penalty > 0):
            found = f"{groups} and {penalty}"
            raise OptionError(f"`num_beam_groups` over 1 and `diversity_penalty` over 0 need each other, got {found}.")
        if groups > 1 and any(feature.ranks_candidates for feature in self.features):
            raise OptionError("Constraints divide the beams themselves. Leave out `num_beam_groups`.")

    def divisor(self, lengths: Tensor) -> Tensor:
        """Return the divisors of log-probabilities for lengths `(B,)`, as a column `(B, 1)`."""
        return length_penalty(lengths, self.length_penalty, self.length_penalty_type)[:, None]


def search_options(config: GenerationConfig, features: tuple[SearchFeature, ...] = ()) -> SearchOptions:
    """Return the options of the engine's search for a generation config."""
    eos, penalty_type = config.eos_token_id, getattr(config, "length_penalty_type", None) or "power"
    return SearchOptions(
        num_beams=config.num_beams or 1,
        eos_token_ids=tuple(eos) if isinstance(eos, list) else (eos,),
        length_penalty=1.0 if config.length_penalty is None else float(config.length_penalty),
        length_penalty_type=penalty_type,
        early_stopping=config.early_stopping or False,
        min_new_tokens=config.min_new_tokens or 0,
        sampling=SamplingOptions.from_options(vars(config)) if config.do_sample else None,
        num_beam_groups=1 if getattr(config, "num_beam_groups", None) is None else config.num_beam_groups,
        diversity_penalty=getattr(config, "diversity_penalty", None) or 0.0,
        features=features,
    )


__all__ = ["SearchOptions", "search_options"]
