"""Steps whose losses are still on the device. The host reads many of them at once, and runs ahead in between."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from accelerate import Accelerator

from vanilla_transformer.data.micro_batch import MicroBatch

from .distributed import sum_over_processes
from .metrics import StepSums


@dataclass(frozen=True, eq=False)
class UnreadStep:
    """
    A step of this process.

    Args:
        step: Its number, from 1.
        values: Plain loss, smoothed loss, and 1 if the gradient was finite, otherwise 0; on the device.
        counts: Target tokens, tokens of both sides, and the same with padding.
        pairs: The numbers of its pairs in the corpus, from 0, by micro-batch.
    """

    step: int
    values: torch.Tensor
    counts: tuple[int, int, int]
    pairs: list[np.ndarray]

    @classmethod
    def of(cls, step: int, values: torch.Tensor, batches: Sequence[MicroBatch]) -> "UnreadStep":
        """Create the record of a step from its micro-batches."""
        source, target, padded = (sum(each) for each in zip(*(batch.counts for batch in batches), strict=True))
        return cls(step, values, (target, source + target, padded), [batch.pairs for batch in batches])

    def sentences(self) -> list[int]:
        """Return the numbers of its pairs as a user counts them, from 1."""
        return (np.concatenate(self.pairs) + 1).tolist()


@dataclass(frozen=True)
class ReadStep:
    """The sums of a step over all processes, and whether its gradient was finite."""

    sums: StepSums
    finite_gradient: bool

    @property
    def finite_loss(self) -> bool:
        return math.isfinite(self.sums.smoothed_loss)


def read_steps(accelerator: Accelerator, unread: Sequence[UnreadStep]) -> list[ReadStep]:
    """Wait for the device, and sum the values of each step over all processes, which must call this together."""
    if not unread:
        return []
    counts = torch.tensor([step.counts for step in unread], dtype=torch.float64)
    values = torch.stack([step.values for step in unread]).to("cpu", torch.float64)
    rows = sum_over_processes(accelerator, torch.cat([values, counts], dim=1)).tolist()
    return [
        ReadStep(StepSums(plain, smoothed, *tokens), finite == accelerator.num_processes)
        for plain, smoothed, finite, *tokens in rows
    ]
