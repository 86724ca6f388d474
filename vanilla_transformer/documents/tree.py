"""Blocks of text in a tree of elements, of lxml or of the standard library."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .blocks import Block, Span

_SPACE = re.compile(r"[ \t\r\n\f]+")
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
    builder = _Builder(markup)
    return Block(spans=builder.add(items), text=builder.text)


def render_block(block: Block) -> list[Item]:
    """Return the content that a translated block describes. Its elements are moved and filled."""
    return _render(block.text, block.spans, 0, len(block.text))


class _Builder:
    def __init__(self, markup: Markup):
        self.text, self.markup = "", markup

    def add(self, items: Sequence[Item]) -> list[Span]:
        spans = []
        for item in items:
            if isinstance(item, str):
                self._add_text(item)
            else:
                spans.append(self._span(item))
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


__all__ = ["Markup", "build_block", "content", "fill", "has_text", "render_block", "runs"]
