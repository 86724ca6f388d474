"""
An index of texts by their units, which finds the one at the smallest edit distance.

A text that is 0.7 similar to another shares at least 0.7 of the units of the longer one, so it has
one of the rarest units of the other at least. Texts that have one are looked at further, and so on
with the next unit, until few are left (prefix filtering, Chaudhuri et al. 2006). The distance is
computed for these, beginning with the ones that share the most units.
"""

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from vanilla_transformer.text.protection import find_protected, mask
from vanilla_transformer.text.scripts import normalize
from vanilla_transformer.text.units import split_units

LEAST_SIMILARITY = 0.7
_MOST_COUNTED = 200_000  # occurrences of units that are counted at once
_MOST_COMPARED = 50  # texts whose distance is computed
_LONGEST = 1000  # units of a text, since the time of a distance grows with their product
_NUMBER = "0"  # stands for all numbers and placeholders
_MARK = "\0"  # of a repeated unit


def comparable_units(text: str) -> list[str]:
    """Return the units of a text, in which case makes no difference, nor the values of numbers,
    placeholders and so on, each of which is one unit.
    """
    ranges = find_protected(text)
    text, _ = mask(text, ranges, [f" {_NUMBER} "] * len(ranges))
    text = normalize("NFC", text.casefold())
    units = []
    for start, end in split_units(text):
        unit = text[start:end]
        units.append(_NUMBER if unit.isdecimal() else unit)
    return units


def edit_distance(units: Sequence[str], others: Sequence[str]) -> int:
    """
    Return how many units are inserted, deleted or replaced between two texts (Levenshtein).

    The bits of two integers tell where the values of a column of the table rise and fall (Myers
    1999, in the form of Hyyrö 2003).
    """
    places = defaultdict[str, int](int)
    for position, unit in enumerate(units):
        places[unit] |= 1 << position
    every, last = (1 << len(units)) - 1, 1 << len(units) >> 1
    rising, falling, distance = every, 0, len(units)
    for unit in others:
        equal = places.get(unit, 0)
        diagonal = (((equal & rising) + rising) ^ rising) | equal | falling
        up = falling | ~(diagonal | rising)
        down = diagonal & rising
        distance += bool(up & last) - bool(down & last)
        up = up << 1 | 1
        rising = (down << 1 | ~(diagonal | up)) & every
        falling = up & diagonal & every
    return distance


class FuzzyIndex:
    """
    Find the most similar one of some texts.

    Attributes:
        texts: The texts, shortest first.
    """

    def __init__(self, texts: Sequence[str]):
        # The second occurrence of a unit in a text is another unit, so that common units are sets.
        self._numbers = dict[str, int]()
        units, sizes = array("i"), array("i")
        for text in texts:
            rows = list(_tell_apart(comparable_units(text)))
            sizes.append(len(rows))
            for unit in rows:
                units.append(self._numbers.setdefault(unit, len(self._numbers)))
        # Texts are ordered by their length, so that each range of lengths is a range of ranks.
        lengths = np.frombuffer(sizes, np.int32)
        order = np.argsort(lengths, kind="stable")
        self.texts = [texts[position] for position in order]
        self._lengths = lengths[order]
        ranks = np.empty(len(lengths), np.int64)
        ranks[order] = np.arange(len(lengths))
        keys = np.frombuffer(units, np.int32) * np.int64(len(lengths))
        keys += np.repeat(ranks, lengths)
        keys.sort()
        count = np.arange(len(self._numbers) + 1)
        self._starts = np.searchsorted(keys, count * len(lengths))
        self._ranks = (keys % max(1, len(lengths))).astype(np.int32)

    def find(self, text: str) -> tuple[str, float]:
        """Return the most similar text and its similarity: 1 minus the edit distance divided by the
        units of the longer text. Below 0.7, and for more than 1,000 units, it is no text and 0.
        """
        units = comparable_units(text)
        best, highest = "", 0.0
        is_comparable = 0 < len(units) <= _LONGEST
        for rank, most in self._candidates(units) if is_comparable else ():
            if most <= highest:
                break
            others = comparable_units(self.texts[rank])
            similarity = 1 - edit_distance(units, others) / max(len(units), len(others))
            if similarity >= LEAST_SIMILARITY and similarity > highest:
                best, highest = self.texts[rank], similarity
        return best, highest

    def _candidates(self, units: Sequence[str]) -> Iterator[tuple[int, float]]:
        """Yield the ranks of texts that may be similar, and the share of the units in common, the
        largest share first.
        """
        size = len(units)
        least = math.ceil(LEAST_SIMILARITY * size)  # of the units, in common with a shorter text
        longest = math.floor(size / LEAST_SIMILARITY)
        first, end = np.searchsorted(self._lengths, [least, longest + 1])
        lists = [self._ranks_of(unit, first, end) for unit in _tell_apart(units)]
        lists.sort(key=len)  # rare units first
        counted, total = size - least + 1, 0
        for number, ranks in enumerate(lists):
            total += len(ranks)
            if number >= counted and total <= _MOST_COUNTED:
                counted = number + 1
        shared = np.bincount(np.concatenate(lists[:counted]) - first, minlength=end - first)
        candidates = np.flatnonzero(shared > counted - 1 - size + least)
        shared = shared[candidates]
        candidates = (candidates + first).astype(np.int32)  # which casts no list
        lengths = np.maximum(self._lengths[candidates], size)
        required = np.ceil(LEAST_SIMILARITY * lengths - 1e-9)
        for number, ranks in enumerate(lists[counted:], start=counted):
            kept = shared + (size - number) >= required
            candidates, shared = candidates[kept], shared[kept]
            lengths, required = lengths[kept], required[kept]
            places = np.searchsorted(ranks, candidates)
            shared += ranks[np.minimum(places, len(ranks) - 1)] == candidates
        shares = shared / lengths
        for row in np.argsort(-shares, kind="stable")[:_MOST_COMPARED]:
            yield int(candidates[row]), float(shares[row])

    def _ranks_of(self, unit: str, first: int, end: int) -> "np.ndarray":
        """Return the ranks of the texts with a unit, within a range."""
        number = self._numbers.get(unit)
        if number is None:
            return self._ranks[:0]
        ranks = self._ranks[self._starts[number] : self._starts[number + 1]]
        low, high = np.searchsorted(ranks, np.array([first, end], ranks.dtype))  # casts no list
        return ranks[low:high]


def _tell_apart(units: Iterable[str]) -> Iterator[str]:
    """Yield units of which no two are equal: the second of two equal ones gets a mark."""
    counts = Counter[str]()
    for unit in units:
        yield f"{unit}{_MARK}{counts[unit]}" if counts[unit] else unit
        counts[unit] += 1
