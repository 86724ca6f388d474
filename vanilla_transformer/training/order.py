"""Which batches each update takes, epoch after epoch, and where in them a run stands."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from .batching import plan_batches
from .corpora import EncodedPair


class NumberedPairs(Protocol):
    """The encoded pairs of one epoch; `source_lengths` and `target_lengths` are tokens with EOS, one for each."""

    source_lengths: np.ndarray
    target_lengths: np.ndarray

    def __len__(self) -> int: ...

    def __getitem__(self, number: int) -> EncodedPair: ...


class Corpus(Protocol):
    """Training text as the loop sees it: an endless row of epochs, each a function of its number."""

    def epoch(self, number: int) -> NumberedPairs: ...


class InMemoryCorpus:
    """Encoded pairs that are the same in every epoch."""

    def __init__(self, pairs: Sequence[EncodedPair]):
        self._pairs = pairs
        self.source_lengths = np.array([len(pair.source) for pair in pairs])
        self.target_lengths = np.array([len(pair.target) for pair in pairs])

    def __len__(self) -> int:
        return len(self._pairs)

    def __getitem__(self, number: int) -> EncodedPair:
        return self._pairs[number]

    def epoch(self, number: int) -> "InMemoryCorpus":
        return self


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
                update = self._plan[self._done]
                self._parts[-1][1] += 1
                yield [self._read(batch) for batch in update[self.rank :: self.num_replicas]]
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
        left = np.arange(len(self._pairs))
        for batches, done in self._parts[:-1]:
            updates = self._plan_updates(left, batches)
            left = np.sort(np.concatenate([pairs for update in updates[done:] for pairs in update]))
        enough = len(left) >= self.batches_per_update or len(self._parts) == 1
        self._plan = self._plan_updates(left, self.batches_per_update) if enough else []

    def _plan_updates(self, numbers: np.ndarray, batches_per_update: int) -> list[list[np.ndarray]]:
        source, target = np.asarray(self._pairs.source_lengths), np.asarray(self._pairs.target_lengths)
        updates = plan_batches(
            source[numbers], target[numbers], self.max_tokens, self.seed, self.epoch, batches_per_update
        )
        return [[numbers[np.asarray(batch)] for batch in update] for update in updates]

    def _read(self, batch: np.ndarray) -> tuple[list[int], list[EncodedPair]]:
        numbers = batch.tolist()
        return numbers, [self._pairs[number] for number in numbers]
