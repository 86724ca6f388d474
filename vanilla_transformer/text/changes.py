"""Find what changed between two versions of a text, segment by segment."""

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from vanilla_transformer.errors import UserError

KEPT, CHANGED, NEW = "kept", "changed", "new"
# Preference for the words of an earlier translation, or of one of a similar text. A `not` that is
# added to the source survives it.
DRAFT_BIAS = 0.2
# Preference for words that a change of the source does not concern
HIGHEST_BIAS = 0.5
_LEAST = 0.4  # of the trigrams of two versions of a text are the same
_NEAR = 8  # segments before and after a position, one of which may be the earlier version
Key = tuple[tuple[str, ...], int, int]
# Parts of a text that its translation has, too
_MARKS = re.compile(
    r"`[^`\n]+`|https?://[^\s()\"<>]+|\{[^{}\n]*+\}|\([^()\s]+\)|</?[A-Za-z][\w-]*+|#[\w-]+|\d+"
)


class Segment(NamedTuple):
    """
    A text that is translated by itself.

    Attributes:
        text: Its words.
        written: The text with its markup. Two segments with the same are the same.
        key: The path of the message that the text is of, its number there, and of how many.
    """

    text: str
    written: str
    key: Key | None = None


class Change(NamedTuple):
    """
    Whether a segment is in an earlier version of a text.

    Attributes:
        kind: `KEPT`, `CHANGED` or `NEW`.
        earlier: The number of the segment there; None if it is new.
    """

    kind: str
    earlier: int | None = None


def find_changes(segments: Sequence[Segment], earlier: Sequence[Segment]) -> list[Change]:
    """
    Return the change of each segment since an earlier version, which also finds those that moved.

    The earlier version of a changed segment has its key, or stands between the same neighbors. The
    time is linear in the length of both.
    """
    kept = _find_kept(segments, earlier)
    changes, used = list[Change](), set[int]()
    for position in kept:
        changes.append(Change(NEW) if position is None else Change(KEPT, position))
        if position is not None:
            used.add(position)
    number_of_key = dict[Key | None, int]()
    for number, segment in enumerate(earlier):
        if segment.key is not None:
            number_of_key[segment.key] = number
    trigrams = cache(lambda number: _trigrams(earlier[number].text))
    for start, end in _find_gaps(kept):
        low, high = 0, len(earlier)
        if start:
            low = (kept[start - 1] or 0) + 1
        if end < len(kept):
            high = kept[end] or 0
        if high <= low:  # a neighbor moved
            high = len(earlier)
        high = min(high, low + end - start + _NEAR)
        free = [number for number in range(low, high) if number not in used]
        for at in range(start, end):
            best = number_of_key.get(segments[at].key)
            if best is None:
                middle = (at - start) * len(free) // (end - start)
                near = free[max(0, middle - _NEAR) : middle + _NEAR + 1]
                wanted, highest = _trigrams(segments[at].text), _LEAST
                for number in near:
                    similarity = 0.0
                    if number not in used:
                        similarity = _similarity(wanted, trigrams(number))
                    if similarity > highest:
                        best, highest = number, similarity
            if best is not None:
                changes[at] = Change(CHANGED, best)
                used.add(best)
    return changes


def pair_segments(
    earlier: Sequence[Segment], translation: Sequence[Segment]
) -> list[tuple[Segment, Segment]]:
    """Return the segments of a text that have a translation, each with it.

    Messages have the same keys. Without keys, segments are in the same order. If a translation has
    more or fewer of them, code, numbers, links and so on tell some that belong together.
    """
    has_keys = any(segment.key is not None for segment in earlier)
    if has_keys:
        of_key = {segment.key: segment for segment in translation}
        rows = []
        for segment in earlier:
            if segment.key in of_key:
                rows.append((segment, of_key[segment.key]))
    else:
        rows = _pair_in_order(earlier, translation)
    if earlier and not rows and not has_keys:
        raise UserError(
            f"A text and its translation must have as many segments, got {len(earlier)} and "
            f"{len(translation)}. Give the version that was translated."
        )
    return [(before, after) for before, after in rows if after.text.strip() or not before.text]


