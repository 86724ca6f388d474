"""
HTML and XML as text with tags: all but translated text is written as it was, byte for byte.

A tree would forget quotation marks, entities, the case of names and white space in tags.
"""

import re
from abc import abstractmethod
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import unescape
from typing import Any, NamedTuple

from vanilla_transformer.text.languages import Direction, is_same_language, name_language
from vanilla_transformer.text.protection import Range

from .blocks import Block, Document, SpanBuilder, write_block

# Comments, declarations and instructions; and tags, whose attributes may contain `>` in quotation marks.
_HTML = re.compile(
    r"<!--(?:-?>|.*?(?:--!?>|\Z))|<!\[CDATA\[.*?(?:\]\]>|\Z)|<\?(?:php\b|=).*?(?:\?>|\Z)|<(?:[!?]|/(?![a-zA-Z]))[^>]*+(?:>|\Z)|"
    r"<(?P<slash>/?)(?P<name>[a-zA-Z][^\s/>]*+)(?:[^>=]++|=\s*+(?:\"[^\"]*+\"|'[^']*+'|[^\s>]*+))*+(?:>|\Z)",
    re.DOTALL,
)
_XML = re.compile(
    r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|"
    r"<!DOCTYPE(?:[^\"'\[>]|\"[^\"]*+\"|'[^']*+')*+"
    r"(?:\[(?:<!--.*?-->|<\?.*?\?>|\"[^\"]*+\"|'[^']*+'|[^\]\"'])*+\]\s*+)?>|"
    r"<(?P<slash>/?)(?P<name>[^\s/>!?]++)(?:[^>\"']|\"[^\"]*+\"|'[^']*+')*+>",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(r"[\s/]*+([^\s/>=][^\s/>=]*+)(?:\s*+=\s*+(\"[^\"]*+\"|'[^']*+'|[^\s>]*+))?+")
_REFERENCE = re.compile(r"&(?:#[xX]?[0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]*);?")
_UNQUOTED_END = re.compile(r"=\s*+[^\s\"'>]+/>\Z")
_UNQUOTED = re.compile(r"[^\s\"'=<>`]+")
_NO_CHARACTER = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # of XML
_SPACE = " \t\r\n\f"
Edit = tuple[int, int, str]  # the start and the end of a range of the source, and what replaces it


@dataclass
class Token:
    """
    A piece of a source text.

    Attributes:
        kind: `"text"`, `"open"`, `"close"`, or `"other"`: a comment, a declaration, an instruction or raw text.
        name: Name of a tag; in lower case in HTML.
        is_empty: The tag is an element by itself.
        after: Number of the first token after the element of an opening tag, which its format finds.
        element: Element in the tree, of an opening tag of XML.
    """

    kind: str
    start: int
    end: int
    name: str = ""
    is_empty: bool = False
    after: int = 0
    element: Any = None

    @property
    def local_name(self) -> str:
        """The name without the prefix of its namespace."""
        return self.name.rpartition(":")[2]


class Attribute(NamedTuple):
    """An attribute of a tag: its value, where the value is, with its quotation marks, and these."""

    value: str
    start: int
    end: int
    quote: str  # "" if it has none

    def edit(self, value: str) -> Edit:
        """Return the edit that writes another value without special characters."""
        return self.start, self.end, _quote(value, self.quote)


def read_tokens(text: str, raw: Mapping[str, str] | None = None) -> Iterator[Token]:
    """
    Yield the tokens of well-formed XML or of HTML, which need not be balanced.

    Args:
        raw: Elements of HTML without tags in them, and the kind of their text; None for XML.
    """
    expression, end = _XML if raw is None else _HTML, 0
    while (match := expression.search(text, end)) is not None:
        if match.start() > end:
            yield Token("text", end, match.start())
        end = match.end()
        if match["name"] is None:
            yield Token("other", match.start(), end)
            continue
        name = match["name"] if raw is None else match["name"].lower()
        is_empty = match[0].endswith("/>") and not _UNQUOTED_END.search(match[0])
        yield Token("close" if match["slash"] else "open", match.start(), end, name, is_empty)
        if raw and name in raw and not (match["slash"] or is_empty):
            closing = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(text, end)
            start, end = end, closing.start() if closing else len(text)
            if end > start:
                yield Token(raw[name], start, end)
    if end < len(text):
        yield Token("text", end, len(text))


def unescape_xml(text: str) -> str:
    """Return a text with the characters of its references, except entities that a document defines."""

    def character(match: re.Match) -> str:
        reference = match[0][1:-1]
        if reference[:1] == "#":
            return chr(int(reference[2:], 16) if reference[1] == "x" else int(reference[1:]))
        return {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}.get(reference, match[0])

    return _REFERENCE.sub(character, text)


@dataclass
class Place:
    """Where the text of a block is in the source, and which references the source writes for characters."""

    start: int
    end: int
    references: dict[str, str] = field(default_factory=dict)
    quote: str | None = None  # of an attribute, "" if it has none


class SourceDocument(Document):
    """
    A text of which blocks are translated, and all else is written as it was.

    A block is written as it was, too, if its translation is its source. In another one, each character is written as
    the reference that the source has for it, if any. White space between words becomes one space.

    Args:
        text: The source.
        tokens: All pieces of the source in order.
        read: Returns the characters that a text with references means.

    Attributes:
        places: Where each block is.
        replaced: Edits of values of attributes that name the language or the encoding.
    """

    def __init__(self, text: str, tokens: Iterable[Token], read: Callable[[str], str] = unescape):
        self.text, self.tokens, self.read = text, [*tokens], read
        self.blocks = list[Block]()
        self.places = list[Place]()
        self.replaced = list[Edit]()
        self._edits = list[Edit]()  # in tags
        self._attributes = dict[int, dict[str, Attribute]]()

    @abstractmethod
    def add_token(self, builder: SpanBuilder, index: int, place: Place) -> int:
        """Add a token of a paragraph, or all tokens of an element whose text is not translated.

        Returns: the number of the next token to add.
        """

    def render(self, blocks: Sequence[Block]) -> str:
        """Return the text with translated blocks."""
        rows = zip(self.places, self.write_blocks(blocks), strict=True)
        return self.splice([(place.start, place.end, written) for place, written in rows if place.quote is None])

    def write_blocks(self, blocks: Sequence[Block]) -> list[str]:
        """Return translated blocks as they are written at their places, in tags with translated attributes."""
        rows = [*zip(self.places, self.blocks, blocks, strict=True)]
        self._edits = sorted(self.replaced)
        for place, source, block in rows:
            if place.quote is not None and block != source:
                insort(self._edits, (place.start, place.end, _quote(_escape(place, block.text), place.quote)))

        def write_span(tags: Any, content: str | None) -> str:
            opening, closing = tags
            return self.slice(*opening) + ("" if closing is None else f"{content}{self.slice(*closing)}")

        return [
            self.slice(place.start, place.end)
            if block == source
            else write_block(block, partial(_escape, place), write_span)
            for place, source, block in rows
        ]

    def splice(self, edits: Iterable[Edit], start: int = 0, end: int | None = None) -> str:
        """Return the text, or a part of it, with other text at some places."""
        pieces = list[str]()
        for first, last, new in sorted(edits, key=lambda edit: edit[:2]):
            pieces += [self.slice(start, first), new]
            start = last
        return "".join([*pieces, self.slice(start, len(self.text) if end is None else end)])

    def slice(self, start: int, end: int) -> str:
        """Return a part of the text in which attributes are translated."""
        pieces = list[str]()
        for first, last, new in self._edits[bisect_left(self._edits, (start,)) :]:
            if first >= end:
                break
            pieces += [self.text[start:first], new]
            start = last
        return "".join([*pieces, self.text[start:end]])

    def attributes(self, token: Token) -> dict[str, Attribute]:
        """Return the attributes of an opening tag by their names; names of HTML are in lower case."""
        if token.start in self._attributes:
            return self._attributes[token.start]
        found = self._attributes[token.start] = {}
        for match in _ATTRIBUTE.finditer(self.text, token.start + 1 + len(token.name), token.end):
            name = match[1].lower() if self.read is unescape else match[1]
            raw = match[2] or ""
            quote = raw[:1] if raw[:1] in ("'", '"') else ""
            value = raw[1:-1] if quote and len(raw) > 1 else raw
            found.setdefault(name, Attribute(self.read(value), *match.span(2), quote))
        return found

    def add_attribute(self, attribute: Attribute) -> None:
        """Translate the value of an attribute."""
        if any(character.isalpha() for character in attribute.value):
            place = Place(attribute.start, attribute.end, quote=attribute.quote)
            self._note_references(self.text[attribute.start : attribute.end], place)
            self.blocks.append(Block(attribute.value))
            self.places.append(place)

    def add_run(self, first: int, last: int, keeps_space: bool = False, needs_letters: bool = True) -> None:
        """
        Translate the text of some tokens as one block, without comments and white space around it.

        Args:
            needs_letters: Whether text without letters is no block.
        """
        while first < last and self.is_blank(self.tokens[first]):
            first += 1
        while first < last and self.is_blank(self.tokens[last - 1]):
            last -= 1
        if first == last:
            return
        start, end = self.tokens[first].start, self.tokens[last - 1].end
        if self.tokens[first].kind == "text" and not keeps_space:
            start += len(self.text[start:end]) - len(self.text[start:end].lstrip(_SPACE))
        if self.tokens[last - 1].kind == "text" and not keeps_space:
            end -= len(self.text[start:end]) - len(self.text[start:end].rstrip(_SPACE))
        place, builder = Place(start, end), SpanBuilder(keeps_space)
        while first < last:
            first = self.add_token(builder, first, place)
        block = builder.finish()
        if not needs_letters or any(character.isalpha() for character in block.text):
            self.blocks.append(block)
            self.places.append(place)

    def add_text(self, builder: SpanBuilder, token: Token, place: Place) -> None:
        """Add the text of a token to a block."""
        raw = self.text[max(token.start, place.start) : min(token.end, place.end)]
        self._note_references(raw, place)
        builder.add_text(self.read(raw))

    def _note_references(self, raw: str, place: Place) -> None:
        """Note which references a text has for characters."""
        for reference in _REFERENCE.findall(raw):
            character = self.read(reference)
            if len(character) == 1:
                place.references.setdefault(character, reference if reference.endswith(";") else f"{reference};")

    def text_of(self, first: int, last: int) -> str:
        """Return the text of some tokens, with white space as one space."""
        pieces = [self.text[token.start : token.end] for token in self.tokens[first:last] if token.kind == "text"]
        return " ".join(self.read("".join(pieces)).split())

    def span_of(self, first: int, last: int) -> list[Range | None]:
        """Return the payload of a mark that is written as some tokens are. A span gets the range of its end tag."""
        return [(self.tokens[first].start, self.tokens[last - 1].end), None]

    def is_blank(self, token: Token) -> bool:
        """Return whether a token at an end of a paragraph is no part of it."""
        return token.kind == "other" or (token.kind == "text" and not self.text[token.start : token.end].strip(_SPACE))


def _escape(place: Place, text: str) -> str:
    references = {"&": "&amp;", "<": "&lt;"} | place.references
    if place.quote:
        references.setdefault(place.quote, "&quot;" if place.quote == '"' else "&#39;")
    text = "".join(references.get(character, character) for character in _NO_CHARACTER.sub("", text))
    return text.replace("]]>", "]]&gt;")  # which may end a section only


def _quote(value: str, quote: str) -> str:
    if quote or _UNQUOTED.fullmatch(value):
        return f"{quote}{value}{quote}"
    return f'"{value.replace(chr(34), "&quot;")}"'


class PageLanguages:
    """
    The languages that the elements of a document name, such as `<html lang="en">`.

    Args:
        pages: The elements whose language is the one of the document. The first names its source language, if no other
            is given.
        names: The attributes that name a language.
        direction: The source and the target language, as far as they are known.
    """

    def __init__(self, document: SourceDocument, pages: Sequence[Token], names: Sequence[str], direction: Direction):
        self._document, self._pages, self._names = document, {page.start for page in pages}, names
        self._target = name_language(direction.target or "")
        self._source = direction.source or (self._language(pages[0]) if pages else None)

    def is_other(self, token: Token) -> bool:
        """Return whether an element, but no whole page, is in another language than the source language."""
        return token.start not in self._pages and self._differs(self._language(token))

    def name_target(self, token: Token) -> None:
        """Replace the language that an element names, if it is translated, by the target language."""
        attributes = self._document.attributes(token)
        for attribute in (attributes[name] for name in self._names if name in attributes):
            is_source = token.start in self._pages or (self._source and not self._differs(attribute.value))
            if attribute.value.strip() and self._target and is_source:
                self._document.replaced.append(attribute.edit(self._target))

    def _language(self, token: Token) -> str | None:
        attributes = self._document.attributes(token)
        return next((attributes[name].value.strip() for name in self._names if name in attributes), None)

    def _differs(self, code: str | None) -> bool:
        return bool(code and self._source) and not is_same_language(str(code), str(self._source))
