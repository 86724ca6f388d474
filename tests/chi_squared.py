"""Pearson's chi-squared test. Tests use fixed seeds, so that p-values are always the same."""

import torch
from torch import Tensor

LIKELY = 1e-3  # p-value that right frequencies reach


def p_value(observed: Tensor, expected: Tensor, fitted: int = 0) -> float:
    """Return the p-value of observed counts, given expected ones. Cells with fewer than 5 expected
    are joined.

    Args:
        fitted: Parameters that were estimated from the observed counts.
    """
    often = expected >= 5
    cells = [
        torch.cat([each[often], each[~often].sum()[None]]).double() for each in (observed, expected)
    ]
    torch.testing.assert_close(cells[1].sum(), cells[0].sum(), rtol=1e-4, atol=0.0)
    assert (observed[expected == 0] == 0).all()
    counts, wanted = (each[cells[1] > 0] for each in cells)
    if len(wanted) == 1:
        return 1.0
    statistic = ((counts - wanted) ** 2 / wanted).sum()
    degrees = torch.tensor(float(len(wanted) - 1 - fitted), dtype=torch.double)
    return torch.special.gammaincc(degrees / 2, statistic / 2).item()
