"""Put the markup of a text into its translation, by aligned characters."""

import re
from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import Any

import regex

from vanilla_transformer.decoding.translations import Link
from vanilla_transformer.text.protection import Range, overlapping
from vanilla_transformer.text.units import FURTHER, UNSPACED_SCRIPTS

from .blocks import Span, walk

# Words, single characters of scripts without spaces, and single punctuation marks, each with its
# marks: markup begins and ends at these.
_IN_WORD = rf"[\w--{UNSPACED_SCRIPTS}][{FURTHER}]*+"
_UNIT = regex.compile(
    rf"{UNSPACED_SCRIPTS}[{FURTHER}]*+|(?:{_IN_WORD})++(?:[-'’](?:{_IN_WORD})++)*|[^\w\s]\p{{M}}*",
    regex.V1,
)
_WORD = re.compile(r"\S++")
_ALPHANUMERIC = re.compile(r"[^\W_]")
_NEAR = 8  # words


class CrossingSpansError(Exception):
    """Text that is not translated has moved so that its markup cannot be nested as in the
    source.
    """


def proportional_links(source_length: int, target: str) -> list[Link]:
    """Align each word of a translation with the characters at the same relative position in the
    source.
    """
    ratio = source_length / max(1, len(target))
    links = list[Link]()
    for match in _UNIT.finditer(target):
        start = min(round(match.start() * ratio), source_length - 1)
        end = max(round(match.end() * ratio), start + 1)
        links.append(Link(start, end, match.start(), match.end(), 1.0))
    return links


def project(
    spans: Sequence[Span],
    source: str,
    target: str,
    links: Sequence[Link],
    fixed: Sequence[tuple[Range, Range]],
) -> list[Span]:
    """
    Return the spans of a translation, each exactly once and nested as in the source.

    A span covers the run of words that are mostly aligned with it. One without such words covers
    the nearest word that is in no other span, or is empty, at the place of its neighbors.

    Args:
        links: Aligned characters of the two texts.
        fixed: Equal ranges of source and target: text that was not translated, and places that
            belong together.
    """
    edges_of_spans = set[int]()
    for span in walk(spans):
        edges_of_spans |= {span.start, span.end}
    edges = sorted(edges_of_spans)
    fixed = [*fixed]
    taken = sorted(there for _, there in fixed)
    known = sorted(here for here, _ in fixed)

    def inner_edges(start: int, end: int) -> list[int]:
        return edges[bisect_right(edges, start) : bisect_left(edges, end)]

    sources = _Overlaps([link[:4] for link in links])
    words = defaultdict[tuple[int, str], list[Range]](list)
    # The number of the first place of a word that may not be taken
    first_free = Counter[tuple[int, str]]()
    for other in _UNIT.finditer(target):
        words[len(other[0]), other[0].lower()].append(other.span())
    # Words of the source in which markup begins or ends, and which are also in the target, in any
    # case
    for word in _UNIT.finditer(source):
        here = word.span()
        if overlapping(here, known) or not inner_edges(*here):
            continue
        key = len(word[0]), word[0].lower()
        equal = words.get(key, [])
        linked = list[Range]()
        for link in sources.find(*here):
            for unit in overlapping(link[2:4], equal):
                if not overlapping(unit, taken):
                    linked.append(unit)
        there = min(linked, default=None)
        while there is None and first_free[key] < len(equal):
            unit = equal[first_free[key]]
            first_free[key] += 1
            there = None if overlapping(unit, taken) else unit
        if there is not None:
            insort(taken, there)
            fixed.append((here, there))
    # Markup may begin and end within equal ranges.
    pieces = list[tuple[Range, Range]]()
    for (start, end), (begin, _) in fixed:
        shift = begin - start
        borders = [start, *inner_edges(start, end), end]
        for low, high in pairwise(borders):
            pieces.append(((low, high), (low + shift, high + shift)))
    projection = _Projection(source, target, links, pieces)
    return projection.place(spans, (0, len(source)), None)


class _Overlaps:
    """Ranges that may overlap, each with what belongs to it."""

    def __init__(self, ranges: Sequence[Any]):
        self._ranges = sorted(ranges)
        # The largest end of a range and of those before it
        ends = [end for _, end, *_ in self._ranges]
        self._ends = [*accumulate(ends, max)]

    def find(self, start: int, end: int) -> list[Any]:
        """Return those that share characters with a range."""
        first = bisect_right(self._ends, start)
        last = bisect_left(self._ranges, end, key=itemgetter(0))
        return [overlap for overlap in self._ranges[first:last] if overlap[1] > start]


