"""Plain text whose lines were wrapped at a width."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from vanilla_transformer.decoding.protection.blocks import (
    Block,
    Document,
    Span,
    unify_line_ends,
)
from vanilla_transformer.text.changes import Segment
from vanilla_transformer.text.languages import NO_DIRECTION, Direction
from vanilla_transformer.text.protection import find_protected, merge, overlapping

from .line_breaks import (
    ITEM,
    STARTS_UNSPACED,
    count_columns,
    ends_sentence,
    find_cuts,
    join_lines,
    wrap,
)

_LINE = re.compile(rf"((?:[ \t]*>)*\s*)({ITEM})?(.*)", re.DOTALL)
_ROW = re.compile(r"\||.*\S(?:\t|\s{3}|\s\|\s)\s*\S")  # of a table
_LEAST = 3  # breaks within paragraphs that tell a width
# Columns that a word of a script without spaces has, at most, nearly always.
_LONGEST_UNSPACED = 8
_NARROWEST = 20  # columns: narrower lines are lists of words
_ENDS = (":", "：")  # of a line before another text
_URL = re.compile(r"[a-z][a-z+.-]{0,30}://")


class _Line(NamedTuple):
    indent: str  # with the marks of quoted mail
    mark: str  # of an item of a list
    content: str

    @property
    def is_alone(self) -> bool:
        """Whether it has no letter and no digit, or is a row of a table."""
        return not any(map(str.isalnum, self.content)) or bool(_ROW.match(self.content))


class WrappedText(Document):
    """
    The paragraphs of a text. Each is one block, and its translation is wrapped at the width of the
    text.

    A paragraph ends at an empty line, before an item of a list, a row of a table and a line that is
    indented further, and where a line had space for the next word. Its indentation stays, and the
    marks of items and quoted mail.
    """

    def __init__(self, text: str, direction: Direction = NO_DIRECTION):
        self._mark, self._line_end, text = unify_line_ends(text)
        lines = text.split("\n")
        # The widest lines have the width, without one of 20 and lines of which a word, such as a
        # URL, is half.
        filled = [line.rstrip() for line in lines if line.strip()]
        plain = []
        for content in filled:
            longest = max(map(count_columns, content.split()))
            if 2 * longest <= count_columns(content):
                plain.append(content)
        widths = sorted(map(count_columns, plain or filled or [""]))
        self.width = widths[-1 - len(widths) // 20]
        self._lines = []
        for content in lines:
            match = _LINE.match(content)
            assert match is not None  # the expression matches every line
            self._lines.append(_Line(*match.groups(default="")))
        self._paragraphs = [self._lines[:1]]
        for before, line in pairwise(self._lines):
            paragraph = self._paragraphs[-1]
            is_outdented = len(paragraph) > 1 and len(line.indent) < len(before.indent)
            can_be_one = _can_be_one(before, line) and not is_outdented
            if can_be_one and self._continues(before, line):
                paragraph.append(line)
            else:
                self._paragraphs.append([line])
        self.blocks = []
        for paragraph in self._paragraphs:
            self.blocks.append(Block(join_lines(line.content for line in paragraph)))

    @property
    def is_wrapped(self) -> bool:
        """Whether nearly all lines have words and no space for the next one, and most end within a
        sentence.
        """
        pairs = [pair for pair in pairwise(self._lines) if _can_be_one(*pair)]
        full = []
        for before, line in pairs:
            if find_cuts(before.content) and self._is_full(before, line):
                full.append(before.content)
        has_full = len(full) >= max(_LEAST, 0.8 * len(pairs))
        is_filled = has_full and self.width >= _NARROWEST
        return is_filled and 2 * sum(map(ends_sentence, full)) < len(full)

    def find_wraps(self) -> set[int]:
        """Return the line ends of a message within its sentences, of lines that were full.

        A message may be too short to tell its width. Its next line begins with a small letter then,
        which is not the one of a URL.
        """
        wraps, end = set[int](), len(self._mark) - 1
        is_wrapped = self.is_wrapped
        for paragraph in self._paragraphs:
            for before, line in pairwise(paragraph):
                end += 1 + len("".join(before))
                content = before.content.rstrip()
                is_ended = ends_sentence(content) or content.endswith(_ENDS)
                continues = line.content[0].islower() and not _URL.match(line.content)
                if not is_ended and (is_wrapped or continues):
                    wraps.add(end)
            end += 1 + len("".join(paragraph[-1]))
        return wraps if self.width >= _NARROWEST else set()

    def render(self, blocks: Sequence[Block]) -> str:
        """Return the text with translated blocks."""
        written = list[str]()
        rows = zip(self._paragraphs, self.blocks, blocks, strict=True)
        for lines, source, block in rows:
            first = lines[0]
            further = first.indent + " " * len(first.mark)
            if len(lines) > 1:
                further = lines[1].indent
            if block.written is not None:
                written += block.written.split("\n")
            elif block == source:
                written += map("".join, lines)
            elif first.is_alone:
                written.append(first.indent + first.mark + block.text)
            else:
                start = first.indent + first.mark
                written += wrap(block.text, self.width, start, further)
        return self._mark + self._line_end.join(written)

    def segments(self) -> list[Segment]:
        rows = zip(self.blocks, self._paragraphs, strict=True)
        return [Segment(block.text, "\n".join(map("".join, lines))) for block, lines in rows]

    def _continues(self, before: _Line, line: _Line) -> bool:
        """Return whether a line was wrapped: it is full, or long and ends within a sentence, or
        continues an item.
        """
        is_long = 2 * count_columns("".join(before)) > self.width
        is_within = line.content[0].islower() and not ends_sentence(before.content)
        is_indented = len(line.indent) > len(before.indent)
        return is_indented or self._is_full(before, line) or (is_long and is_within)

    def _is_full(self, before: _Line, line: _Line) -> bool:
        """Return whether a line has no space for the first word of the next one."""
        word = line.content.split(maxsplit=1)[0]
        needed = 1 + count_columns(word)
        if STARTS_UNSPACED.match(word):
            needed = _LONGEST_UNSPACED
        return count_columns("".join(before)) + needed > self.width


def _can_be_one(before: _Line, line: _Line) -> bool:
    """Return whether two lines can be of one paragraph, by their form."""
    is_in_other_quote = line.indent.count(">") != before.indent.count(">")
    if before.is_alone or line.is_alone or line.mark or is_in_other_quote:
        return False
    return bool(before.mark) or len(line.indent) <= len(before.indent)


def wrap_block(source: Block, block: Block) -> Block:
    """Return a translated block whose lines end where they are full, as lines of its source do, but
    not within markup and text that survives.
    """
    wraps = [span for span in source.spans if span.wraps]
    if not wraps or block.text.casefold() == source.text.casefold():
        return block
    starts = [0, *(span.end for span in source.spans if span.breaks)]
    marks, edges = dict[int, Span](), [*starts]
    for mark in wraps:
        marks[bisect_right(starts, mark.start)] = mark
        edges.append(mark.start)
    edges.sort()
    width = 0
    for low, high in pairwise(edges):
        width = max(width, count_columns(source.text[low:high].strip()))
    spans, kept = list[Span](), find_protected(block.text)
    edges = [0]
    for span in block.spans:
        if not span.wraps:
            spans.append(span)
            kept.append((span.start, span.end))
            edges += [span.start] * span.breaks
    kept, edges = merge(kept), [*edges, len(block.text)]
    for number, mark in marks.items():
        end, last = edges[number - 1], edges[number]
        for line in wrap(block.text[end:last], width)[:-1]:
            end = block.text.index(line, end) + len(line)
            if not overlapping((end, end + 1), kept):
                has_space = block.text[end].isspace()
                spans.append(replace(mark, start=end, end=end, parts=has_space))
    spans.sort(key=attrgetter("start"))
    return replace(block, spans=spans)
