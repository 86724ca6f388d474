"""Batches of sentence pairs of similar length (section 5.1), limited by their number of tokens.

`plan_batches` is a pure function of lengths, token budget, seed and epoch. `StatefulBatchSampler` walks through the
plans of successive epochs for the training loop of this package, `TokenBatchSampler` for transformers' `Trainer`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import Sampler

from .corpus import Corpus
from .tokenized_corpus import EncodedPair
from .tuning import STEPS_PER_NEIGHBORHOOD, STEPS_SHARING_REMAINDER

IGNORED_LABEL = -100  # the library's mark of positions without a label
Lengths = Sequence[int] | np.ndarray
Batch = dict[str, torch.Tensor]


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """
    One epoch of batches; `plan[step]` is the list of the batches of one update, each an array of pair numbers.

    Args:
        pairs: All pair numbers, batch after batch, `(pairs,)`.
        bounds: Where in `pairs` each batch begins, and where the last one ends, `(batches + 1,)`.
        steps: Which batches each update is made of, `(steps, batches_per_step)`.
    """

    pairs: np.ndarray
    bounds: np.ndarray
    steps: np.ndarray

    def __len__(self) -> int:
        """Updates of the epoch."""
        return len(self.steps)

    def __getitem__(self, step: int) -> list[np.ndarray]:
        return [self.pairs[self.bounds[batch] : self.bounds[batch + 1]] for batch in self.steps[step]]

    def share(self, step: int, num_replicas: int, rank: int) -> list[np.ndarray]:
        """The batches of one update for one of the processes that share it, each of which gets as many."""
        return self[step][rank::num_replicas]


EMPTY_PLAN = BatchPlan(pairs=np.empty(0, int), bounds=np.zeros(1, int), steps=np.empty((0, 0), int))


def plan_batches(
    source_lengths: Lengths,
    target_lengths: Lengths,
    max_tokens: int,
    seed: int = 0,
    epoch: int = 0,
    batches_per_step: int = 1,
) -> BatchPlan:
    """
    One epoch of batches: every pair once, pairs of like length together, batches in random order.

    Args:
        source_lengths, target_lengths: Tokens of each pair, EOS counted; arrays of int32 are taken as they are.
        max_tokens (`int`):
            Upper bound of the padded source tokens, and of the padded target tokens, of each batch.
        seed, epoch (`int`): The order is a function of both. The number of updates is not: it is that of each epoch.
        batches_per_step (`int`):
            Batches that one update is made of, over all processes and accumulations. They hold pairs of like length
            and have about the same number of padded tokens, so that processes finish together, and how they are dealt
            to processes changes nothing about the update.

    Raises:
        ValueError: a pair alone exceeds `max_tokens`, or there are too few pairs to share; the numbers of lengths
            differ, or a length is below 1.
    """
    source, target = np.asarray(source_lengths), np.asarray(target_lengths)
    _check_lengths(source, target)
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
            f"There must be a pair for each of the {batches_per_step} batches of an update (processes × "
            f"accumulation), got {len(source)} pairs."
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
    Pair numbers by the longer side, which is what fills the budget, then by how much longer the source is, up and down
    by turns: at the next longer side the order goes on among pairs of like difference. Pairs equal in both come in
    random order and so meet others in each epoch.
    """
    # Numpy sorts integers of 16 bits by counting, in a fraction of the time that others take.
    narrow = np.int16 if longest.max() <= np.iinfo(np.int16).max else np.int64
    difference = np.subtract(source, target, dtype=narrow)
    np.negative(difference, out=difference, where=longest % 2 == 1)
    shuffled = random.integers(1 << 16, size=len(longest), dtype=np.uint16)
    order = np.lexsort((shuffled, difference, longest.astype(narrow)))
    return order.astype(np.int32) if len(order) <= np.iinfo(np.int32).max else order