class _Projection:
    def __init__(
        self, source: str, target: str, links: Sequence[Link], fixed: Sequence[tuple[Range, Range]]
    ):
        self.source, self.target = source, target
        self.words = [match.span() for match in _WORD.finditer(source)]
        self.fixed = dict(fixed)
        kept, places = list[Range](), list[int]()
        for start, end in sorted(self.fixed.values()):
            if end > start:
                kept.append((start, end))
            elif end == start:
                places.append(start)
        units = [*kept]
        for low, high in pairwise([0, *places, len(target)]):
            for match in _UNIT.finditer(target[low:high]):
                unit = low + match.start(), low + match.end()
                if not overlapping(unit, kept):
                    units.append(unit)
        self.units = sorted(units)
        self.numbers = {unit: number for number, unit in enumerate(self.units)}
        self.edges = [edge for unit in self.units for edge in unit] or [0]
        exact = [Link(*here, *there, 1.0) for here, there in fixed if here[1] > here[0]]
        known = sorted(self.fixed)
        free = [link for link in links if not overlapping(link[:2], known)]
        of_units = dict[Range, list[Link]]()
        for link in [*exact, *free]:
            for unit in overlapping(link[2:4], self.units):
                of_units.setdefault(unit, []).append(link)
        self.links = [of_units.get(unit, []) for unit in self.units]
        # Linked characters of the source, with the first and the last of their units
        reach = dict[Range, tuple[Range, Range]]()
        for unit, of_unit in of_units.items():
            for link in of_unit:
                first, last = reach.get(link[:2], (unit, unit))
                reach[link[:2]] = min(first, unit), max(last, unit)
        self.sources = _Overlaps([(*source, *units) for source, units in reach.items()])

    def place(self, spans: Sequence[Span], outer: Range, interval: Range | None) -> list[Span]:
        """Return the spans that are in `outer` of the source, within an interval of the target's
        units.
        """
        low, high = interval or (0, len(self.units))
        left, right = self._edges(interval)
        wide = [span for span in spans if self.source[span.start : span.end].strip()]
        runs = dict[int, Range]()
        covered = list[tuple[int, int, Span]]()
        for span, run in zip(wide, self._runs(wide, low, high), strict=True):
            if run:
                runs[id(span)] = run
                covered.append((*self._edges(run), span))
        covered.sort(key=itemgetter(0))
        placed = list[tuple[Span, int]]()
        for position, span in enumerate(spans):
            if run := runs.get(id(span)):
                start, end = self._edges(run)
                is_first = self._next_word(outer[0]) >= span.start
                is_last = self._next_word(span.end) >= outer[1]
                if not span.fixed and len(spans) == 1 and is_first and is_last:
                    start, end = left, right
                children = list[Span]()
                if not span.fixed:
                    children = self.place(span.children, (span.start, span.end), run)
            else:
                start = end = self._point(span, outer, (left, right), covered)
                children = [_collapse(child, start) for child in span.children]
            moved = replace(span, start=start, end=end, children=children)
            placed.append((moved, position))
        placed.sort(key=lambda item: (item[0].start, item[0].end, item[1]))
        return [span for span, _ in placed]

    def _next_word(self, position: int) -> int:
        """Return the first character of the source at a place, or after it, that is no white
        space.
        """
        number = bisect_right(self.words, position, key=itemgetter(1))
        if number == len(self.words):
            return len(self.source)
        return max(position, self.words[number][0])

    def _edges(self, run: Range | None) -> Range:
        """Return the characters of a run of units; the whole target for None."""
        if run is None:
            return 0, len(self.target)
        first, last = self.units[run[0]], self.units[run[1] - 1]
        return first[0], last[1]

    def _runs(self, spans: Sequence[Span], low: int, high: int) -> list[Range | None]:
        """Return the run of units of each span, or None. Runs do not overlap."""
        labels = self._label_units(spans, low, high)
        aligned = defaultdict[int, list[int]](list)  # the units of a label
        for unit, label in enumerate(labels):
            aligned[label].append(unit)
        hulls = [self._hull(span, low, high) for span in spans]
        owners = _own_hulls(hulls, high - low)
        runs = list[Range | None]([None] * len(spans))
        lengths = [span.end - span.start for span in spans]
        for index in sorted(range(len(spans)), key=lambda index: -lengths[index]):
            run = hulls[index]
            if not self._is_kept(spans[index]):
                run = _best_run_of(index, aligned[index], labels, owners, run)
            if run:
                owners[run[0] : run[1]] = [index] * (run[1] - run[0])
                runs[index] = run[0] + low, run[1] + low
        for index, span in enumerate(spans):
            if runs[index] is None and _ALPHANUMERIC.search(self.source, span.start, span.end):
                for unit in self._words_near(span, low, high):
                    if owners[unit - low] < 0:
                        runs[index], owners[unit - low] = (unit, unit + 1), index
                        break
        return runs

    def _label_units(self, spans: Sequence[Span], low: int, high: int) -> list[int]:
        """Return the index of the span that each unit is aligned with, or -1 if most of its
        alignment is outside.
        """
        starts, ends = [span.start for span in spans], [span.end for span in spans]
        labels = list[int]()
        for links in self.links[low:high]:
            weights, total = defaultdict[int, float](float), 0.0
            for start, end, _, _, weight in links:
                total += weight
                for index in range(bisect_right(ends, start), bisect_left(starts, end)):
                    shared = min(end, ends[index]) - max(start, starts[index])
                    weights[index] += weight * shared / max(1, end - start)
            inside = [weights[index] for index in sorted(weights)]
            best = max(sorted(weights), key=weights.__getitem__, default=-1)
            outside = total - sum(inside)
            is_aligned = best >= 0 and weights[best] > 0 and weights[best] >= outside
            labels.append(best if is_aligned else -1)
        return labels

    def _hull(self, span: Span, low: int, high: int) -> Range | None:
        """Return the run from the first to the last kept text of a span, or None without any.

        Raises:
            CrossingSpansError: Some of it is outside of the units.
        """
        positions = list[int]()
        for inner in walk([span]):
            if self._is_kept(inner):
                unit_range = self.fixed[inner.start, inner.end]
                positions.append(self.numbers[unit_range] - low)
        if not positions:
            return None
        if min(positions) < 0 or max(positions) >= high - low:
            raise CrossingSpansError
        return min(positions), max(positions) + 1

    def _words_near(self, span: Span, low: int, high: int) -> list[int]:
        """Return the words near the place of a span, the nearest first."""
        guess = span.start * len(self.target) // len(self.source)
        linked = [first for _, _, (first, _), _ in self.sources.find(span.start, span.end)]
        center = bisect_left(self.units, (min(linked, default=guess),))
        near = range(max(low, center - _NEAR), min(high, center + _NEAR + 1))
        words = [unit for unit in near if _ALPHANUMERIC.search(self.target, *self.units[unit])]
        return sorted(words, key=lambda unit: abs(unit - center))

    def _is_kept(self, span: Span) -> bool:
        return span.fixed and span.end > span.start and (span.start, span.end) in self.fixed

    def _point(
        self, span: Span, outer: Range, limits: Range, covered: Sequence[tuple[int, int, Span]]
    ) -> int:
        """Return the position of a span without text: at the same side of the same word, and in no
        other span.
        """
        left, right = limits
        origin = span.start
        if (origin, origin) in self.fixed:
            position = self.fixed[origin, origin][0]
        elif self._next_word(outer[0]) >= origin:
            inside = self.target[left : min(right, left + origin - outer[0])]
            position = left + len(inside) - len(inside.lstrip())
        elif self._next_word(origin) >= outer[1]:
            inside = self.target[max(left, right + origin - outer[1]) : right]
            position = right - len(inside) + len(inside.rstrip())
        else:  # beside the word before or after it, whichever it touches
            after_word = not self.source[origin - 1].isspace()
            character = origin - 1 if after_word else self._next_word(origin)
            sources = self.sources.find(character, character + 1)
            if sources and after_word:
                position = max(last for _, _, _, last in sources)[1]
            elif sources:
                position = min(first for _, _, first, _ in sources)[0]
            else:
                guess = origin * len(self.target) / len(self.source)
                at = bisect_left(self.edges, guess)
                beside = self.edges[max(0, at - 1) : at + 1]
                position = min(beside, key=lambda edge: abs(edge - guess))
        position = min(max(position, left), right)
        before = bisect_left(covered, position, key=itemgetter(0))
        for start, end, other in covered[max(0, before - 1) : before]:
            if position < end:
                position = start if origin <= other.start else end
        return position


