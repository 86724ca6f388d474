"""
Batches of sentence pairs of similar length (section 5.1), limited by their number of tokens.

`plan_batches` is a pure function of lengths, token budget, seed and epoch. A [`MicroBatch`] is what
the training loop receives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from vanilla_transformer.errors import UserError

# Batches are exchanged among this many neighboring steps, so that the batches of one step have
# about the same size.
STEPS_PER_NEIGHBORHOOD = 4
# The remainder of an epoch is spread over this many steps, so that no step is much smaller than the
# others.
STEPS_SHARING_REMAINDER = 16


Batch = dict[str, torch.Tensor]
IGNORED_LABEL = -100  # the library's mark of positions without a label


class BatchShape(NamedTuple):
    """The rows of a batch, and the tokens of each row on both sides, with padding."""

    rows: int
    source_length: int
    target_length: int


class TokenCounts(NamedTuple):
    """Numbers of tokens, known on the host: of the source, of the target, and of both sides with
    padding.
    """

    source_tokens: int = 0
    target_tokens: int = 0
    padded_tokens: int = 0


@dataclass(frozen=True, eq=False)
class MicroBatch:
    """
    One forward and backward pass of one process.

    Args:
        tensors: Tensors on the CPU, as [`TokenTable.pad`] or [`TokenTable.pack`] return them.
        pairs: The numbers of its pairs in the corpus, from 0.
        counts: Its numbers of tokens; target tokens are the labels that count.
        step_target_tokens (`int`): Target tokens of the whole step, over all processes and
            micro-batches.
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


Lengths = Sequence[int] | np.ndarray


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """
    One epoch of batches; `plan[step]` lists the batches of a training step, each an array of pair
    indices.

    Args:
        pairs: The indices of all pairs, batch by batch, `(pairs,)`.
        bounds: The position in `pairs` at which each batch begins, then the end of the last one,
            `(batches + 1,)`.
        steps: The batches of each training step, `(steps, batches_per_step)`.
        rows: The row of each of `pairs` in its batch, ascending in each batch, `(pairs,)`; None if
            each has its own.
    """

    pairs: np.ndarray
    bounds: np.ndarray
    steps: np.ndarray
    rows: np.ndarray | None = None

    def __len__(self) -> int:
        """Return the number of training steps of the epoch."""
        return len(self.steps)

    def __getitem__(self, step: int) -> list[np.ndarray]:
        return [
            self.pairs[self.bounds[batch] : self.bounds[batch + 1]] for batch in self.steps[step]
        ]

    def rows_of(self, step: int) -> list[np.ndarray | None]:
        """Return `rows` of the batches of a training step, or None for each."""
        bounds = [slice(*self.bounds[batch : batch + 2]) for batch in self.steps[step]]
        return [None if self.rows is None else self.rows[batch_bounds] for batch_bounds in bounds]


EMPTY_PLAN = BatchPlan(pairs=np.empty(0, int), bounds=np.zeros(1, int), steps=np.empty((0, 0), int))


def plan_batches(
    source_lengths: Lengths,
    target_lengths: Lengths,
    max_tokens: int,
    seed: int = 0,
    epoch: int = 0,
    batches_per_step: int = 1,
    pad_to_multiple_of: int = 1,
    window: int = 0,
) -> BatchPlan:
    """
    Plan one epoch of batches, or one window of it: every pair once, pairs of similar length
    together, batches in random order.

    Args:
        source_lengths, target_lengths: Tokens of each pair including EOS; int32 arrays are not
            copied.
        max_tokens (`int`):
            Upper bound of the padded source tokens, and of the padded target tokens, of each batch.
        seed, epoch (`int`): Determine the order, but not the number of steps, which is the same in
            every epoch.
        batches_per_step (`int`):
            Batches of one training step over all processes and accumulations. They hold pairs of
            similar length and have about the same number of padded tokens, so processes finish
            together. Their distribution over processes does not change the step.
        pad_to_multiple_of (`int`): Batches are padded to lengths that are multiples of this number.
        window (`int`): The number of the window, from 0, which also determines the order.
    """
    source, target = np.asarray(source_lengths), np.asarray(target_lengths)
    check_lengths(source, target, max_tokens, batches_per_step, pad_to_multiple_of)
    source = round_up(source, pad_to_multiple_of)
    target = round_up(target, pad_to_multiple_of)
    longest = np.maximum(source, target)
    # Numpy fills a seed up with zeros: window 0 is planned as an epoch without windows.
    random = np.random.default_rng((seed, epoch, window))
    pairs = _sort(longest, source, target, random)
    bounds = _cut(longest[pairs], max_tokens, batches_per_step, random)
    cost = _padded(source[pairs], bounds) + _padded(target[pairs], bounds)
    return BatchPlan(pairs, bounds, random.permutation(_group(cost, batches_per_step)))


def check_lengths(
    source: np.ndarray,
    target: np.ndarray,
    max_tokens: int,
    batches_per_step: int,
    pad_to_multiple_of: int = 1,
) -> None:
    """Check the arguments of [`plan_batches`]."""
    if len(source) != len(target):
        raise UserError(
            f"There must be as many source as target lengths, got {len(source)} of the source and "
            f"{len(target)} of the target."
        )
    for name, lengths in (("source", source), ("target", target)):
        if len(lengths) and lengths.min() < 1:
            raise UserError(
                f"Each sentence has at least one token, EOS, but pair {int(lengths.argmin()) + 1} "
                f"has {lengths.min()} {name} tokens."
            )
    if len(source) < batches_per_step:
        raise UserError(
            f"There must be a pair for each of the {batches_per_step} batches of a step (processes "
            f"× accumulation), got {len(source)} pairs. Start fewer processes, lower "
            "`gradient_accumulation_steps`, or train on more text."
        )
    longest = np.maximum(source, target)
    least = int(round_up(longest.max(), pad_to_multiple_of))
    if least > max_tokens:
        pair = int(longest.argmax())
        rounded = f", as a multiple of {pad_to_multiple_of}" if pad_to_multiple_of > 1 else ""
        raise UserError(
            f"`max_tokens` must be at least the length of the longest sentence{rounded}, got "
            f"max_tokens={max_tokens}, but pair {pair + 1} after cleaning has {source[pair]} "
            f"source and {target[pair]} target tokens. Raise `max_tokens` to {least} or take the "
            "pair out of the corpus."
        )


