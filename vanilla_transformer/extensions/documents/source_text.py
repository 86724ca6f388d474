"""
HTML and XML as text with tags: all but translated text is written as it was, byte for byte.

A tree would forget quotation marks, entities, the case of names and white space in tags.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import unescape
from typing import Any, NamedTuple

from vanilla_transformer.text.protection import Range

from .blocks import Block, Document, SpanBuilder, restore_spaces, write_block

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
        after: Number of the first token after the element of an opening tag.
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
    """An attribute of a tag: its value, and where the value is, with its quotation marks."""

    value: str
    start: int
    end: int


def read_xml(text: str) -> list[Token]:
    """Return the tokens of well-formed XML."""
    tokens, opened = list[Token](), list[Token]()
    for token in _tokens(_XML, text, {}):
        if token.kind == "close":
            opened.pop().after = len(tokens) + 1
        elif token.kind == "open":
            token.after = len(tokens) + 1
            opened += [] if token.is_empty else [token]
        tokens.append(token)
    return tokens


def read_html(text: str, raw: Mapping[str, str]) -> list[Token]:
    """
    Return the tokens of HTML, which need not be balanced. [`Token.after`] is for the format to find.

    Args:
        raw: Elements without tags in them, and the kind of their text.
    """
    return [*_tokens(_HTML, text, raw)]


def _tokens(expression: re.Pattern, text: str, raw: Mapping[str, str]) -> Iterator[Token]:
    end = 0
    while (match := expression.search(text, end)) is not None:
        if match.start() > end:
            yield Token("text", end, match.start())
        end = match.end()
        if match["name"] is None:
            yield Token("other", match.start(), end)
            continue
        name = match["name"].lower() if expression is _HTML else match["name"]
        is_empty = match[0].endswith("/>") and not _UNQUOTED_END.search(match[0])
        yield Token("close" if match["slash"] else "open", match.start(), end, name, is_empty)
        if name in raw and not (match["slash"] or is_empty):
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
    """

    def __init__(self, text: str, tokens: Sequence[Token], read: Callable[[str], str] = unescape):
        self.text, self.tokens, self.read = text, tokens, read
        self.blocks = list[Block]()
        self._places = list[Place]()
        self._replaced = list[Edit]()
        self._edits = list[Edit]()  # in tags

    def render(self, blocks: Sequence[Block]) -> str:
        """Return the text with translated blocks."""
        self._write_attributes(blocks)
        rows = zip(self._places, self.blocks, blocks, strict=True)
        edits = [(place.start, place.end, self.write(*row)) for row in rows if (place := row[0]).quote is None]
        return self.splice(edits)

    def splice(self, edits: Sequence[Edit], start: int = 0, end: int | None = None) -> str:
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

    def write(self, place: Place, source: Block, block: Block) -> str:
        """Return a translated block as it is written at a place."""
        if block == source:
            return self.slice(place.start, place.end)

        def write_span(tags: Any, content: str | None) -> str:
            opening, closing = tags
            return self.slice(*opening) + ("" if closing is None else f"{content}{self.slice(*closing)}")

        return write_block(restore_spaces(block), lambda text: _escape(text, place), write_span)

    def _write_attributes(self, blocks: Sequence[Block]) -> None:
        edits = list(self._replaced)
        for place, source, block in zip(self._places, self.blocks, blocks, strict=True):
            if place.quote is not None and block != source:
                edits.append((place.start, place.end, _quote(_escape(block.text, place), place.quote)))
        self._edits = sorted(edits)

    def attributes(self, token: Token) -> dict[str, Attribute]:
        """Return the attributes of an opening tag by their names; names of HTML are in lower case."""
        found = dict[str, Attribute]()
        start, end = token.start + 1 + len(token.name), token.end
        for match in _ATTRIBUTE.finditer(self.text, start, end):
            raw = match[2] or ""
            raw = raw[1:-1] if raw[:1] in ("'", '"') and len(raw) > 1 else raw
            name = match[1].lower() if self.read is unescape else match[1]
            found.setdefault(name, Attribute(self.read(raw), *match.span(2)))
        return found

    def replace(self, attribute: Attribute, value: str) -> None:
        """Replace the value of an attribute by one without special characters."""
        self._replaced.append(self._edit_value(attribute, value))

    def set_attributes(self, token: Token, values: Mapping[str, str]) -> list[Edit]:
        """Return the edits that set attributes of an opening tag to values without special characters.

        New ones are the last ones of the tag.
        """
        found = self.attributes(token)
        end = max([token.start + 1 + len(token.name), *(attribute.end for attribute in found.values())])
        added = "".join(f' {name}="{value}"' for name, value in values.items() if name not in found)
        edits = [self._edit_value(found[name], value) for name, value in values.items() if name in found]
        return [*edits, (end, end, added)] if added else edits

    def _edit_value(self, attribute: Attribute, value: str) -> Edit:
        quote = _quote_of(self.text[attribute.start : attribute.end])
        return attribute.start, attribute.end, _quote(value, quote)

    def add_attribute(self, attribute: Attribute) -> None:
        """Translate the value of an attribute."""
        if any(character.isalpha() for character in attribute.value):
            raw = self.text[attribute.start : attribute.end]
            place = Place(attribute.start, attribute.end, quote=_quote_of(raw))
            self.note_references(raw, place)
            self._add(Block(attribute.value), place)

    def add_run(
        self,
        first: int,
        last: int,
        add: Callable[[SpanBuilder, int, Place], int],
        keeps_space: bool,
        needs_letters: bool = True,
    ) -> None:
        """
        Translate the text of some tokens as one block, without comments and white space around it.

        Args:
            add: Adds a token at a place to a builder, and returns the number of the next one.
            needs_letters: Whether text without letters is no block.
        """
        while first < last and self._is_blank(self.tokens[first]):
            first += 1
        while first < last and self._is_blank(self.tokens[last - 1]):
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
            first = add(builder, first, place)
        block = builder.finish()
        if not needs_letters or any(character.isalpha() for character in block.text):
            self._add(block, place)

    def add_text(self, builder: SpanBuilder, token: Token, place: Place) -> None:
        """Add the text of a token to a block."""
        raw = self.text[max(token.start, place.start) : min(token.end, place.end)]
        self.note_references(raw, place)
        builder.add_text(self.read(raw))

    def note_references(self, raw: str, place: Place) -> None:
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
        """Return the payload of a mark that is written as some tokens are."""
        return [(self.tokens[first].start, self.tokens[last - 1].end), None]

    def _add(self, block: Block, place: Place) -> None:
        self.blocks.append(block)
        self._places.append(place)

    def _is_blank(self, token: Token) -> bool:
        return token.kind == "other" or (token.kind == "text" and not self.text[token.start : token.end].strip(_SPACE))


def _escape(text: str, place: Place) -> str:
    references = {"&": "&amp;", "<": "&lt;"} | place.references
    if place.quote:
        references.setdefault(place.quote, "&quot;" if place.quote == '"' else "&#39;")
    text = "".join(references.get(character, character) for character in _NO_CHARACTER.sub("", text))
    return text.replace("]]>", "]]&gt;")  # which may end a section only


def _quote_of(raw: str) -> str:
    return raw[0] if raw[:1] in ("'", '"') else ""


def _quote(value: str, quote: str) -> str:
    if quote or _UNQUOTED.fullmatch(value):
        return f"{quote}{value}{quote}"
    return f'"{value.replace(chr(34), "&quot;")}"'
