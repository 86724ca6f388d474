"""
Batches of approximate sequence length (section 5.1 of the paper), filled up to a number of tokens.

`plan_batches` is a pure function of lengths, budget, seed and epoch; `TokenBatchSampler` walks through its plans, rank
by rank, and can say where it is.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Sampler

from .corpora import EncodedPair

IGNORED_LABEL = -100  # the library's mark of positions without a label


def plan_batches(
    source_lengths: Sequence[int],
    target_lengths: Sequence[int],
    max_tokens: int,
    seed: int = 0,
    epoch: int = 0,
    batches_per_step: int = 1,
) -> list[list[list[int]]]:
    """
    One epoch of batches: every pair once, pairs of like length together, batches in random order.

    Args:
        source_lengths, target_lengths: Tokens of each pair, EOS counted.
        max_tokens (`int`):
            Upper bound of the padded source tokens, and of the padded target tokens, of each batch.
        seed, epoch (`int`): The order is a function of both.
        batches_per_step (`int`):
            Batches that one update is made of, over all processes and accumulations. They hold pairs of like length,
            so that processes finish together, and how they are dealt to processes changes nothing about the update.

    Returns:
        A list of steps; each holds `batches_per_step` batches of pair numbers.

    Raises:
        ValueError: a pair alone exceeds `max_tokens`, or there are too few pairs to share.
    """
    source, target = np.asarray(source_lengths, dtype=np.int64), np.asarray(target_lengths, dtype=np.int64)
    _check_fits(source, target, max_tokens, batches_per_step)
    random = np.random.default_rng((seed, epoch))
    order = random.permutation(len(source))
    # Shuffled first, so that pairs of one length meet others in each epoch. Sorted by the target, which costs more.
    order = order[np.lexsort((source[order], target[order]))]
    batches = _fill(order.tolist(), source[order].tolist(), target[order].tolist(), max_tokens)
    _split_until_divisible(batches, batches_per_step)
    steps = [batches[first : first + batches_per_step] for first in range(0, len(batches), batches_per_step)]
    return [steps[index] for index in random.permutation(len(steps))]


def _check_fits(source: np.ndarray, target: np.ndarray, max_tokens: int, batches_per_step: int) -> None:
    if len(source) < batches_per_step:
        raise ValueError(
            f"There must be a pair for each of the {batches_per_step} batches of an update (processes × "
            f"accumulation), got {len(source)} pairs."
        )
    longest = np.maximum(source, target)
    if longest.max() > max_tokens:
        pair = int(longest.argmax())
        raise ValueError(
            f"`max_tokens` must be at least the length of the longest sentence, got max_tokens={max_tokens}, but pair "
            f"{pair + 1} has {source[pair]} source and {target[pair]} target tokens. Raise `max_tokens` to "
            f"{int(longest.max())} or take the pair out of the corpus."
        )


def _fill(order: list[int], source: list[int], target: list[int], max_tokens: int) -> list[list[int]]:
    """Cuts the sorted pairs into batches; a batch ends before it would exceed the budget on either side."""
    batches: list[list[int]] = [[]]
    longest_source = longest_target = 0
    for pair, source_length, target_length in zip(order, source, target, strict=True):
        longest_source, longest_target = max(longest_source, source_length), max(longest_target, target_length)
        if (len(batches[-1]) + 1) * max(longest_source, longest_target) > max_tokens:
            batches.append([])
            longest_source, longest_target = source_length, target_length
        batches[-1].append(pair)
    return batches


def _split_until_divisible(batches: list[list[int]], divisor: int) -> None:
    """Halves the largest batches until their number is a multiple of `divisor`."""
    while len(batches) % divisor:
        largest = max(range(len(batches)), key=lambda index: len(batches[index]))
        batch = batches[largest]
        if len(batch) == 1:
            raise ValueError(
                f"{len(batches)} batches of one pair each cannot be shared by the {divisor} batches of an update "
                "(processes × accumulation). Raise `max_tokens`, so that batches hold several pairs."
            )
        batches[largest : largest + 1] = [batch[: len(batch) // 2], batch[len(batch) // 2 :]]


class TokenBatchSampler(Sampler[list[int]]):
    """
    The batches of one replica, epoch after epoch without end.

    Args:
        source_lengths, target_lengths, max_tokens, seed: See [`plan_batches`].
        accumulation (`int`): Batches that each replica gets for an update, one after the other.
        num_replicas, rank (`int`): How many processes train together, and which of them this is.

    `state_dict()` holds epoch and position; a sampler that loads it goes on behind the batch yielded last.
    """

    def __init__(
        self,
        source_lengths: Sequence[int],
        target_lengths: Sequence[int],
        max_tokens: int,
        seed: int = 0,
        accumulation: int = 1,
        num_replicas: int = 1,
        rank: int = 0,
    ):
        self.source_lengths = source_lengths
        self.target_lengths = target_lengths
        self.max_tokens = max_tokens
        self.seed = seed
        self.accumulation = accumulation
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.position = 0
        self._batches = self._plan()

    def _plan(self) -> list[list[int]]:
        per_step = self.num_replicas * self.accumulation
        steps = plan_batches(
            self.source_lengths, self.target_lengths, self.max_tokens, self.seed, self.epoch, per_step
        )
        return [batch for step in steps for batch in step[self.rank :: self.num_replicas]]

    def __len__(self) -> int:
        """Batches of the present epoch; epochs differ by a few."""
        return len(self._batches)

    def __iter__(self) -> Iterator[list[int]]:
        while True:
            while self.position < len(self._batches):
                self.position += 1
                yield self._batches[self.position - 1]
            self.epoch, self.position = self.epoch + 1, 0
            self._batches = self._plan()

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch, self.position = state["epoch"], state["position"]
        self._batches = self._plan()


def collate(pairs: Sequence[EncodedPair], pad_token_id: int) -> dict[str, torch.Tensor]:
    """
    Pads pairs on the right to one batch: `input_ids` and `attention_mask` of shape `(batch_size, source_length)` and
    `labels` of shape `(batch_size, target_length)`, -100 where there is no label.
    """
    sources = _pad([pair.source for pair in pairs], pad_token_id)
    attention_mask = _pad([[1] * len(pair.source) for pair in pairs], 0)
    labels = _pad([pair.target for pair in pairs], IGNORED_LABEL)
    return {"input_ids": sources, "attention_mask": attention_mask, "labels": labels}


def _pad(rows: Sequence[Sequence[int]], value: int) -> torch.Tensor:
    tensors: list[Any] = [torch.tensor(row, dtype=torch.long) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=value)
