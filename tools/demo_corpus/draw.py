"""Random choices that are the same on every machine and in every version of Python."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

_Item = TypeVar("_Item")


class Draw:
    """Choices made from `random.Random.random` alone, whose sequence Python promises to keep for a seed."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed).random

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self._random() < probability

    def whole(self, low: int, high: int) -> int:
        """Return a whole number from `low` to `high`, both included."""
        return low + int(self._random() * (high - low + 1))

    def pick(self, items: Sequence[_Item]) -> _Item:
        """One of the items, all equally likely."""
        return items[int(self._random() * len(items))]

    def weighted(self, items: Sequence[tuple[_Item, float]]) -> _Item:
        """One of the items, each as likely as its weight says."""
        left = self._random() * sum(weight for _, weight in items)
        for item, weight in items:
            left -= weight
            if left < 0:
                return item
        return items[-1][0]
