"""
The sampler of planned batches (section 5.1), for both training loops.

The package's own loop takes one step after another from [`TokenBudgetBatchSampler`], through epochs
and stages, by [`MicroBatchLoader`]. Transformers' `Trainer` iterates over it, one epoch after
another, as over any batch sampler.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from torch.utils.data import Sampler

from .batches import EMPTY_PLAN, BatchPlan, BatchShape, Lengths, TokenCounts, plan_batches, round_up
from .corpus import Epochs
from .packing import packed_shape, plan_packed_batches
from .stages import ONE_STAGE, Stages

# Plans the next epoch while the current one trains: 3 to 6 seconds for millions of pairs, in which
# a GPU would wait.
_planner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="planner")


class PairLengths(Epochs):
    """
    The lengths of the pairs of any dataset, the same pairs in every epoch, to sample from without a
    [`Corpus`].

    Args:
        source_lengths, target_lengths: Tokens of each pair including EOS; int32 arrays are not
            copied.
    """

    is_constant = True

    def __init__(self, source_lengths: Lengths, target_lengths: Lengths):
        self.source_lengths = np.asarray(source_lengths, dtype=np.int32)
        self.target_lengths = np.asarray(target_lengths, dtype=np.int32)

    def __len__(self) -> int:
        return len(self.source_lengths)

    def epoch(self, number: int, stage: int = 0) -> PairLengths:
        """Return the pairs of an epoch, as [`Corpus.epoch`] does."""
        return self


@dataclass(frozen=True, eq=False)
class PlannedBatch:
    """
    A micro-batch before its tokens are read.

    Args:
        pairs: The numbers of its pairs in the corpus, from 0.
        rows: The rows of its pairs in the table of the window.
        shape: Its rows, and the tokens of each row on both sides, with padding.
        places: The row of each pair in a packed batch; otherwise None, and each pair has a row.
        step_target_tokens (`int`): See [`MicroBatch`].
    """

    pairs: np.ndarray
    rows: np.ndarray
    shape: BatchShape
    places: np.ndarray | None
    counts: TokenCounts
    step_target_tokens: int


class EpochPart(NamedTuple):
    """
    Steps of a window that are planned alike.

    Args:
        batches_per_step (`int`): Over all processes and accumulations.
        done (`int`): Its steps done.
        max_tokens (`int`): See [`plan_batches`].
        packing (`bool`): Whether its batches are packed.
    """

    batches_per_step: int
    done: int
    max_tokens: int
    packing: bool


@dataclass(frozen=True)
class Position:
    """
    A place between two steps.

    Args:
        first_step (`int`): Steps done before this window.
        epoch (`int`): Epochs done.
        stage (`int`): The number of the stage, from 0, that this epoch belongs to.
        parts: Parts of this window. Another part begins when a run resumes with other batches.
        steps (`int`): The steps of this window, in all parts.
        window (`int`): Windows of this epoch that are done.
        begin, share (`float`): See [`Window`].
    """

    first_step: int
    epoch: int
    stage: int
    parts: tuple[EpochPart, ...]
    steps: int
    window: int = 0
    begin: float = 0.0
    share: float = 1.0

    @property
    def done(self) -> int:
        """Return the steps of this window that are done."""
        return sum(part.done for part in self.parts)

    @property
    def steps_per_epoch(self) -> int:
        """Return the steps of this epoch, by the tokens of each window if there are several."""
        return round(self.steps / self.share)

    @property
    def progress(self) -> float:
        """Return the number of epochs done, as a fraction."""
        return self.epoch + self.begin + self.share * (self.done / self.steps)

    @property
    def begins_part(self) -> bool:
        """Return whether the run has just resumed with other batches."""
        return len(self.parts) > 1 and not self.parts[-1].done

    def state_dict(self) -> dict[str, Any]:
        return {
            "first_step": self.first_step,
            "epoch": self.epoch,
            "window": self.window,
            "parts": [list(part) for part in self.parts],
        }


class TokenBudgetBatchSampler(Sampler[list[int]]):
    """
    Batches of one process: all pairs of an epoch, each once, then the pairs of the next epoch,
    without end.

    An epoch of a corpus that is larger than memory has several windows, one after the other, each
    with its own plan.

    The order depends on the corpus, the seed, the epoch and the number of batches per step over all
    processes (`accumulation * num_replicas`). Their distribution over processes does not change a
    step. At the end of a stage the next epoch begins at once.

    A state holds the epoch, its window and the number of its steps done. If it is loaded with
    another number of batches per step, or batches of another size or kind, the rest of the window
    is planned again: no pair occurs twice, and at the end of the window only pairs too few to fill
    every batch of a step are skipped.

    There are two ways to use it:

    - `enter_next_epoch()` and `take_step()` return one step after another. `position` is the place
      between two steps.
    - As the `batch_sampler` of a [`DataLoader`], it yields the indices of the pairs of each batch,
      to the end of the epoch, and its place stays. `set_epoch` chooses the epoch. `Trainer` resumes
      by counting batches.

    Args:
        corpus: The pairs. As a `batch_sampler` it needs their lengths alone.
        accumulation (`int`): Batches of each process per training step.
        num_replicas, rank (`int`): Number of processes, and the index of this one.
        stages: The stages of the run, which change the pairs of an epoch.
        packing (`bool`): Whether batches are packed: see [`plan_packed_batches`].

    Attributes:
        pairs (`EncodedPairs`): The pairs of the current window.
        packed_shape (`BatchShape`): The shape of its packed batches; otherwise None.
    """

    def __init__(
        self,
        corpus: Epochs,
        max_tokens: int,
        seed: int = 0,
        accumulation: int = 1,
        num_replicas: int = 1,
        rank: int = 0,
        pad_to_multiple_of: int = 1,
        stages: Stages = ONE_STAGE,
        packing: bool = False,
    ):
        self.corpus: Any = corpus
        self.max_tokens = max_tokens
        self.seed = seed
        self.stages = stages
        self.batches_per_step = accumulation * num_replicas
        self.num_replicas = num_replicas
        self.pad_to_multiple_of = pad_to_multiple_of
        self.packing = packing
        # Plans of whole windows, by epoch, window, stage and part
        self._plans: dict[tuple[int, int, int, EpochPart], Future[BatchPlan]] = {}
        self._own = slice(rank, None, num_replicas)  # the batches of a step that are this process's
        longest = max_tokens // pad_to_multiple_of * pad_to_multiple_of
        corpus.check_batches(longest, self.batches_per_step)
        self._enter(0, 0, 0, [self._part()])

    def __len__(self) -> int:
        """Return the number of batches that iteration yields.

        All epochs of a [`PairLengths`] have the same number.
        """
        return (len(self._plan) - self._done) * (self.batches_per_step // self.num_replicas)

    def __iter__(self) -> Iterator[list[int]]:
        for step in range(self._done, len(self._plan)):
            yield from (batch.tolist() for batch in self._batches(step)[self._own])

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of an epoch, as the first one of a run."""
        if epoch != self.epoch or self.step:
            self._enter(0, epoch, 0, [self._part()])

    @property
    def position(self) -> Position:
        """Return the place before the next step."""
        steps = sum(part.done for part in self._earlier_parts) + len(self._plan)
        parts = (*self._earlier_parts, self._part(self._done))
        epoch = self._first_step, self.epoch, self.stage, parts, steps
        return Position(*epoch, self._number, self._window.begin, self._window.share)

    @property
    def step(self) -> int:
        """Return the steps done since the beginning of the run."""
        return self._first_step + sum(part.done for part in self._earlier_parts) + self._done

    def load_state_dict(self, state: dict[str, Any]) -> None:
        parts = [EpochPart(*part) for part in state["parts"]]
        if parts[-1] != self._part(parts[-1].done):
            parts.append(self._part())
        # Releases before windows stored none.
        self._enter(state["first_step"], state["epoch"], state.get("window", 0), parts)

    def enter_next_epoch(self) -> None:
        """Plan the next window, maybe of the next epoch, if the current one has no step left, or
        its stage has ended.
        """
        while self._done >= len(self._plan) or self._has_stage_ended():
            self._enter(self.step, *self._next(), [self._part()])

    def _has_stage_ended(self) -> bool:
        return self.stages.at(self.step, self.epoch) != self.stage

    def _next(self) -> tuple[int, int]:
        """Return the epoch and the number of the window after the current one."""
        windows = self.corpus.count_windows(self.stage)
        if self._number + 1 == windows or self._has_stage_ended():
            return self.epoch + 1, 0
        return self.epoch, self._number + 1

    def take_step(self) -> list[PlannedBatch]:
        """Return this process's batches of the next step, of which the current epoch must have
        one.
        """
        source, target = self.pairs.source_lengths, self.pairs.target_lengths
        batches = self._batches(self._done)
        places = self._plan.rows_of(self._done)
        step_target_tokens = int(target[np.concatenate(batches)].sum())
        planned = []
        for batch, rows in zip(batches[self._own], places[self._own], strict=True):
            longest = (
                round_up(int(side[batch].max()), self.pad_to_multiple_of)
                for side in (source, target)
            )
            shape = self.packed_shape or BatchShape(len(batch), *longest)
            padded = shape.rows * (shape.source_length + shape.target_length)
            counts = TokenCounts(int(source[batch].sum()), int(target[batch].sum()), padded)
            numbers, batch_rows = self._window.numbers(batch), self.pairs.rows[batch]
            planned.append(
                PlannedBatch(numbers, batch_rows, shape, rows, counts, step_target_tokens)
            )
        self._done += 1
        # Otherwise the next epoch is made from text, which would slow this one down.
        known = self.corpus.is_constant or self.corpus.count_windows(self.stage) > 1
        if known and self._done == len(self._plan) // 2:
            key = (*self._next(), self.stage, self._part())
            self._plans[key] = _planner.submit(self._plan_window, *key, self.packed_shape)
        return planned

    def _batches(self, step: int) -> list[np.ndarray]:
        """Return the pairs of each batch of a step of the plan, over all processes."""
        return [self._left[batch] for batch in self._plan[step]]

    def _part(self, done: int = 0) -> EpochPart:
        return EpochPart(self.batches_per_step, done, self.max_tokens, self.packing)

    def _enter(self, first_step: int, epoch: int, window: int, parts: list[EpochPart]) -> None:
        """Plan a window: each part consists of the pairs that the earlier parts have left."""
        self._first_step = first_step
        self.epoch = epoch
        self._number = window
        self.stage = self.stages.at(first_step, epoch)
        *self._earlier_parts, current = parts
        self._done = current.done
        self._window = self.corpus.window(epoch, window, self.stage)
        self.pairs = self._window.pairs
        lengths = self.pairs.source_lengths, self.pairs.target_lengths
        # The shape of packed batches, the same in all windows.
        shapes: list[BatchShape | None] = []
        for part in parts:
            limits = part.max_tokens, self.corpus.side_lengths(self.stage)
            shapes.append(packed_shape(*lengths, *limits) if part.packing else None)
        self.packed_shape = shapes[-1]
        self._left = np.arange(len(self.pairs))
        for part, shape in zip(self._earlier_parts, shapes, strict=False):
            plan = self._plan_part(part, shape)
            left = [np.empty(0, np.int64)]
            for step in range(part.done, len(plan)):
                left += plan[step]
            self._left = np.sort(self._left[np.concatenate(left)])
        too_few = len(self._left) < self.batches_per_step and len(parts) > 1
        self._plan = EMPTY_PLAN if too_few else self._plan_part(current, self.packed_shape)

    def _plan_part(self, part: EpochPart, shape: BatchShape | None) -> BatchPlan:
        """Plan the remaining pairs, indexed from 0, or return the plan of all pairs that was made
        before.

        Args:
            shape: The shape of packed batches.
        """
        if len(self._left) < len(self.pairs):
            source = self.pairs.source_lengths[self._left]
            target = self.pairs.target_lengths[self._left]
            return self._plan_pairs(source, target, shape, part, (self.epoch, self._number))
        key = (self.epoch, self._number, self.stage, part._replace(done=0))
        if key not in self._plans:
            plan = self._plan_window(*key, shape)
            self._plans[key] = Future()
            self._plans[key].set_result(plan)
        self._plans = {key: self._plans[key]}
        return self._plans[key].result()

    def _plan_window(
        self, epoch: int, number: int, stage: int, part: EpochPart, shape: BatchShape | None
    ) -> BatchPlan:
        pairs = self.corpus.window(epoch, number, stage).pairs
        lengths = pairs.source_lengths, pairs.target_lengths
        return self._plan_pairs(*lengths, shape, part, (epoch, number))

    def _plan_pairs(
        self,
        source: np.ndarray,
        target: np.ndarray,
        shape: BatchShape | None,
        part: EpochPart,
        numbers: tuple[int, int],
    ) -> BatchPlan:
        epoch, window = numbers
        seed_and_epoch = self.seed, epoch, part.batches_per_step
        if shape is not None:
            return plan_packed_batches(source, target, shape, *seed_and_epoch, window)
        return plan_batches(
            source, target, part.max_tokens, *seed_and_epoch, self.pad_to_multiple_of, window
        )
