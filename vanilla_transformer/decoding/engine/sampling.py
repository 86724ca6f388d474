"""
Draw the next token of every slot, with the filters of transformers.

A Gumbel number is added to each score and the largest sum wins, which draws from the softmax of the scores. It draws
a block of the vocabulary first, then a token of that block: so few random numbers are needed, and rounding errors of
the logits almost never change a sample.

Letters in shapes: B slots, V vocabulary.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.generation.logits_process import (
    EpsilonLogitsWarper,
    LogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from .counter_random import gumbel_noise
from .top_k import block_log_sums, tokens_of_blocks

_OF_BLOCKS, _OF_TOKENS = 0, 1  # streams of random numbers


@dataclass(frozen=True)
class SamplingOptions:
    """
    Options of sampling, with the meaning and the order of transformers' `generate()`.

    Raises:
        ValueError: A value is out of range.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    epsilon_cutoff: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if type(value) is bool or not isinstance(value, int | float):
                raise ValueError(f"`{name}` must be a number, got {value!r}.")
        self.filters()

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> "SamplingOptions":
        """Read the options of a generation config, where None means no filter."""
        given = {name: options.get(name) for name in cls.__dataclass_fields__}
        return cls(**{name: value for name, value in given.items() if value is not None})

    def filters(self) -> list[LogitsProcessor]:
        """Return the filters of logits `(B, V)`, in the order in which they are applied."""
        filters: list[LogitsProcessor] = []
        if self.temperature != 1.0:
            filters.append(TemperatureLogitsWarper(float(self.temperature)))
        if self.top_k != 0:
            filters.append(TopKLogitsWarper(self.top_k))
        if self.top_p != 1.0:
            filters.append(_StaticTopP(float(self.top_p)))
        if self.epsilon_cutoff != 0.0:
            filters.append(EpsilonLogitsWarper(self.epsilon_cutoff))
        return filters


class _StaticTopP(TopPLogitsWarper):
    """The library's filter without its assignment of a constant, which a GPU would copy from the host."""

    def __call__(self, input_ids: Any, scores: Tensor) -> Tensor:
        ordered, order = scores.sort()
        improbable = ordered.softmax(dim=-1).cumsum(dim=-1) <= 1 - self.top_p
        is_best = torch.arange(scores.shape[1], device=scores.device) == scores.shape[1] - 1
        removed = improbable & ~is_best
        return scores.masked_fill(removed.scatter(1, order, removed), self.filter_value)


def sample(logits: Tensor, seeds: Tensor, times: Tensor) -> Tensor:
    """
    Draw a token of each row from the softmax of `logits` `(B, V)`.

    Args:
        seeds, times: Of each slot, `(B,)`. Equal ones draw by the same random numbers.

    Returns:
        The tokens, `(B,)`.
    """
    scores = block_log_sums(logits)
    blocks = torch.arange(scores.shape[1], device=logits.device)
    block = (scores + gumbel_noise(seeds, times, _OF_BLOCKS, blocks)).argmax(dim=-1, keepdim=True)
    tokens, repeated = tokens_of_blocks(block, logits.shape[1])
    scores = logits.gather(1, tokens).masked_fill(repeated, -torch.inf) + gumbel_noise(
        seeds, times, _OF_TOKENS, tokens
    )
    return tokens.gather(1, scores.argmax(dim=-1, keepdim=True))[:, 0]


__all__ = ["SamplingOptions", "sample"]
