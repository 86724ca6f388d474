"""The loss of a batch, which terms are added to."""

from typing import NamedTuple

from torch import Tensor


class SummedLoss(NamedTuple):
    """Loss in nats, summed over the labeled tokens of a batch: as it is trained, with label
    smoothing, and plain.
    """

    smoothed: Tensor
    plain: Tensor
