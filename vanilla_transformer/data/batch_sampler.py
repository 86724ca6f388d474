"""Batches of sentence pairs of similar length (section 5.1), limited by their number of tokens.

`plan_batches` is a pure function of lengths, token budget, seed and epoch. `StatefulBatchSampler` walks through the
plans of successive epochs for [`MicroBatchLoader`], `TokenBatchSampler` for transformers' `Trainer`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import Sampler

from .micro_batch import TokenCounts, round_up
from .stages import ONE_STAGE, Stages
from .tuning import STEPS_PER_NEIGHBORHOOD, STEPS_SHARING_REMAINDER

if TYPE_CHECKING:  # with packages that training on ready batches does not need
    from .corpus import Corpus

Lengths = Sequence[int] | np.ndarray


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """
    One epoch of batches; `plan[step]` lists the batches of a training step, each an array of pair indices.

    Args:
        pairs: The indices of all pairs, batch by batch, `(pairs,)`.
        bounds: The position in `pairs` at which each batch begins, then the end of the last one, `(batches + 1,)`.
        steps: The batches of each training step, `(steps, batches_per_step)`.
    """

    pairs: np.ndarray
    bounds: np.ndarray
    steps: np.ndarray

    def __len__(self) -> int:
        """Return the number of training steps of the epoch."""
        return len(self.steps)

    def __getitem__(self, step: int) -> list[np.ndarray]:
        return [self.pairs[self.bounds[batch] : self.bounds[batch + 1]] for batch in self.steps[step]]

    def shard(self, step: int, num_replicas: int, rank: int) -> list[np.ndarray]:
        """Return the batches of a training step for one process; every process gets the same number of batches."""
        return self[step][rank::num_replicas]


EMPTY_PLAN = BatchPlan(pairs=np.empty(0, int), bounds=np.zeros(1, int), steps=np.empty((0, 0), int))


def plan_batches(
    source_lengths: Lengths,
    target_lengths: Lengths,
    max_tokens: int,
    seed: int = 0,
    epoch: int = 0,
    batches_per_step: int = 1,
    pad_to_multiple_of: int = 1,
) -> BatchPlan:
    """
    Plan one epoch of batches: every pair once, pairs of similar length together, batches in random order.

    Args:
        source_lengths, target_lengths: Tokens of each pair including EOS; int32 arrays are not copied.
        max_tokens (`int`):
            Upper bound of the padded source tokens, and of the padded target tokens, of each batch.
        seed, epoch (`int`): Determine the order, but not the number of steps, which is the same in every epoch.
        batches_per_step (`int`):
            Batches of one training step over all processes and accumulations. They hold pairs of similar length and
            have about the same number of padded tokens, so processes finish together. Their distribution over
            processes does not change the step.
        pad_to_multiple_of (`int`): Batches are padded to lengths that are multiples of this number.

    Raises:
        ValueError: a pair exceeds `max_tokens`, there are too few pairs for the processes, the numbers of lengths
            differ, or a length is below 1.
    """
    source, target = np.asarray(source_lengths), np.asarray(target_lengths)
    _check_lengths(source, target)
    source, target = round_up(source, pad_to_multiple_of), round_up(target, pad_to_multiple_of)
    longest = np.maximum(source, target)
    _check_fits(source, target, longest, max_tokens, batches_per_step)
    random = np.random.default_rng((seed, epoch))
    pairs = _sort(longest, source, target, random)
    bounds = _cut(longest[pairs], max_tokens, batches_per_step, random)
    cost = _padded(source[pairs], bounds) + _padded(target[pairs], bounds)
    return BatchPlan(pairs, bounds, random.permutation(_group(cost, batches_per_step)))


def _check_lengths(source: np.ndarray, target: np.ndarray) -> None:
    if len(source) != len(target):
        raise ValueError(
            f"There must be as many source as target lengths, got {len(source)} of the source and {len(target)} of "
            "the target."
        )
    for name, lengths in (("source", source), ("target", target)):
        if len(lengths) and lengths.min() < 1:
            raise ValueError(
                f"Each sentence has at least one token, EOS, but pair {int(lengths.argmin()) + 1} has {lengths.min()} "
                f"{name} tokens."
            )


def _check_fits(
    source: np.ndarray, target: np.ndarray, longest: np.ndarray, max_tokens: int, batches_per_step: int
) -> None:
    if len(source) < batches_per_step:
        raise ValueError(
            f"There must be a pair for each of the {batches_per_step} batches of a step (processes × "
            f"accumulation), got {len(source)} pairs. Start fewer processes, lower `gradient_accumulation_steps`, or "
            "train on more text."
        )
    if longest.max() > max_tokens:
        pair = int(longest.argmax())
        raise ValueError(
            f"`max_tokens` must be at least the length of the longest sentence, got max_tokens={max_tokens}, but pair "
            f"{pair + 1} has {source[pair]} source and {target[pair]} target tokens. Raise `max_tokens` to "
            f"{int(longest.max())} or take the pair out of the corpus."
        )


def _sort(longest: np.ndarray, source: np.ndarray, target: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """
    Sort pairs by their longer side, which fills the budget, then by the difference of the sides.

    Differences alternate between ascending and descending, so the order continues among pairs of similar difference at
    the next length. Pairs equal in both are shuffled and share their batch with other pairs in each epoch.
    """
    # Numpy sorts 16-bit integers by counting, in a fraction of the time.
    narrow = np.int16 if longest.max() <= np.iinfo(np.int16).max else np.int64
    difference = np.subtract(source, target, dtype=narrow)
    np.negative(difference, out=difference, where=longest % 2 == 1)
    shuffled = random.integers(1 << 16, size=len(longest), dtype=np.uint16)
    order = np.lexsort((shuffled, difference, longest.astype(narrow)))
    return order.astype(np.int32) if len(order) <= np.iinfo(np.int32).max else order


def _cut(longest: np.ndarray, max_tokens: int, divisor: int, random: np.random.Generator) -> np.ndarray:
    """Cut sorted pairs into batches. Their number is a multiple of `divisor` and the same in every epoch."""
    bounds = _fill(longest, max_tokens)
    number = _number_of_batches(len(longest), len(bounds) - 1, divisor)
    if number >= len(bounds):  # one batch more than at least
        # A random size of the first batch gives each epoch other bounds. It adds at most one batch: each new bound
        # comes after its predecessor among the old ones.
        first = random.integers((bounds[1] + 1) // 2, bounds[1] + 1)
        bounds = np.append(0, first + _fill(longest[first:], max_tokens))
    return _share_remainder(longest, bounds, number, divisor, max_tokens)


def _number_of_batches(pairs: int, fewest: int, divisor: int) -> int:
    """Return the first multiple of `divisor` above `fewest`, or equal to it if there are few pairs."""
    above, at_least = fewest // divisor * divisor + divisor, -(-fewest // divisor) * divisor
    if at_least > pairs:
        raise ValueError(
            f"{pairs} pairs cannot be divided among the {divisor} batches of a step "
            "(processes × accumulation). Raise `max_tokens`, so that batches hold several pairs."
        )
    return above if above <= pairs else at_least


def _fill(longest: np.ndarray, max_tokens: int) -> np.ndarray:
    """Cut pairs, given by their longer side, into the fewest batches; return the beginning of each, then the end."""
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
    """Cut the last batches again into batches of similar size, so that there are `number` batches in all."""
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
        low, high = (low, middle) if len(_fill(longest, middle)) - 1 <= number else (middle + 1, high)
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


class TokenBatchSampler(Sampler[list[int]]):
    """
    Batches of one process for transformers' `Trainer`.

    The `Trainer` counts the steps of an epoch once, calls `set_epoch`, and resumes within an epoch by counting.

    Args:
        source_lengths, target_lengths, max_tokens, seed: See [`plan_batches`].
        accumulation (`int`): Gradient accumulation steps: batches of each process per training step.
        num_replicas, rank (`int`): Number of processes, and the index of this one.
    """

    def __init__(
        self,
        source_lengths: Lengths,
        target_lengths: Lengths,
        max_tokens: int,
        seed: int = 0,
        accumulation: int = 1,
        num_replicas: int = 1,
        rank: int = 0,
    ):
        self.source_lengths = np.asarray(source_lengths, dtype=np.int32)
        self.target_lengths = np.asarray(target_lengths, dtype=np.int32)
        self.max_tokens = max_tokens
        self.seed = seed
        self.accumulation = accumulation
        self.num_replicas = num_replicas
        self.rank = rank
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Plan the epoch of the next iteration."""
        per_step = self.num_replicas * self.accumulation
        self.plan = plan_batches(self.source_lengths, self.target_lengths, self.max_tokens, self.seed, epoch, per_step)

    def __len__(self) -> int:
        """Return the number of batches per epoch, the same for every epoch."""
        return len(self.plan) * self.accumulation

    def __iter__(self) -> Iterator[list[int]]:
        for step in range(len(self.plan)):
            yield from (batch.tolist() for batch in self.plan.shard(step, self.num_replicas, self.rank))


