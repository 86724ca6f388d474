"""The text of a document as its format's module hands it over: blocks of text with the markup as spans."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_SPACE = re.compile(r"[ \t\r\n\f]+")


@dataclass
class Span:
    """
    Inline markup in a text, from character `start` to `end`. Spans are properly nested.

    Attributes:
        payload: What the format's module needs to write the markup.
        fixed: The text of the span is not translated, and the markup is written as it is.
        breaks: The text before the span and the text after it are translated apart, like those around a line break.
    """

    start: int
    end: int
    payload: Any = None
    children: list["Span"] = field(default_factory=list)
    fixed: bool = False
    breaks: bool = False

    def walk(self) -> Iterator["Span"]:
        """Yield the span and all spans in it, outer ones first."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass
class Block:
    """A text that is translated by itself, such as a paragraph, and its outermost spans in order."""

    text: str
    spans: list[Span] = field(default_factory=list)

    def walk(self) -> Iterator[Span]:
        """Yield all spans, outer ones first."""
        for span in self.spans:
            yield from span.walk()


class SpanBuilder:
    """Build the text and the spans of a block from a sequence of texts and marks, such as opening and closing tags."""

    def __init__(self) -> None:
        self.text = ""
        self._root = list[Span]()
        self._level = self._root
        self._open = list[tuple[Span, Any, bool, list[Span]]]()

    def add_text(self, text: str) -> None:
        """Append text. White space is one space."""
        text = _SPACE.sub(" ", text)
        self.text += text.lstrip(" ") if self.text.endswith(" ") else text

    def add_mark(self, payload: Any, text: str = "", breaks: bool = False) -> None:
        """Append a mark that is written as it is, with text that is not translated."""
        start = len(self.text)
        self.text += text
        self._level.append(Span(start, len(self.text), payload, fixed=True, breaks=breaks))

    def open(self, name: Any, payload: Any, is_paired: bool = False) -> None:
        """Begin a span. Unless it is known to be paired, it becomes a mark if it is not closed."""
        span = Span(len(self.text), len(self.text), payload, fixed=True)
        self._level.append(span)
        self._open.append((span, name, is_paired, self._level))
        self._level = span.children

    def close(self, name: Any) -> Span | None:
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
        span.end, span.fixed = len(self.text), False
        return span

    def finish(self) -> Block:
        """Return the block."""
        while self._open:
            self._dissolve()
        return Block(self.text, self._root)

    def _dissolve(self) -> None:
        """Make a mark of the innermost open span."""
        span, _, _, self._level = self._open.pop()
        self._level += span.children
        span.children = []


__all__ = ["Block", "Span", "SpanBuilder"]
