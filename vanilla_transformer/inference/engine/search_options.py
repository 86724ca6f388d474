"""The options of the engine's search, and how they follow from a generation config."""

from dataclasses import dataclass

from torch import Tensor
from transformers import GenerationConfig

from vanilla_transformer.generation_vanilla_transformer import length_penalty
from vanilla_transformer.inference.search.sampling import SamplingOptions

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
        features: Further options, each with its own tensors.
    """

    num_beams: int
    eos_token_ids: tuple[int, ...]
    length_penalty: float = 1.0
    length_penalty_type: str = "power"
    early_stopping: bool | str = False
    min_new_tokens: int = 0
    sampling: SamplingOptions | None = None
    features: tuple[SearchFeature, ...] = ()

    def __post_init__(self) -> None:
        if self.sampling is not None and self.num_beams != 1:
            raise ValueError(f"Sampling needs `num_beams=1`, got {self.num_beams}.")

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
        features=features,
    )


__all__ = ["SearchOptions", "search_options"]