@dataclass(frozen=True, eq=False)
class PlannedBatch:
    """
    A micro-batch before its tokens are read.

    Args:
        pairs: The numbers of its pairs in the corpus, from 0.
        rows: The rows of its pairs in the table of the epoch.
        lengths: The tokens of its longest source and its longest target.
        counts: See [`MicroBatch`].
        step_target_tokens (`int`): See [`MicroBatch`].
    """

    pairs: np.ndarray
    rows: np.ndarray
    lengths: tuple[int, int]
    counts: TokenCounts
    step_target_tokens: int


@dataclass(frozen=True)
class Position:
    """
    A place between two steps.

    Args:
        first_step (`int`): Steps done before this epoch.
        epoch (`int`): Epochs done.
        stage (`int`): The number of the stage, from 0, that this epoch belongs to.
        parts: Parts of this epoch: (batches per step, steps done, tokens of a batch). Another part begins when the
            first or the last of them changes.
        steps_per_epoch (`int`): The steps of this epoch, in all parts.
    """

    first_step: int
    epoch: int
    stage: int
    parts: tuple[tuple[int, int, int], ...]
    steps_per_epoch: int

    @property
    def progress(self) -> float:
        """Return the number of epochs done, as a fraction."""
        return self.epoch + sum(done for _, done, _ in self.parts) / self.steps_per_epoch

    def state_dict(self) -> dict[str, Any]:
        return {"first_step": self.first_step, "epoch": self.epoch, "parts": [list(part) for part in self.parts]}


