"""Positions as toolkits other than the paper's have them."""

import math

import torch


def spanning_sinusoids(count: int, d_model: int, first: int = 0) -> torch.Tensor:
    """
    Encodings whose wavelengths go from 2π to 10000 · 2π exactly, all sines before all cosines, `(count, d_model)`.
    fairseq, Marian and Tensor2Tensor have these; section 3.5 divides exponents by `d_model / 2` and never gets there.

    Args:
        first: The position of the first row.
    """
    half = d_model // 2
    frequencies = torch.exp(torch.arange(half, dtype=torch.float64) * -(math.log(10000) / (half - 1)))
    angles = (torch.arange(count, dtype=torch.float64) + first)[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1).float()
