"""The text of a document as its format's module hands it over: blocks of text with the markup as
spans.
"""

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import regex

from vanilla_transformer.errors import UserError
from vanilla_transformer.text.changes import (
    KEPT,
    Change,
    Segment,
    find_changes,
    pair_segments,
)
from vanilla_transformer.text.languages import Direction
from vanilla_transformer.text.protection import (
    SIGN,
    WORD_CHARACTER,
    Range,
    adds_signs,
    are_two_words,
    merge,
)

BYTE_ORDER_MARK = "\ufeff"
OPEN = "open"  # a message that has no translation yet
# Also of a file that was written several times in text mode of Windows
LINE_END = r"\r{,3}\n"
_SPACE = re.compile(r"[ \t\r\n\f]+")
_STARTS_WORD = regex.compile(r"[^\s.,:;!?…、。，：；！？\p{Pe}\p{Pf}]")
_LONGEST_WORD = 64
_LAST_WORD = regex.compile(rf"(?r){WORD_CHARACTER}{{1,{_LONGEST_WORD}}}\Z", regex.V1)
_FIRST_WORD = regex.compile(rf"{WORD_CHARACTER}{{0,{_LONGEST_WORD}}}+", regex.V1)
_LETTER = regex.compile(r"\p{L}")
_NUMBER = regex.compile(r"[-+−–]?\d+(?:[.,]\d+)*")
_PLAIN_WORD = regex.compile(r"\p{L}\p{Ll}{2,}|[\p{Lo}\p{M}]+")
_DEEPEST = 256  # as lxml's
LINKS = {"a", "hyperlink", "link"}  # elements


@dataclass
class Span:
    """
    Inline markup in a text, from character `start` to `end`. Spans are properly nested.

    Attributes:
        payload: What the format's module needs to write the markup; None where there is none.
        fixed: The text of the span is not translated, and the markup is written as it is.
        breaks: The text before the span and the text after it are translated apart, like those
            around a line break.
        space_before, space_after: White space is beside the span, which has no text in the source.
        parts: The text has a space after the span that the document lacks, because words would be
            one without it.
        wraps: The span is the end of a line that was full.
    """

    start: int
    end: int
    payload: Any = None
    children: list["Span"] = field(default_factory=list)
    fixed: bool = False
    breaks: bool = False
    space_before: bool = False
    space_after: bool = False
    parts: bool = False
    wraps: bool = False


@dataclass
class Block:
    """
    A text that is translated by itself, such as a paragraph, and its outermost spans in order.

    Attributes:
        is_open: Some of it has no translation without new signs of placeholders.
        written: Its translation as the document has it, markup included, if that is known.
        earlier: The text of an earlier version of a source, empty if it is unknown, and its
            translation.
    """

    text: str
    spans: list[Span] = field(default_factory=list)
    is_open: bool = field(default=False, compare=False)
    written: str | None = field(default=None, compare=False)
    earlier: tuple[str, str] | None = field(default=None, compare=False)


def walk(spans: Iterable[Span]) -> Iterator[Span]:
    """Yield spans and all spans in them, outer ones first."""
    for span in spans:
        yield span
        yield from walk(span.children)


class Document(ABC):
    """
    A text of a format. A class for one is created with the text and a [`Direction`]: its languages,
    as far as they are known. Formats that name no languages do not use it.

    Attributes:
        blocks: The texts that are translated.
        directions: The languages that the text names for its parts, if its format asks for them.
        summary: Numbers of texts that were translated and of others, in one line; empty for most
            formats.
        doubts: Warnings about translations of blocks, which some formats have as comments.
    """

    blocks: list[Block]
    doubts: Mapping[int, Sequence[str]] = {}
    directions: Sequence[Direction] = ()
    summary: str = ""

    @abstractmethod
    def render(self, blocks: Sequence[Block]) -> str:
        """Return the text with translated blocks."""

    def segments(self) -> list[Segment]:
        """Return the blocks as they are written in the text, with the keys of messages."""
        return [Segment(block.text, block.text) for block in self.blocks]

    def pair(self, earlier: "Document", translation: "Document") -> list[tuple[Segment, Segment]]:
        """Return the segments of an earlier version of this text with their translations, as they
        can be written here.
        """
        return pair_segments(earlier.segments(), translation.segments())

    def update(self, *previous: "Document") -> list[Change]:
        """
        Let the blocks know an earlier version and its translation, and return what changed since.

        Args:
            previous: The earlier version and its translation, or one document with both.
        """
        pairs = self.pair(*previous)
        changes = find_changes(self.segments(), [before for before, _ in pairs])
        for number, change in enumerate(changes):
            if change.earlier is not None:
                before, after = pairs[change.earlier]
                block = replace(self.blocks[number], earlier=(before.text, after.text))
                if change.kind == KEPT:
                    block.written = after.written
                self.blocks[number] = block
        return changes