def _pair_in_order(
    earlier: Sequence[Segment], translation: Sequence[Segment]
) -> list[tuple[Segment, Segment]]:
    """
    Return pairs of segments: all, if both texts have as many, or else those between segments with
    marks that no other one has, where the marks of all segments agree.

    Of these segments, as many as possible are in the same order in both texts.
    """
    if len(earlier) == len(translation):
        return list(zip(earlier, translation, strict=True))
    sources, targets = _find_marks(earlier), _find_marks(translation)
    counts, others = Counter(sources), Counter(targets)
    number_of_marks = dict[frozenset[str], int]()
    for number, marks in enumerate(targets):
        if marks and counts[marks] == others[marks] == 1:
            number_of_marks[marks] = number
    longest = [_Anchor(None, -1, -1)]  # of each number of anchors, those that end first
    for number, marks in enumerate(sources):
        other = number_of_marks.get(marks)
        if other is not None:
            count = bisect_left(longest, other, key=attrgetter("other"))
            longest[count : count + 1] = [_Anchor(longest[count - 1], number, other)]
    anchors = [(len(earlier), len(translation))]
    last: _Anchor | None = longest[-1]
    while last is not None:
        anchors.append((last.number, last.other))
        last = last.before
    rows = list[tuple[Segment, Segment]]()
    for (low, other_low), (high, other_high) in pairwise(reversed(anchors)):
        if sources[low + 1 : high] == targets[other_low + 1 : other_high]:
            between = earlier[low + 1 : high], translation[other_low + 1 : other_high]
            rows += zip(*between, strict=True)
        if high < len(earlier):
            rows.append((earlier[high], translation[other_high]))
    return rows


class _Anchor(NamedTuple):
    """A segment and its translation, which stand after other ones."""

    before: "_Anchor | None"
    number: int
    other: int


def _find_marks(segments: Sequence[Segment]) -> list[frozenset[str]]:
    return [frozenset(_MARKS.findall(segment.written)) for segment in segments]


def _find_kept(segments: Sequence[Segment], earlier: Sequence[Segment]) -> list[int | None]:
    """Return the number of the same segment in an earlier version, if possible of the same key and
    after the one before.
    """
    numbers = defaultdict[tuple[str, Key | None], list[int]](list)
    for number, segment in enumerate(earlier):
        for key in {segment.key, None}:
            numbers[segment.written, key].append(number)
    kept = list[int | None]()
    following = 0
    for segment in segments:
        same = numbers.get((segment.written, segment.key)) or numbers.get((segment.written, None))
        position: int | None = None
        if same:
            position = same[min(bisect_left(same, following), len(same) - 1)]
            following = position + 1
        kept.append(position)
    return kept


def _find_gaps(kept: Sequence[int | None]) -> list[tuple[int, int]]:
    """Return the ranges of segments that were not kept."""
    edges = []
    for at in range(len(kept) + 1):
        is_kept = at == len(kept) or kept[at] is not None
        was_kept = at == 0 or kept[at - 1] is not None
        if is_kept != was_kept:
            edges.append(at)
    return list(zip(edges[::2], edges[1::2], strict=True))


def _trigrams(text: str) -> set[str]:
    return {text[at : at + 3] for at in range(max(1, len(text) - 2))}


def _similarity(one: set[str], other: set[str]) -> float:
    return 2 * len(one & other) / (len(one) + len(other))


def describe_changes(changes: Sequence[Change], what: str) -> str:
    """Return a sentence with the numbers of kept, changed and new ones."""
    counts = Counter(change.kind for change in changes)
    total = f"Kept {counts[KEPT]} of {len(changes)} {what}"
    return f"{total}; {counts[CHANGED]} changed, {counts[NEW]} new."
