"""Plain text whose lines were wrapped at a width."""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from vanilla_transformer.decoding.protection.blocks import Block, Document, unify_line_ends
from vanilla_transformer.text.languages import NO_DIRECTION, Direction

from .line_breaks import STARTS_UNSPACED, count_columns, ends_sentence, find_cuts, join_lines, wrap

_LINE = re.compile(
    r"((?:[ \t]*>)*\s*)((?:[-*•+]|\d{1,3}[.)]|\(?[^\W\d]\)|\(\d{1,3}\))\s+(?=\S))?(.*)", re.DOTALL
)
_ROW = re.compile(r"\||.*\S(?:\t|\s{3}|\s\|\s)\s*\S")  # of a table
_LEAST = 3  # breaks within paragraphs that tell a width
# Columns that a word of a script without spaces has, at most, nearly always.
_LONGEST_UNSPACED = 8
_NARROWEST = 20  # columns: narrower lines are lists of words


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

    def render(self, blocks: Sequence[Block]) -> str:
        """Return the text with translated blocks."""
        written = list[str]()
        rows = zip(self._paragraphs, self.blocks, blocks, strict=True)
        for lines, source, block in rows:
            first = lines[0]
            further = first.indent + " " * len(first.mark)
            if len(lines) > 1:
                further = lines[1].indent
            if block == source:
                written += map("".join, lines)
            elif first.is_alone:
                written.append(first.indent + first.mark + block.text)
            else:
                start = first.indent + first.mark
                written += wrap(block.text, self.width, start, further)
        return self._mark + self._line_end.join(written)

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
