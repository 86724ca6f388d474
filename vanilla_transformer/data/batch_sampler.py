"""Which batches each update takes, epoch after epoch, and where in them a run stands."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from .batching import EMPTY_PLAN, BatchPlan, plan_batches
from .corpus import Corpus
from .readers import EncodedPair


class UpdateOrder:
    """
    The batches of every update for one process, without end: the pairs of an epoch, each once, then of the next.

    The order is a function of corpus, seed, epoch and of how many batches an update has over all processes
    (`accumulation * num_replicas`); how these are dealt to processes changes nothing about an update.

    `state_dict()` holds the epoch and how many of its updates are done. Loaded where an update has another number of
    batches, the rest of that epoch is planned anew: no pair comes twice, and none is left out but those that are too
    few to give every batch of an update one.
    """

    def __init__(
        self, corpus: Corpus, max_tokens: int, seed: int, accumulation: int = 1, num_replicas: int = 1, rank: int = 0
    ):
        self.corpus = corpus
        self.max_tokens = max_tokens
        self.seed = seed
        self.batches_per_update = accumulation * num_replicas
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        # Parts of the present epoch that were planned with so many batches an update: [batches, updates done].
        self._parts: list[list[int]] = [[self.batches_per_update, 0]]
        self._enter_epoch()

    def __iter__(self) -> Iterator[list[tuple[list[int], list[EncodedPair]]]]:
        """Yields for each update this process's batches, as the numbers of their pairs and the pairs themselves."""
        while True:
            while self._done < len(self._plan):
                batches = self._plan.share(self._done, self.num_replicas, self.rank)
                self._parts[-1][1] += 1
                yield [self._read(self._left[batch]) for batch in batches]
            self.epoch, self._parts = self.epoch + 1, [[self.batches_per_update, 0]]
            self._enter_epoch()

    @property
    def updates_in_epoch(self) -> int:
        """Updates that the present epoch has altogether."""
        return sum(done for _, done in self._parts[:-1]) + len(self._plan)

    @property
    def progress(self) -> float:
        """Epochs done, with their fraction."""
        return self.epoch + sum(done for _, done in self._parts) / self.updates_in_epoch

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "parts": [list(part) for part in self._parts]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epoch, self._parts = state["epoch"], [list(part) for part in state["parts"]]
        if self._parts[-1][0] != self.batches_per_update:
            self._parts.append([self.batches_per_update, 0])
        self._enter_epoch()

    @property
    def _done(self) -> int:
        return self._parts[-1][1]

    def _enter_epoch(self) -> None:
        """Plans the present epoch: each part takes up the pairs that the parts before have left."""
        self._pairs = self.corpus.epoch(self.epoch)
        self._left = np.arange(len(self._pairs))
        for batches, done in self._parts[:-1]:
            plan = self._plan_part(batches)
            left = [batch for update in range(done, len(plan)) for batch in plan[update]]
            self._left = np.sort(self._left[np.concatenate(left)]) if left else self._left[:0]
        too_few = len(self._left) < self.batches_per_update and len(self._parts) > 1
        self._plan = EMPTY_PLAN if too_few else self._plan_part(self.batches_per_update)

    def _plan_part(self, batches_per_update: int) -> BatchPlan:
        """A plan of the pairs that are left, in which their numbers count from 0."""
        source, target = self._pairs.source_lengths[self._left], self._pairs.target_lengths[self._left]
        return plan_batches(source, target, self.max_tokens, self.seed, self.epoch, batches_per_update)

    def _read(self, batch: np.ndarray) -> tuple[list[int], list[EncodedPair]]:
        numbers = batch.tolist()
        return numbers, [self._pairs[number] for number in numbers]