def _cut(longest: np.ndarray, max_tokens: int, divisor: int, random: np.random.Generator) -> np.ndarray:
    """Bounds of the batches of sorted pairs. Their number is a multiple of `divisor`, and that of each epoch."""
    bounds = _fill(longest, max_tokens)
    number = _number_of_batches(len(longest), len(bounds) - 1, divisor)
    if number >= len(bounds):  # one batch more than at least
        # So each epoch has other bounds. Whatever is taken from the first batch, no more than one is added: each bound
        # of the new ones lies behind its predecessor among the old ones.
        first = random.integers((bounds[1] + 1) // 2, bounds[1] + 1)
        bounds = np.append(0, first + _fill(longest[first:], max_tokens))
    return _share_remainder(longest, bounds, number, divisor, max_tokens)


def _number_of_batches(pairs: int, fewest: int, divisor: int) -> int:
    """The first multiple of `divisor` above the fewest batches that hold the pairs, or equal where pairs are few."""
    above, at_least = fewest // divisor * divisor + divisor, -(-fewest // divisor) * divisor
    if at_least > pairs:
        raise ValueError(
            f"{pairs} batches of one pair each cannot be shared by the {divisor} batches of an update "
            "(processes × accumulation). Raise `max_tokens`, so that batches hold several pairs."
        )
    return above if above <= pairs else at_least


def _fill(longest: np.ndarray, max_tokens: int) -> np.ndarray:
    """Cuts pairs, given by their longer side, into the fewest batches; returns where each begins, and the end."""
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
    """Cuts the last batches anew, for `number` of them to be there in all, the new ones of like size."""
    # Behind batch `first` there must be a pair for each batch that is to come.
    spare = np.flatnonzero(bounds - np.arange(len(bounds)) <= len(longest) - number)
    first = max(0, min(number - divisor * STEPS_SHARING_REMAINDER, int(spare[-1])))
    rest = longest[bounds[first] :]
    budget = _least_budget(rest, number - first, max_tokens)
    again = _halve_largest(_fill(rest, budget), number - first)
    return np.append(bounds[:first], bounds[first] + again)


def _least_budget(longest: np.ndarray, number: int, max_tokens: int) -> int:
    """The smallest budget whose batches are at most `number`, found by bisection."""
    low, high = int(longest.max()), max_tokens
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if len(_fill(longest, middle)) - 1 <= number else (middle + 1, high)
    return low


def _halve_largest(bounds: np.ndarray, number: int) -> np.ndarray:
    """Halves the batches of most pairs until there are `number` of them."""
    while len(bounds) - 1 < number:
        largest = int(np.diff(bounds).argmax())
        bounds = np.insert(bounds, largest + 1, (bounds[largest] + bounds[largest + 1]) // 2)
    return bounds


def _padded(lengths: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Tokens of each batch, as wide as its longest pair, `(batches,)`."""
    return np.maximum.reduceat(lengths, bounds[:-1]).astype(np.int64) * np.diff(bounds)


def _group(cost: np.ndarray, batches_per_step: int) -> np.ndarray:
    """Batches of like cost among neighbours, which are of like length, `(steps, batches_per_step)`."""
    neighbourhood = np.arange(len(cost)) // (batches_per_step * STEPS_PER_NEIGHBORHOOD)
    return np.lexsort((cost, neighbourhood)).reshape(-1, batches_per_step)


class TokenBatchSampler(Sampler[list[int]]):
    """
    The batches of one process, an epoch at a time, as transformers' `Trainer` wants them: it counts an epoch's updates
    once, says which epoch comes next, and finds its place in a resumed one by counting.

    Args:
        source_lengths, target_lengths, max_tokens, seed: See [`plan_batches`].
        accumulation (`int`): Batches that each process gets for an update, one after the other.
        num_replicas, rank (`int`): How many processes train together, and which of them this is.
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
        """Which epoch the next iteration gives."""
        per_step = self.num_replicas * self.accumulation
        self.plan = plan_batches(self.source_lengths, self.target_lengths, self.max_tokens, self.seed, epoch, per_step)

    def __len__(self) -> int:
        """Batches of an epoch, the same number in each."""
        return len(self.plan) * self.accumulation

    def __iter__(self) -> Iterator[list[int]]:
        for step in range(len(self.plan)):
            yield from (batch.tolist() for batch in self.plan.share(step, self.num_replicas, self.rank))


class StatefulBatchSampler:
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
        self.batches_per_step = accumulation * num_replicas
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        # Parts of the present epoch that were planned with so many batches an update: [batches, updates done].
        self._parts: list[list[int]] = [[self.batches_per_step, 0]]
        self._enter_epoch()

    def __iter__(self) -> Iterator[list[tuple[list[int], list[EncodedPair]]]]:
        """Yields for each update this process's batches, as the numbers of their pairs and the pairs themselves."""
        while True:
            while self._done < len(self._plan):
                batches = self._plan.share(self._done, self.num_replicas, self.rank)
                self._parts[-1][1] += 1
                yield [self._read(self._left[batch]) for batch in batches]
            self.epoch, self._parts = self.epoch + 1, [[self.batches_per_step, 0]]
            self._enter_epoch()

    @property
    def steps_per_epoch(self) -> int:
        """Updates that the present epoch has altogether."""
        return sum(done for _, done in self._parts[:-1]) + len(self._plan)

    @property
    def progress(self) -> float:
        """Epochs done, with their fraction."""
        return self.epoch + sum(done for _, done in self._parts) / self.steps_per_epoch

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "parts": [list(part) for part in self._parts]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epoch, self._parts = state["epoch"], [list(part) for part in state["parts"]]
        if self._parts[-1][0] != self.batches_per_step:
            self._parts.append([self.batches_per_step, 0])
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
        too_few = len(self._left) < self.batches_per_step and len(self._parts) > 1
        self._plan = EMPTY_PLAN if too_few else self._plan_part(self.batches_per_step)

    def _plan_part(self, batches_per_step: int) -> BatchPlan:
        """A plan of the pairs that are left, in which their numbers count from 0."""
        source, target = self._pairs.source_lengths[self._left], self._pairs.target_lengths[self._left]
        return plan_batches(source, target, self.max_tokens, self.seed, self.epoch, batches_per_step)

    def _read(self, batch: np.ndarray) -> tuple[list[int], list[EncodedPair]]:
        numbers = batch.tolist()
        return numbers, [self._pairs[number] for number in numbers]


def collate(pairs: Sequence[EncodedPair], pad_token_id: int) -> Batch:
    """
    Pads pairs on the right to one batch: `input_ids` and `attention_mask` of shape `(batch_size, source_length)` and
    `labels` of shape `(batch_size, target_length)`, -100 where there is no label.
    """
    sources = _pad([pair.source for pair in pairs], pad_token_id)
    attention_mask = _pad([[1] * len(pair.source) for pair in pairs], 0)
    labels = _pad([pair.target for pair in pairs], IGNORED_LABEL)
    return {"input_ids": sources, "attention_mask": attention_mask, "labels": labels}


def count_tokens(batch: Batch) -> int:
    """Target tokens that have a label."""
    return int((batch["labels"] != IGNORED_LABEL).sum())


def _pad(rows: Sequence[Sequence[int]], value: int) -> torch.Tensor:
    tensors: list[Any] = [torch.tensor(row, dtype=torch.long) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=value)
