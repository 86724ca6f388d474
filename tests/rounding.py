"""Numbers that are equal but for rounding, on any processor."""

import pytest


def close_to(values, relative=1e-5):
    """Return a value that equals scores or log-probabilities up to a share of their size.

    Below 1, the share is of 1: log-probabilities are differences of logits, which are hardly
    smaller.
    """
    return pytest.approx(values, rel=relative, abs=relative)