class StatefulBatchSampler:
    """
    Endless batches of one process: all pairs of an epoch, each once, then the pairs of the next epoch.

    The order depends on the corpus, the seed, the epoch and the number of batches per step over all processes
    (`accumulation * num_replicas`). Their distribution over processes does not change a step. At the end of a stage
    the next epoch begins at once.

    A state holds the epoch and the number of its steps done. If it is loaded with another number of batches per step,
    or batches of another size, the rest of the epoch is planned again: no pair occurs twice, and at the end of the
    epoch only pairs too few to fill every batch of a step are skipped.

    Attributes:
        pairs (`EncodedPairs`): The pairs of the current epoch.
    """

    def __init__(
        self,
        corpus: Corpus,
        max_tokens: int,
        seed: int,
        accumulation: int = 1,
        num_replicas: int = 1,
        rank: int = 0,
        pad_to_multiple_of: int = 1,
        stages: Stages = ONE_STAGE,
    ):
        self.corpus = corpus
        self.max_tokens = max_tokens
        self.seed = seed
        self.stages = stages
        self.batches_per_step = accumulation * num_replicas
        self.num_replicas = num_replicas
        self.rank = rank
        self.pad_to_multiple_of = pad_to_multiple_of
        self._enter(0, 0, [self._whole_epoch])

    @property
    def position(self) -> Position:
        """Return the place before the next step."""
        steps = sum(done for _, done, _ in self._earlier_parts) + len(self._plan)
        parts = (*self._earlier_parts, (self.batches_per_step, self._done, self.max_tokens))
        return Position(self._first_step, self.epoch, self.stage, parts, steps)

    @property
    def step(self) -> int:
        """Return the steps done since the beginning of the run."""
        return self._first_step + sum(done for _, done, _ in self._earlier_parts) + self._done

    def load_state_dict(self, state: dict[str, Any]) -> None:
        # A state of a version without `tokens_per_step` has batches of as many tokens in all parts.
        parts = [(batches, done, *(tokens or [self.max_tokens])) for batches, done, *tokens in state["parts"]]
        if (parts[-1][0], parts[-1][2]) != (self.batches_per_step, self.max_tokens):
            parts.append(self._whole_epoch)
        # A state of a version without stages has no first step, on which nothing depends without stages.
        self._enter(state.get("first_step", 0), state["epoch"], parts)

    def enter_next_epoch(self) -> None:
        """Plan the next epoch if the current one has no step left, or its stage has ended."""
        while self._done >= len(self._plan) or self.stages.at(self.step, self.epoch) != self.stage:
            self._enter(self.step, self.epoch + 1, [self._whole_epoch])

    def take_step(self) -> list[PlannedBatch]:
        """Return this process's batches of the next step, of which the current epoch must have one."""
        batches = [self._left[batch] for batch in self._plan[self._done]]
        target_tokens = int(self.pairs.target_lengths[np.concatenate(batches)].sum())
        self._done += 1
        return [self._describe(batch, target_tokens) for batch in batches[self.rank :: self.num_replicas]]

    def _describe(self, batch: np.ndarray, step_target_tokens: int) -> PlannedBatch:
        source, target = self.pairs.source_lengths[batch], self.pairs.target_lengths[batch]
        lengths = tuple(round_up(int(side.max()), self.pad_to_multiple_of) for side in (source, target))
        counts = TokenCounts(int(source.sum()), int(target.sum()), len(batch) * sum(lengths))
        return PlannedBatch(batch, self.pairs.rows[batch], lengths, counts, step_target_tokens)

    @property
    def _whole_epoch(self) -> tuple[int, int, int]:
        return self.batches_per_step, 0, self.max_tokens

    def _enter(self, first_step: int, epoch: int, parts: list[tuple[int, int, int]]) -> None:
        """Plan an epoch: each part consists of the pairs that the earlier parts have left."""
        self._first_step = first_step
        self.epoch = epoch
        self.stage = self.stages.at(first_step, epoch)
        *self._earlier_parts, (_, self._done, _) = parts
        self.pairs = self.corpus.epoch(epoch, self.stage)
        self._left = np.arange(len(self.pairs))
        for batches, done, max_tokens in self._earlier_parts:
            plan = self._plan_part(batches, max_tokens)
            left = [batch for step in range(done, len(plan)) for batch in plan[step]]
            self._left = np.sort(self._left[np.concatenate(left)]) if left else self._left[:0]
        too_few = len(self._left) < self.batches_per_step and len(parts) > 1
        self._plan = EMPTY_PLAN if too_few else self._plan_part(self.batches_per_step, self.max_tokens)

    def _plan_part(self, batches_per_step: int, max_tokens: int) -> BatchPlan:
        """Plan the remaining pairs, indexed from 0."""
        source, target = self.pairs.source_lengths[self._left], self.pairs.target_lengths[self._left]
        return plan_batches(
            source, target, max_tokens, self.seed, self.epoch, batches_per_step, self.pad_to_multiple_of
        )
