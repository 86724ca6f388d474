"""
Draw the next token of every slot, with the filters of transformers.

A Gumbel number is added to each score and the largest sum wins, which draws from the softmax of the
scores. It draws a block of the vocabulary first, then a token of that block: so few random numbers
are needed, and rounding errors of the logits almost never change a sample.

Random numbers are a pure function of a seed and a counter, while the generators of torch have one
state for all rows of a batch. So a sentence has the same ones in any slot, and a compiled step or a
CUDA graph can compute them. 32-bit integers are kept in int64, in which no product of the hash
overflows.

Letters in shapes: B slots, M numbers for each, V vocabulary.
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

from vanilla_transformer.errors import UserError

from .top_k import reduce_blocks, tokens_of_blocks

_MASK = 2**32 - 1
# The multipliers of lowbias32 of the Hash Prospector (C. Wellons), equal modulo 2³² and below 2³¹
# in magnitude.
_FIRST, _SECOND = 0x7FEB352D, 0x846CA68B - 2**32
_STEP = 0x9E3779B9  # the golden ratio times 2³², which separates small counters
LARGEST_SEED = 2**62 - 1


def hash_bits(values: Tensor) -> Tensor:
    """Map 32-bit integers in int64 one to one to such integers that look random."""
    values = ((values ^ (values >> 16)) * _FIRST) & _MASK
    values = ((values ^ (values >> 15)) * _SECOND) & _MASK
    return values ^ (values >> 16)


def random_bits(seeds: Tensor, times: Tensor, stream: int, counters: Tensor) -> Tensor:
    """
    Return 32 random bits for each counter, as int64 `(B, M)`.

    Args:
        seeds, times: Of each slot, `(B,)`; seeds are from 0 to [`LARGEST_SEED`].
        stream: Separates numbers for different uses.
        counters: `(M,)` or `(B, M)`.
    """
    key = hash_bits((times + stream * _STEP) & _MASK)
    first = hash_bits(key ^ (seeds & _MASK))
    second = hash_bits(((first + _STEP) & _MASK) ^ (seeds >> 32))
    # Two keys of 32 bits: rows share a sequence only if both are equal.
    return hash_bits(hash_bits(counters ^ second[:, None]) ^ first[:, None])


def gumbel_noise(seeds: Tensor, times: Tensor, stream: int, counters: Tensor) -> Tensor:
    """Return independent numbers of the standard Gumbel distribution, float32 `(B, M)`; see
    [`random_bits`].
    """
    bits = random_bits(seeds, times, stream, counters)
    uniform = ((bits.to(torch.float32) + 0.5) * 2.0**-32).clamp(max=1.0 - 2.0**-24)
    # Not log(-log(u)): large numbers, which choose unlikely tokens, come from the precise end near
    # 0.
    return -torch.log(-torch.log1p(-uniform))


_OF_BLOCKS, _OF_TOKENS = 0, 1  # streams of random numbers


@dataclass(frozen=True)
class SamplingOptions:
    """
    Options of sampling, with the meaning and the order of transformers' `generate()`.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    epsilon_cutoff: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if type(value) is bool or not isinstance(value, int | float):
                raise UserError(f"`{name}` must be a number, got {value!r}.")
        self.filters()

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> "SamplingOptions":
        """Read the options of a generation config, where None means no filter."""
        values = {name: options.get(name) for name in cls.__dataclass_fields__}
        return cls(**{name: value for name, value in values.items() if value is not None})

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
    """The library's filter without its assignment of a constant, which a GPU would copy from the
    host.
    """

    def __call__(self, input_ids: object, scores: Tensor) -> Tensor:
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
    scores = reduce_blocks(logits, torch.logsumexp)
    blocks = torch.arange(scores.shape[1], device=logits.device)
    block = (scores + gumbel_noise(seeds, times, _OF_BLOCKS, blocks)).argmax(dim=-1, keepdim=True)
    tokens, repeated = tokens_of_blocks(block, logits.shape[1])
    scores = logits.gather(1, tokens).masked_fill(repeated, -torch.inf) + gumbel_noise(
        seeds, times, _OF_TOKENS, tokens
    )
    return tokens.gather(1, scores.argmax(dim=-1, keepdim=True))[:, 0]
