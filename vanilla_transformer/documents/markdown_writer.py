"""Write translated blocks as Markdown that is parsed to the same markup."""

import html
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .blocks import Block, Span

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


__all__ = ["MarkdownWriter"]
