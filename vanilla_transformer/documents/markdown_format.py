"""Markdown: CommonMark with tables, strikethrough, task lists, footnotes, alerts and front matter."""

import html
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from vanilla_transformer.import_utils import requires_extra
from vanilla_transformer.text.languages import NO_DIRECTION, Direction

from .blocks import BYTE_ORDER_MARK, Block, Span, SpanBuilder, find_line_end, restore_spaces

_SPECIAL = re.compile(r"[\\`*\[\]]|(?<![^\W_])_|_(?![^\W_])|<(?=[A-Za-z/!?])|&(?=#?\w+;)|~(?=~)|(?<=~)~")
_LINE_START = re.compile(r"^(\s*)(#{1,6}(?=\s|$)|[-+](?=\s|$)|>|=+\s*$|-[-\s]+$|:?-+:?\s*$|~~~)")
_NUMBERED = re.compile(r"^(\s*\d{1,9})([.)])(?=\s|$)")
_HTML_NAMES = {"em": "em", "strong": "strong", "s": "del", "link": "a"}
_UNESCAPED = re.compile(r"[^\w\s]|_")


class MarkdownWriter:
    """
    Write blocks whose payloads are tokens of markdown-it-py.

    Each one is parsed again. If its markup is not what it must be, as where `**` cannot begin bold text, the block is
    written with tags of HTML and numeric character references, which mean the same.
    """

    def __init__(self, parser: Any):
        self._parser = parser

    def write(self, block: Block, context: str) -> str:
        """Return a block for its context: `"paragraph"`, `"heading"` or `"cell"`."""
        block = restore_spaces(block)
        expected = _join_texts(_block_signature(block.text, block.spans, 0, len(block.text)))
        for escape, mark in ((_escape, _mark), (_refer, _html_mark)):
            written = _write(block.text, block.spans, 0, len(block.text), escape, mark).strip(" ")
            if context != "cell":
                written = _guard_start(written)
            if escape is _refer or self._signature(written, context) == expected:
                break
        return written.replace("|", "\\|") if context == "cell" else written

    def _signature(self, text: str, context: str) -> list[tuple]:
        """Return what a text is parsed to, or nothing if it is not one block of its context."""
        if context == "cell":
            (inline,) = self._parser.parseInline(text)
        else:
            tokens = self._parser.parse(f"# {text}" if context == "heading" else f"a\n\n{text}")
            tokens = tokens if context == "heading" else tokens[3:]
            if [token.type for token in tokens] != [f"{context}_open", "inline", f"{context}_close"]:
                return []
            inline = tokens[1]
        return _join_texts([_token_signature(token) for token in inline.children])


def _write(text: str, spans: Sequence[Span], start: int, end: int, escape: Callable, mark: Callable) -> str:
    pieces = []
    for span in spans:
        pieces.append(escape(text[start : span.start]))
        if span.fixed:
            pieces.append(mark(span.payload, None))
        else:
            pieces.append(mark(span.payload, _write(text, span.children, span.start, span.end, escape, mark)))
        start = span.end
    return "".join([*pieces, escape(text[start:end])])


def _escape(text: str) -> str:
    return _SPECIAL.sub(lambda match: "\\" + match[0], text)


def _refer(text: str) -> str:
    return _UNESCAPED.sub(lambda match: f"&#{ord(match[0])};", text)


def _guard_start(text: str) -> str:
    """Escape what would begin another kind of block."""
    text = _LINE_START.sub(r"\1\\\2", text)
    return _NUMBERED.sub(r"\1\\\2", text)


def _mark(tokens: Sequence[Any], content: str | None) -> str:
    """Return a span as Markdown, given its tokens and its content, which is None if it has no translated text."""
    first = tokens[0]
    kind = first if isinstance(first, str) else first.type.removesuffix("_open")
    if isinstance(first, str):
        return first
    if kind == "hardbreak":
        return "\\\n"
    if kind == "code_inline":
        return _code(first)
    if kind == "footnote_ref":
        return f"[^{first.meta['label']}]"
    if kind == "link" and content is None:
        return f"<{tokens[1].content}>"
    if kind == "link":
        return f"[{content}]({_target(first.attrs['href'], first.attrs.get('title'))})"
    if kind == "image":
        return f"![{first.content}]({_target(first.attrs['src'], first.attrs.get('title'))})"
    if kind in ("em", "strong", "s") and content:
        return f"{first.markup}{content}{first.markup}"
    return _html_mark(tokens, content)


