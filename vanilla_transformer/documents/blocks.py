"""
The text of a document as its format's module hands it over: blocks of text with the markup as spans.

They are built from a sequence of texts and marks, or from a tree of elements, of lxml or of the standard library.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import regex

_SPACE = re.compile(r"[ \t\r\n\f]+")
_STARTS_WORD = regex.compile(r"[^\s.,:;!?…、。，：；！？\p{Pe}\p{Pf}]")


@dataclass
class Span:
    """
    Inline markup in a text, from character `start` to `end`. Spans are properly nested.

    Attributes:
        payload: What the format's module needs to write the markup.
        fixed: The text of the span is not translated, and the markup is written as it is.
        breaks: The text before the span and the text after it are translated apart, like those around a line break.
        space_before, space_after: White space is beside the span, which has no text in the source.
    """

    start: int
    end: int
    payload: Any = None
    children: list["Span"] = field(default_factory=list)
    fixed: bool = False
    breaks: bool = False
    space_before: bool = False
    space_after: bool = False

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
        opened = [span for span, *_ in self._open[-1:]]  # may stay a mark, which keeps the space after it
        text = _note_space(self._level or opened, self.text, text)
        self.text += text.lstrip(" ") if self.text.endswith(" ") else text

    def add_mark(self, payload: Any, text: str = "", breaks: bool = False) -> None:
        """Append a mark that is written as it is, with text that is not translated."""
        start, space_before = len(self.text), not text and self.text.endswith(" ")
        self.text += text
        span = Span(start, len(self.text), payload, fixed=True, breaks=breaks, space_before=space_before)
        self._level.append(span)

    def open(self, name: Any, payload: Any, is_paired: bool = False) -> None:
        """Begin a span. Unless it is known to be paired, it becomes a mark if it is not closed."""
        span = Span(len(self.text), len(self.text), payload, fixed=True, space_before=self.text.endswith(" "))
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
        span.end, span.fixed, span.space_after = len(self.text), False, False
        span.space_before &= span.end == span.start
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


def _note_space(spans: Sequence[Span], text: str, added: str) -> str:
    """Note white space after an empty span at the end of a text. Return the added text without a doubled space."""
    if spans and spans[-1].start == len(text) and added[:1].isspace():
        spans[-1].space_after = True
        if text.endswith(" ") and added[0] == " " and _STARTS_WORD.match(added, 1):
            return added[1:]
    return added


def restore_spaces(block: Block) -> Block:
    """Return a block with a space beside each empty span that had one, except at the ends and before punctuation."""
    text, is_due = "", False

    def copy(spans: Sequence[Span], start: int, end: int) -> list[Span]:
        nonlocal text, is_due
        copied = []
        for span in spans:
            add(block.text[start : span.start])
            if is_due or (span.space_before and text and not text[-1].isspace()):
                text += " "
            is_due, first = False, len(text)
            children = copy(span.children, span.start, span.end)
            copied.append(replace(span, start=first, end=len(text), children=children))
            is_due, start = is_due or span.space_after, span.end
        add(block.text[start:end])
        return copied

    def add(more: str) -> None:
        nonlocal text, is_due
        text += " " + more if is_due and _STARTS_WORD.match(more) else more
        is_due = is_due and not more

    spans = copy(block.spans, 0, len(block.text))
    return Block(text, spans)


Item = Any  # a string, or an element
Role = str


@dataclass(frozen=True)
class Markup:
    """
    How the elements of a format are translated.

    Args:
        role_of: Return the role of an element within a paragraph: `"inline"`; `"fixed"`, if its text is part of the
            sentence and is not translated; `"opaque"`, if its content is not text; or `"break"`, such as a line break.
        keeps_space: White space is content.
    """

    role_of: Callable[[Any], Role]
    keeps_space: bool = False


def content(element: Any) -> list[Item]:
    """Return the text and the children of an element in order."""
    items: list[Item] = [element.text] if element.text and not callable(element.tag) else []
    for child in element:
        items.append(child)
        if child.tail:
            items.append(child.tail)
    return items


def fill(element: Any, items: Sequence[Item]) -> None:
    """Replace the content of an element."""
    for child in list(element):
        element.remove(child)
    element.text, last = None, None
    for item in items:
        if not isinstance(item, str):
            item.tail, last = None, item
            element.append(item)
        elif last is None:
            element.text = (element.text or "") + item
        else:
            last.tail = (last.tail or "") + item


def build_block(items: Sequence[Item], markup: Markup) -> Block:
    """Return the text of a paragraph, and its elements as spans."""
    builder = _TreeBuilder(markup)
    return Block(spans=builder.add(items), text=builder.text)


def render_block(block: Block) -> list[Item]:
    """Return the content that a translated block describes. Its elements are moved and filled."""
    block = restore_spaces(block)
    return _render(block.text, block.spans, 0, len(block.text))


class _TreeBuilder:
    def __init__(self, markup: Markup):
        self.text, self.markup = "", markup

    def add(self, items: Sequence[Item]) -> list[Span]:
        spans = list[Span]()
        for item in items:
            if isinstance(item, str):
                self._add_text(_note_space(spans, self.text, item))
            else:
                space_before = self.text[-1:].isspace()
                spans.append(self._span(item))
                spans[-1].space_before = space_before and spans[-1].start == spans[-1].end
        return spans

    def _add_text(self, text: str) -> None:
        if not self.markup.keeps_space:
            text = _SPACE.sub(" ", text)
            text = text[1:] if self.text.endswith(" ") and text.startswith(" ") else text
        self.text += text

    def _role_of(self, element: Any) -> Role:
        if callable(element.tag):  # a comment, a processing instruction or an entity, whose text is its name
            return "fixed" if element.tag.__name__ == "Entity" else "opaque"
        return self.markup.role_of(element)

    def _span(self, element: Any) -> Span:
        role = self._role_of(element)
        start = len(self.text)
        if role in ("opaque", "break"):
            return Span(start, start, element, fixed=True, breaks=role == "break")
        if role == "inline":
            children = self.add(content(element))
            return Span(start, len(self.text), element, children)
        self._add_text(element.text if callable(element.tag) else "".join(element.itertext()))
        added = self.text[start:]
        start += len(added) - len(added.lstrip())
        return Span(start, max(start, len(self.text.rstrip())) if added.strip() else start, element, fixed=True)


def _render(text: str, spans: Sequence[Span], start: int, end: int) -> list[Item]:
    items: list[Item] = []
    for span in spans:
        items += [text[start : span.start]] if span.start > start else []
        if not span.fixed:
            fill(span.payload, _render(text, span.children, span.start, span.end))
        items.append(span.payload)
        start = span.end
    return [*items, text[start:end]] if end > start else items


def runs(items: Sequence[Item], is_inline: Callable[[Any], bool]) -> Iterator[tuple[bool, list[Item]]]:
    """Yield the runs of text with inline elements as `(True, items)`, and the others as `(False, items)`."""
    run: list[Item] = []
    for item in items:
        if isinstance(item, str) or is_inline(item):
            run.append(item)
            continue
        if run:
            yield True, run
        run = []
        yield False, [item]
    if run:
        yield True, run


def has_text(items: Sequence[Item]) -> bool:
    """Return whether there is text to translate."""
    texts = (item if isinstance(item, str) else "".join(_texts(item)) for item in items)
    return any(character.isalpha() for text in texts for character in text)


def _texts(element: Any) -> Iterator[str]:
    if not callable(element.tag):
        yield from element.itertext()
