"""Numbers that are equal but for rounding, on any processor, or but for chance.

Tests use fixed seeds, so that p-values are always the same.
"""

import pytest
import torch
from torch import Tensor


def close_to(values, relative=1e-5):
    """Return a value that equals scores or log-probabilities up to a share of their size.

    Below 1, the share is of 1: log-probabilities are differences of logits, which are hardly
    smaller.
    """
    return pytest.approx(values, rel=relative, abs=relative)


LIKELY = 1e-3  # p-value that right frequencies reach


def p_value(observed: Tensor, expected: Tensor, fitted: int = 0) -> float:
    """Return the p-value of observed counts, given expected ones. Cells with fewer than 5 expected
    are joined.

    Args:
        fitted: Parameters that were estimated from the observed counts.
    """
    often = expected >= 5
    counts, wanted = _joined(observed, often), _joined(expected, often)
    torch.testing.assert_close(wanted.sum(), counts.sum(), rtol=1e-4, atol=0.0)
    assert (observed[expected == 0] == 0).all()
    counts, wanted = counts[wanted > 0], wanted[wanted > 0]
    if len(wanted) == 1:
        return 1.0
    statistic = ((counts - wanted) ** 2 / wanted).sum()
    degrees = torch.tensor(float(len(wanted) - 1 - fitted), dtype=torch.double)
    return torch.special.gammaincc(degrees / 2, statistic / 2).item()


def _joined(cells: Tensor, often: Tensor) -> Tensor:
    return torch.cat([cells[often], cells[~often].sum()[None]]).double()
