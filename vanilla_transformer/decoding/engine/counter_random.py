"""
Random numbers that are a pure function of a seed and a counter.

The generators of torch have one state for all rows of a batch. These numbers have no state: a sentence has the same
ones in any slot, and a compiled step or a CUDA graph can compute them. 32-bit integers are kept in int64, in which no
product of the hash overflows.

Letters in shapes: B slots, M numbers for each.
"""

import torch
from torch import Tensor

_MASK = 2**32 - 1
# The multipliers of lowbias32 of the Hash Prospector (C. Wellons), equal modulo 2³² and below 2³¹ in magnitude.
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
    """Return independent numbers of the standard Gumbel distribution, float32 `(B, M)`; see [`random_bits`]."""
    bits = random_bits(seeds, times, stream, counters)
    uniform = ((bits.to(torch.float32) + 0.5) * 2.0**-32).clamp(max=1.0 - 2.0**-24)
    # Not log(-log(u)): large numbers, which choose unlikely tokens, come from the precise end near 0.
    return -torch.log(-torch.log1p(-uniform))


__all__ = ["LARGEST_SEED", "gumbel_noise", "hash_bits", "random_bits"]
