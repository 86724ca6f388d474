"""Micro-batches of one process, which the training loop receives for each step, with their numbers of tokens."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

Batch = dict[str, torch.Tensor]
IGNORED_LABEL = -100  # the library's mark of positions without a label


class BatchShape(NamedTuple):
    """The rows of a batch, and the tokens of each row on both sides, with padding."""

    rows: int
    source_length: int
    target_length: int


class TokenCounts(NamedTuple):
    """Numbers of tokens, known on the host: of the source, of the target, and of both sides with padding."""

    source_tokens: int = 0
    target_tokens: int = 0
    padded_tokens: int = 0


@dataclass(frozen=True, eq=False)
class MicroBatch:
    """
    One forward and backward pass of one process.

    Args:
        tensors: On the CPU, as [`TokenTable.pad`] or [`TokenTable.pack`] return them.
        pairs: The numbers of its pairs in the corpus, from 0.
        counts: Its numbers of tokens; target tokens are the labels that count.
        step_target_tokens (`int`): Target tokens of the whole step, over all processes and micro-batches.
    """

    tensors: Batch
    pairs: np.ndarray
    counts: TokenCounts
    step_target_tokens: int


def is_packed(batch: Batch) -> bool:
    """Return whether a batch is from [`TokenTable.pack`]."""
    return "source_positions" in batch


def round_up(lengths: Any, multiple: int) -> Any:
    """Round lengths, a number or an array, up to multiples of `multiple`."""
    return lengths if multiple == 1 else -(-lengths // multiple) * multiple
