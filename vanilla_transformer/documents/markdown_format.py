"""Markdown: CommonMark with tables, strikethrough, task lists and front matter."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from vanilla_transformer.import_utils import requires_extra

from .blocks import Block, SpanBuilder
from .markdown_writer import MarkdownWriter

_HTML_TAG = re.compile(r"<(/?)([A-Za-z][\w-]*)[^<>]*?(/?)>")
_TASK = re.compile(r"\[[ xX]\](?=\s)")
_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


class _Place(NamedTuple):
    """Where the text of a block is in the lines of the document."""

    line: int
    start: int
    end: int  # in the first line
    last: int  # line after the text
    indent: str  # of further lines
    context: str  # "paragraph", "heading" or "cell"


class MarkdownDocument:
    """
    The blocks of a Markdown text: paragraphs, headings, list items and cells of tables.

    Code, HTML blocks, link targets, images and front matter are not translated. A paragraph is written on one line.

    Raises:
        OSError: markdown-it-py or mdit-py-plugins is not installed.
    """

    def __init__(self, text: str):
        with requires_extra("documents", "Translating Markdown"):
            from markdown_it import MarkdownIt
            from mdit_py_plugins.front_matter import front_matter_plugin
        self._parser = MarkdownIt("commonmark").enable(["table", "strikethrough"]).use(front_matter_plugin)
        text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
        self._lines = text.split("\n")
        self.blocks, self._places = list[Block](), list[_Place]()
        self._collect(self._parser.parse(text))

    def render(self, blocks: Sequence[Block]) -> str:
        """Return the text with translated blocks."""
        lines = list(self._lines)
        writer = MarkdownWriter(self._parser)
        for place, block in reversed(list(zip(self._places, blocks, strict=True))):
            written = writer.write(block, place.context).split("\n")
            line = lines[place.line]
            written[1:] = [place.indent + more for more in written[1:]]
            after = line[place.end :] if place.context != "paragraph" else ""
            lines[place.line : place.last] = [line[: place.start] + written[0], *written[1:]]
            lines[place.line + len(written) - 1] += after
        return "\n".join(lines)

    def _collect(self, tokens: Sequence[Any]) -> None:
        cell_line, cursor = -1, 0
        for before, token in zip(tokens, tokens[1:], strict=False):
            if token.type != "inline":
                continue
            first = token.map[0]
            if before.type in ("th_open", "td_open"):
                cursor = cursor if first == cell_line else 0
                place = self._cell(first, cursor, token.content)
                cell_line, cursor = first, place.end
            else:
                place = self._text(first, token.content, before)
            if any(character.isalpha() for child in token.children for character in child.content):
                self._places.append(place)
                self.blocks.append(_build_block(token.children, is_item=before.type == "paragraph_open"))

    def _cell(self, number: int, cursor: int, content: str) -> _Place:
        line = self._lines[number]
        raw = content.replace("|", "\\|")
        start = line.index(raw, cursor)
        return _Place(number, start, start + len(raw), number + 1, "", "cell")

    def _text(self, number: int, content: str, opening: Any) -> _Place:
        line, parts = self._lines[number], content.split("\n")
        start = line.rindex(parts[0])
        indent = ""
        if len(parts) > 1:
            following = self._lines[number + 1]
            indent = following[: following.rindex(parts[1].lstrip()) if parts[1].strip() else 0]
        context = "heading" if opening.type == "heading_open" and opening.markup.startswith("#") else "paragraph"
        return _Place(number, start, start + len(parts[0]), number + len(parts), indent, context)


def _build_block(tokens: Sequence[Any], is_item: bool) -> Block:
    """Return the text of a paragraph. The payload of a span is its tokens."""
    builder, index = SpanBuilder(), 0
    while index < len(tokens):
        token = tokens[index]
        index += 1
        task = _TASK.match(token.content) if index == 1 and is_item and token.type == "text" else None
        if task:
            builder.add_mark([task[0]])
            builder.add_text(token.content[task.end() :])
        elif token.type == "text":
            builder.add_text(token.content)
        elif token.type == "softbreak":
            builder.add_text(" ")
        elif token.type == "code_inline":
            builder.add_mark([token], token.content)
        elif token.type == "link_open" and token.markup == "autolink":
            builder.add_mark(tokens[index - 1 : index + 2], tokens[index].content)
            index += 2
        elif token.nesting > 0:
            builder.open(token.type, [token], is_paired=True)
        elif token.nesting < 0:
            span = builder.close(token.type.replace("_close", "_open"))
            assert span is not None
            span.payload.append(token)
        else:
            _add_mark(builder, token)
    return builder.finish()


def _add_mark(builder: SpanBuilder, token: Any) -> None:
    """Add an image, a line break, or a tag of HTML, which may have a partner."""
    tag = _HTML_TAG.fullmatch(token.content) if token.type == "html_inline" else None
    name = tag[2].lower() if tag else ""
    if tag and tag[1]:
        span = builder.close(name)
        if span is None:
            builder.add_mark([token])
        else:
            span.payload.append(token)
    elif tag and not tag[3] and name not in _VOID:
        builder.open(name, [token])
    else:
        builder.add_mark([token], breaks=token.type == "hardbreak" or name == "br")


__all__ = ["MarkdownDocument"]