def _collapse(span: Span, position: int) -> Span:
    children = [_collapse(child, position) for child in span.children]
    return replace(span, start=position, end=position, children=children)


def _own_hulls(hulls: Sequence[Range | None], units: int) -> list[int]:
    """Return for each unit the index of the hull that has it, or -1.

    Raises:
        CrossingSpansError: Two hulls have it.
    """
    owners = [-1] * units
    for index, hull in enumerate(hulls):
        for unit in range(*(hull or (0, 0))):
            if owners[unit] >= 0:
                raise CrossingSpansError
            owners[unit] = index
    return owners


def _best_run_of(
    index: int,
    aligned: Sequence[int],
    labels: Sequence[int],
    owners: Sequence[int],
    hull: Range | None,
) -> Range | None:
    """Return the run of a span that has most of its aligned units, and few others. It has the whole
    hull, and no unit of another owner.
    """
    # A run ends at one of these.
    reach = [*aligned, *(hull or ())]
    begin, end = min(reach, default=0), max(reach, default=-1) + 1
    gains = list[float]()
    for label, owner in zip(labels[begin:end], owners[begin:end], strict=True):
        if owner not in (-1, index):
            gains.append(float("-inf"))
        elif label == index:
            gains.append(1.0)
        else:  # less if it is aligned with another span
            gains.append(-1.0 if label >= 0 else -0.5)
    return _best_run(gains, hull, begin)


def _best_run(gains: Sequence[float], core: Range | None, first: int) -> Range | None:
    """Return the consecutive units, from `first` on, with the largest positive sum, or around
    `core`, or None.
    """
    if core:
        before = [0.0, *accumulate(gains[: core[0] - first][::-1])]
        after = [0.0, *accumulate(gains[core[1] - first :])]
        return core[0] - before.index(max(before)), core[1] + after.index(max(after))
    best, run, total, begin = 0.0, None, 0.0, 0
    for unit, gain in enumerate(gains, first):
        if total <= 0:
            total, begin = 0.0, unit
        total += gain
        if total > best:
            best, run = total, (begin, unit + 1)
    return run