def _html_mark(tokens: Sequence[Any], content: str | None) -> str:
    """Return a span as HTML."""
    first = tokens[0]
    kind = first if isinstance(first, str) else first.type.removesuffix("_open")
    if kind in ("html_inline", "image", *_HTML_NAMES) and not isinstance(first, str):
        attributes = "".join(f' {name}="{html.escape(str(value))}"' for name, value in first.attrs.items() if value)
        if kind == "html_inline":
            return first.content + (content or "") + (tokens[1].content if len(tokens) > 1 else "")
        if kind == "image":
            alt = "".join(child.content for child in first.children or ())
            return f'<img{attributes} alt="{html.escape(alt)}">'
        if content is not None:
            return f"<{_HTML_NAMES[kind]}{attributes}>{content}</{_HTML_NAMES[kind]}>"
    return _mark(tokens, content)


def _code(token: Any) -> str:
    text = token.content
    padded = text.startswith("`") or text.endswith("`") or (text[0] == text[-1] == " " and text.strip())
    return f"{token.markup} {text} {token.markup}" if padded else f"{token.markup}{text}{token.markup}"


def _target(address: str, title: str | None) -> str:
    address = f"<{address}>" if not address or re.search(r"[()<>\s]", address) else address
    address = re.sub(r"&(?=#?\w+;)", "&amp;", address)
    if not title:
        return address
    title = re.sub(r'[\\"`]', lambda match: "\\" + match[0], title)
    title = re.sub(r"&(?=#?\w+;)", "&amp;", title)
    return f'{address} "{title}"'


def _block_signature(text: str, spans: Sequence[Span], start: int, end: int) -> Iterator[tuple]:
    for span in spans:
        yield "text", text[start : span.start]
        if isinstance(span.payload[0], str):
            yield "text", span.payload[0]
        elif span.fixed:
            yield from map(_token_signature, span.payload)
        else:
            yield _token_signature(span.payload[0])
            yield from _block_signature(text, span.children, span.start, span.end)
            yield _token_signature(span.payload[1])
        start = span.end
    yield "text", text[start:end]


def _token_signature(token: Any) -> tuple:
    if token.type in ("text", "softbreak"):
        return "text", token.content
    return token.type, token.content, tuple(sorted((name, value) for name, value in token.attrs.items()))


def _join_texts(signatures: Any) -> list[tuple]:
    """Join texts that follow each other, without white space, which Markdown does not tell apart."""
    joined = list[tuple]()
    for signature in signatures:
        if signature[0] == "text":
            text = "".join(signature[1].split())
            if joined and joined[-1][0] == "text":
                joined[-1] = ("text", joined[-1][1] + text)
            elif text:
                joined.append(("text", text))
        else:
            joined.append(signature)
    return joined


_HTML_TAG = re.compile(r"<(/?)([A-Za-z][\w-]*)[^<>]*?(/?)>")
_FIRST_MARK = re.compile(r"\[[ xX]\](?=\s)|\[!\w+\][-+]?(?=\s|$)")  # of a task or an alert
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

    Args:
        direction: Is not used: Markdown names no languages.

    Raises:
        OSError: markdown-it-py or mdit-py-plugins is not installed.
    """

    def __init__(self, text: str, direction: Direction = NO_DIRECTION):
        with requires_extra("documents", "Translating Markdown"):
            from markdown_it import MarkdownIt
            from mdit_py_plugins.footnote import footnote_plugin
            from mdit_py_plugins.front_matter import front_matter_plugin
        self._parser = MarkdownIt("commonmark").enable(["table", "strikethrough"]).use(front_matter_plugin)
        self._parser.use(footnote_plugin, inline=False, move_to_end=False, always_match_refs=True)
        self._line_end, self._mark = find_line_end(text), BYTE_ORDER_MARK * text.startswith(BYTE_ORDER_MARK)
        text = text.removeprefix(BYTE_ORDER_MARK).replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
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
        return self._mark + "\n".join(lines).replace("\n", self._line_end)

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
        mark = _FIRST_MARK.match(token.content) if index == 1 and is_item and token.type == "text" else None
        if mark:
            builder.add_mark([mark[0]])
            builder.add_text(token.content[mark.end() :])
        elif token.type == "text":
            builder.add_text(token.content)
        elif token.type == "softbreak" and index == 2 and is_item and tokens[0].content.startswith("[!"):
            builder.add_mark(["\n"], breaks=True)
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