def leave_open(
    sources: Sequence[Block], blocks: Sequence[Block], signs: regex.Pattern[str] = SIGN
) -> list[Block]:
    """Return translations of messages, and an open source instead of one that adds signs of
    placeholders.
    """
    checked = list[Block]()
    for source, block in zip(sources, blocks, strict=True):
        is_open = block.is_open or adds_signs(source.text, block.text, signs)
        checked.append(replace(source, is_open=True) if is_open else block)
    return checked


def summarize(done: str, still_open: int | None, counts: Mapping[str, int] | None = None) -> str:
    """
    Return the summary of a document of messages.

    Args:
        done: A sentence that says how many of them were translated.
        still_open: The number that stayed open, if any was open before.
        counts: Numbers of messages by the reason why they were skipped, besides open ones.
    """
    summary = done
    if counts is not None:
        reasons = sorted(counts.keys() - {"", OPEN})
        skipped = "; ".join(f"{counts[reason]} {reason}" for reason in reasons)
        summary += f" Skipped: {skipped or 'none'}."
    if still_open is not None:
        summary += f" 0 messages that break your build; {still_open} stayed open."
    return summary


def is_part_of_word(base: str, text: str) -> bool:
    """Return whether a number belongs to the word before it: in m², H₂ and 10⁶, but not to a word
    of prose.
    """
    return bool(base and _NUMBER.fullmatch(text)) and not _PLAIN_WORD.fullmatch(base)


def find_formulas(block: Block) -> list[Range]:
    """Return where the words are to which spans of digits belong, such as the 2 of H₂O."""
    formulas = list[Range]()
    for span in walk(block.spans):
        base = _LAST_WORD.search(block.text, 0, span.start)
        text = block.text[span.start : span.end].strip()
        if not span.fixed and base and is_part_of_word(base[0], text):
            tail = _FIRST_WORD.match(block.text, span.end)
            formulas.append((base.start(), tail.end() if tail else span.end))
    return merge(formulas)