def _sort(
    longest: np.ndarray, source: np.ndarray, target: np.ndarray, random: np.random.Generator
) -> np.ndarray:
    """
    Sort pairs by their longer side, which fills the budget, then by the difference of the sides.

    Differences alternate between ascending and descending, so the order continues among pairs of
    similar difference at the next length. Pairs equal in both are shuffled and share their batch
    with other pairs in each epoch.
    """
    # Numpy sorts 16-bit integers by counting, in a fraction of the time.
    narrow = np.int16 if longest.max() <= np.iinfo(np.int16).max else np.int64
    difference = np.subtract(source, target, dtype=narrow)
    np.negative(difference, out=difference, where=longest % 2 == 1)
    shuffled = random.integers(1 << 16, size=len(longest), dtype=np.uint16)
    order = np.lexsort((shuffled, difference, longest.astype(narrow)))
    return order.astype(np.int32) if len(order) <= np.iinfo(np.int32).max else order


def _cut(
    longest: np.ndarray, max_tokens: int, divisor: int, random: np.random.Generator
) -> np.ndarray:
    """Cut sorted pairs into batches.

    Their number is a multiple of `divisor` and the same in every epoch.
    """
    bounds = _fill(longest, max_tokens)
    number = _number_of_batches(len(longest), len(bounds) - 1, divisor)
    if number >= len(bounds):  # one batch more than at least
        # A random size of the first batch gives each epoch other bounds. It adds at most one batch:
        # each new bound comes after its predecessor among the old ones.
        first = random.integers((bounds[1] + 1) // 2, bounds[1] + 1)
        bounds = np.append(0, first + _fill(longest[first:], max_tokens))
    return _share_remainder(longest, bounds, number, divisor, max_tokens)


def _number_of_batches(pairs: int, fewest: int, divisor: int) -> int:
    """Return the first multiple of `divisor` above `fewest`, or equal to it if there are few
    pairs.
    """
    above = fewest // divisor * divisor + divisor
    at_least = -(-fewest // divisor) * divisor
    if at_least > pairs:
        raise UserError(
            f"{pairs} pairs cannot be divided among the {divisor} batches of a step "
            "(processes × accumulation). Raise `max_tokens`, so that batches hold several pairs."
        )
    return above if above <= pairs else at_least


def _fill(longest: np.ndarray, max_tokens: int) -> np.ndarray:
    """Cut pairs, given by their longer side, into the fewest batches; return the beginning of each,
    then the end.
    """
    bounds, counts = [0], np.arange(1, min(max_tokens, len(longest)) + 1)
    while bounds[-1] < len(longest):
        begin = bounds[-1]
        window = longest[begin : begin + max_tokens // int(longest[begin])]
        padded = np.maximum.accumulate(window) * counts[: len(window)]
        bounds.append(begin + int(padded.searchsorted(max_tokens, side="right")))
    return np.array(bounds)


def _share_remainder(
    longest: np.ndarray, bounds: np.ndarray, number: int, divisor: int, max_tokens: int
) -> np.ndarray:
    """Cut the last batches again into batches of similar size, so that there are `number` batches
    in all.
    """
    # After batch `first` there must be a pair for each remaining batch.
    spare = np.flatnonzero(bounds - np.arange(len(bounds)) <= len(longest) - number)
    first = max(0, min(number - divisor * STEPS_SHARING_REMAINDER, int(spare[-1])))
    rest = longest[bounds[first] :]
    budget = _least_budget(rest, number - first, max_tokens)
    again = _halve_largest(_fill(rest, budget), number - first)
    return np.append(bounds[:first], bounds[first] + again)


def _least_budget(longest: np.ndarray, number: int, max_tokens: int) -> int:
    """Return the smallest budget that yields at most `number` batches, found by bisection."""
    low, high = int(longest.max()), max_tokens
    while low < high:
        middle = (low + high) // 2
        low, high = (
            (low, middle) if len(_fill(longest, middle)) - 1 <= number else (middle + 1, high)
        )
    return low


def _halve_largest(bounds: np.ndarray, number: int) -> np.ndarray:
    """Halve the largest batches until there are `number` of them."""
    while len(bounds) - 1 < number:
        largest = int(np.diff(bounds).argmax())
        bounds = np.insert(bounds, largest + 1, (bounds[largest] + bounds[largest + 1]) // 2)
    return bounds


def _padded(lengths: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Return the padded tokens of each batch, `(batches,)`."""
    return np.maximum.reduceat(lengths, bounds[:-1]).astype(np.int64) * np.diff(bounds)


def _group(cost: np.ndarray, batches_per_step: int) -> np.ndarray:
    """Group neighboring batches of similar cost into steps, `(steps, batches_per_step)`."""
    neighborhood = np.arange(len(cost)) // (batches_per_step * STEPS_PER_NEIGHBORHOOD)
    return np.lexsort((cost, neighborhood)).reshape(-1, batches_per_step)