class SpanBuilder:
    """
    Build the text and the spans of a block from a sequence of texts and marks, such as opening and
    closing tags.

    Args:
        keeps_space: Whether white space is content.
    """

    def __init__(self, keeps_space: bool = False) -> None:
        self.end, self._keeps_space = "", keeps_space  # the last characters of the text
        self._pieces, self._length = list[str](), 0
        self._parting: Span | None = None
        self._root = list[Span]()
        self._level = self._root
        self._open = list[tuple[Span, Any, bool, list[Span]]]()

    def add_text(self, text: str) -> None:
        """Append text. White space is one space, unless it is content."""
        if not text:
            return
        text = text if self._keeps_space else _SPACE.sub(" ", text)
        self._part(text)
        # An empty span at the end notes the white space after it; an open one may stay a mark.
        last = None
        if self._level:
            last = self._level[-1]
        elif self._open:
            last = self._open[-1][0]
        is_after_space = self.end.endswith(" ")
        if last and last.start == self._length and text[0].isspace():
            last.space_after = True
            if is_after_space and text[0] == " " and _STARTS_WORD.match(text, 1):
                text = text[1:]
        if is_after_space and not self._keeps_space:
            text = text.lstrip(" ")
        self._append(text)

    def add_mark(self, payload: object, text: str = "", breaks: bool = False) -> None:
        """Append a mark that is written as it is, with text that is not translated."""
        self._part(text)
        span = Span(self._length, self._length, payload, fixed=True, breaks=breaks)
        span.space_before = not text and self.end.endswith(" ")
        self._append(text)
        span.end = self._length
        self._level.append(span)

    def add_wrap(self, payload: object, space: str) -> None:
        """Append the end of a full line, and the space that the text has instead of it."""
        self.add_mark(payload)
        wrap = self._level[-1]
        wrap.wraps, wrap.parts = True, bool(space)
        self._append(space)

    def open(
        self, name: object, payload: object, is_paired: bool = False, is_apart: bool = False
    ) -> None:
        """Begin a span. Unless it is known to be paired, it becomes a mark if it is not closed.

        Args:
            is_apart: The words of the span are no part of the word before, as in a link.
        """
        if len(self._open) == _DEEPEST:
            requirement = f"Markup in a paragraph must be nested at most {_DEEPEST} deep"
            raise UserError(f"{requirement}, got more.")
        span = Span(self._length, self._length, payload, fixed=True)
        span.space_before = self.end.endswith(" ")
        self._level.append(span)
        self._open.append((span, name, is_paired, self._level))
        self._level = span.children
        if is_apart and self.end[-1:].isalnum():
            self.add_mark(None)
            self.part()

    def close(self, name: object) -> Span | None:
        """End the innermost span of this name and return it, or None if none is open."""
        for _, opened, is_paired, _ in reversed(self._open):
            if opened == name:
                break
            if is_paired:
                return None
        else:
            return None
        while self._open[-1][1] != name:
            self._dissolve()
        span, _, _, self._level = self._open.pop()
        span.end, span.fixed, span.space_after = self._length, False, False
        span.space_before &= span.end == span.start
        return span

    def is_note(self, text: str) -> bool:
        """Return whether a text above or below the line marks a word, and is no part of it as in
        km² and H₂O.
        """
        base = _LAST_WORD.search(self.end)
        if not text or _LETTER.search(text):
            return False
        return not is_part_of_word(base[0] if base else "", text)

    def part(self) -> None:
        """Part the words before and after this place, which follows a mark or a span, for whatever
        reads the text.
        """
        if self._level:
            self._parting = self._level[-1]

    def _part(self, following: str) -> None:
        span = self._parting
        if following:
            self._parting = None
        if span is not None and are_two_words(self.end[-1:], following):
            self._append(" ")
            span.parts = True

    def _append(self, text: str) -> None:
        self._pieces.append(text)
        self._length += len(text)
        self.end = (self.end + text)[-_LONGEST_WORD:]

    def finish(self) -> Block:
        """Return the block."""
        while self._open:
            self._dissolve()
        return Block("".join(self._pieces), self._root)

    def _dissolve(self) -> None:
        """Make a mark of the innermost open span."""
        span, _, _, self._level = self._open.pop()
        self._level += span.children
        span.children = []


def write_block(
    block: Block, write_text: Callable[[str], str], write_span: Callable[[Any, str | None], str]
) -> str:
    """
    Return a block as it is written in its document.

    It has a space beside each empty span that had one, except at the ends and before punctuation,
    and none after a span that only [`SpanBuilder.part`] separates from what follows.

    Args:
        write_text: Writes the text between marks.
        write_span: Writes a span, given its payload and its written content, which is None for a
            fixed span.
    """
    # The last character, and whether a space is due or too much
    last, is_due, is_parted = "", False, False

    def read(start: int, end: int) -> str:
        nonlocal last, is_due, is_parted
        text = block.text[start:end]
        if is_parted and text:
            text, is_parted = text.removeprefix(" "), False
        if text:
            text = f" {text}" if is_due and _STARTS_WORD.match(text) else text
            last, is_due = text[-1], False
        return text

    def write(spans: Sequence[Span], start: int, end: int) -> str:
        nonlocal last, is_due, is_parted
        pieces = []
        for span in spans:
            text = read(start, span.start)
            for mark in span.children[:1]:
                is_space = mark.parts and mark.start == mark.end == span.start
                if is_space and mark.payload is not None:
                    text = text.removesuffix(" ")  # which the mark is
            if is_due or (span.space_before and last and not last.isspace()):
                text, last = f"{text} ", " "
            is_due, start = False, span.end
            pieces.append(write_text(text))
            if span.fixed:
                read(span.start, span.end)
            content = None if span.fixed else write(span.children, span.start, span.end)
            if span.payload is not None:
                pieces.append(write_span(span.payload, content))
            is_due, is_parted = is_due or span.space_after, is_parted or span.parts
        return "".join([*pieces, write_text(read(start, end))])

    return write(block.spans, 0, len(block.text))


def unify_line_ends(text: str) -> tuple[str, str, str]:
    r"""Return the byte order mark of a text, the end of most of its lines, and the text with `\n`
    instead.
    """
    mark = BYTE_ORDER_MARK * text.startswith(BYTE_ORDER_MARK)
    ends = Counter(re.findall(LINE_END, text))
    line_end = max(ends, key=lambda end: ends[end], default="\n")
    return mark, line_end, re.sub(LINE_END, "\n", text.removeprefix(mark))
