"""
HTML and XML as text with tags: all but translated text is written as it was, byte for byte.

A tree would forget quotation marks, entities, the case of names and white space in tags.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from html import unescape
from itertools import islice
from typing import Any, NamedTuple

import regex

from vanilla_transformer.decoding.protection.blocks import (
    LINE_END,
    LINKS,
    Block,
    Document,
    SpanBuilder,
    leave_open,
    summarize,
    write_block,
)
from vanilla_transformer.errors import UserError
from vanilla_transformer.text.changes import KEPT, Change, Key, Segment
from vanilla_transformer.text.protection import Range

from .line_breaks import ITEM, find_space
from .message_keys import Entries, Path
from .wrapped_text import WrappedText

# Comments, declarations, templates and instructions; and tags, whose attributes may contain `>` in
# quotation marks.
_CODE = r"<%(?:(?!<%).)*?%>|<\?(?:php\b|=)(?:(?!<\?).)*?\?>"
_QUOTED = rf"\"(?:[^\"<]++|{_CODE}|<)*+\"|'(?:[^'<]++|{_CODE}|<)*+'"
_HTML = re.compile(
    r"<!--(?:-?>|.*?(?:--!?>|\Z))|<!\[CDATA\[.*?(?:\]\]>|\Z)|"
    rf"{_CODE}|<\?(?:php\b|=).*?(?:\?>|\Z)|<(?:[!?]|/(?![a-zA-Z]))[^>]*+(?:>|\Z)|"
    rf"<(?P<slash>/?)(?P<name>[a-zA-Z][^\s/>]*+)(?:[^<>=]++|{_CODE}|<|=\s*+(?:{_QUOTED}|[^\s>]*+))*+(?:>|\Z)",
    re.DOTALL,
)
_XML = re.compile(
    r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|"
    r"<!DOCTYPE(?:[^\"'\[>]|\"[^\"]*+\"|'[^']*+')*+"
    r"(?:\[(?:<!--.*?-->|<\?.*?\?>|\"[^\"]*+\"|'[^']*+'|[^\]\"'])*+\]\s*+)?>|"
    r"<(?P<slash>/?)(?P<name>[^\s/>!?]++)(?:[^>\"']|\"[^\"]*+\"|'[^']*+')*+>",
    re.DOTALL,
)
CDATA = re.compile(r"<!\[CDATA\[(.*)\]\]>", re.DOTALL)
_VALUE = re.compile(r"<[%?]=")  # of a template
_ABOVE_OR_BELOW = {"sub", "subscript", "sup", "superscript"}
# Words in two of them are two words.
_SIDE_BY_SIDE = {
    "a",
    "button",
    "guimenu",
    "guimenuitem",
    "guisubmenu",
    "keycap",
    "label",
    "tspan",
    "uicontrol",
}
TEMPLATE = rf"(?P<kept>{_CODE})"
_ATTRIBUTE = re.compile(rf"{_CODE}|([^\s/>=]++)(?:\s*+=\s*+({_QUOTED}|[^\s>]*+))?+", re.DOTALL)
_REFERENCE = re.compile(r"&(?:#[xX]?[0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]*);?")
# Eight digits stand for no character.
_NUMBER = re.compile(r"&#0*([0-9]{1,8})[0-9]*")
_UNQUOTED_END = re.compile(r"=\s*+[^\s\"'>=]+/>\Z")
_UNQUOTED = re.compile(r"[^\s\"'=<>`]+")
# Characters that XML does not allow.
_NO_CHARACTER = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SPACE = " \t\r\n\f"
# What is no line end
_BLANK = {ends: str.maketrans(dict.fromkeys(f"\r{ends}", " ")) for ends in ("", "\n")}
# The start and the end of a range of the source, and what replaces it.
Edit = tuple[int, int, str]


@dataclass
class Token:
    """
    A piece of a source text.

    Attributes:
        kind: `"text"`, `"open"`, `"close"`, or `"other"`: a comment, a declaration, an instruction
            or raw text.
        name: Name of a tag; in lower case in HTML.
        is_empty: The tag is an element by itself.
        after: Number of the first token after the element of an opening tag, which its format
            finds.
        element: Element in the tree, of an opening tag of XML.
        role: What an element is to its paragraph: `"block"`, no part of it. `"inline"`, markup of
            text. `"fixed"`, its text is part of the sentence and is not translated. `"opaque"`, a
            mark within a word or between words. `"parting"`, a mark between words. `"break"`, a
            line break.
    """

    kind: str
    start: int
    end: int
    name: str = ""
    is_empty: bool = False
    after: int = 0
    element: Any = None
    role: str = ""

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
        kind = "close" if match["slash"] else "open"
        yield Token(kind, match.start(), end, name, is_empty)
        if raw and name in raw and not (match["slash"] or is_empty):
            closing_tag = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE)
            closing = closing_tag.search(text, end)
            start, end = end, closing.start() if closing else len(text)
            if end > start:
                yield Token(raw[name], start, end)
    if end < len(text):
        yield Token("text", end, len(text))


def read_html(text: str) -> str:
    """Return a text with the characters of its references, of which a number of any length is
    one.
    """
    return unescape(_NUMBER.sub(lambda match: f"&#{match[1]}", text))


def unescape_xml(text: str) -> str:
    """Return a text with the characters of its references, except entities that a document
    defines.
    """

    def character(match: re.Match) -> str:
        reference = match[0][1:-1]
        if reference[:1] == "#":
            # int() takes no more than 4,300 digits.
            digits = reference[1:].lstrip("0")
            return chr(int(reference[2:], 16) if reference[1] == "x" else int(digits))
        characters = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
        return characters.get(reference, match[0])

    return _REFERENCE.sub(character, text)


@dataclass
class Place:
    """
    Where the text of a block is in the source, and which references the source writes for
    characters.

    Attributes:
        quote: The quotation mark of an attribute, `""` if it has none.
        wraps: The line ends within sentences of a message.
        special: Finds what is not plain text, by its groups: `kept` is not translated, `letter` is
            a character after a backslash, `line` and `break` are line breaks, `hidden` parts
            texts, too, `key` is the mark of a letter, `space` is between words, and `plain` is text
            after all.
    """

    start: int
    end: int
    references: dict[str, str] = field(default_factory=dict)
    quote: str | None = None
    special: str = TEMPLATE
    wraps: Set[int] = frozenset()


@dataclass
class Plural:
    """
    The form `other` of a plural, whose translation is written before it once more for each category
    that only the target language has.

    Attributes:
        start, end: The place of the form, with its key.
        category: The place of the word `other` in the key.
        separator: The text between two forms.
        missing: Categories, with the path of the message if each form is one.
        known: The forms of some of them, as an earlier translation has them.
    """

    start: int
    end: int
    category: Range
    separator: str
    missing: Mapping[str, Path | None]
    known: dict[str, str] = field(default_factory=dict)


class SourceDocument(Document):
    """
    A text of which blocks are translated, and all else is written as it was.

    A block is written as it was, too, if its translation is its source. In another one, each
    character is written as the reference that the source has for it, if any. White space between
    words becomes one space.

    Args:
        text: The source.
        tokens: All pieces of the source in order.
        read: Returns the characters that a text with references means.

    Attributes:
        places: Where each block is.
        replaced: Edits of values of attributes that name the language or the encoding.
        parts: Documents within this one, each with its range and what writes it. Their blocks are
            the last ones.
        plurals: Forms of plurals that are written for further categories.
        spelling: The beginning of a place: its references and what is not plain text in it.
        signs: Signs of placeholders, if the blocks are messages of programs. The source stays where
            a translation adds one.
        separator: What stands between two messages.
        sample: The text whose escapes a translation follows.
    """

    signs: regex.Pattern[str] | None = None
    separator = ""

    def __init__(self, text: str, tokens: Iterable[Token], read: Callable[[str], str] = read_html):
        self.text, self.sample, self.tokens = text, text, [*tokens]
        self.read, self.is_xml = read, read is unescape_xml
        self.blocks = list[Block]()
        self.places = list[Place]()
        self.replaced = list[Edit]()
        self.edits = list[Edit]()
        self.parts = list[tuple[int, int, Callable[[str], str], SourceDocument]]()
        self.plurals = list[Plural]()
        self.spelling: Callable[..., Place] = Place
        self._attributes = dict[int, dict[str, Attribute]]()

    @property
    def starts(self) -> list[int]:
        """Where each block is or, of a document within this one, where that is."""
        starts = [block_place.start for block_place in self.places]
        for start, *_, part in self.parts:
            starts += [start] * len(part.blocks)
        return starts

    def segments(self) -> list[Segment]:
        written = list[str]()
        for block_place in self.places:
            written.append(self.text[block_place.start : block_place.end])
        for *_, part in self.parts:
            for segment in part.segments():
                written.append(segment.written)
        keys: list[Key | None] = [None] * len(written)
        with suppress(UserError):  # a format without keys
            keys = self._find_keys()
        rows = zip(self.blocks, written, keys, strict=True)
        return [Segment(block.text, text, key) for block, text, key in rows]

    def _find_keys(self) -> list[Key | None]:
        """Return the key of each block, see [`Segment`]."""
        keys: list[Key | None] = [None] * len(self.blocks)
        rows = sorted(zip(self.starts, range(len(keys)), strict=True))
        for path, entry in self.read_entries().items():
            start, end = entry.value
            first, last = bisect_left(rows, (start,)), bisect_left(rows, (end,))
            if not entry.is_group:
                for index in range(first, last):
                    keys[rows[index][1]] = path, index - first, last - first
        return keys

    def update(self, *previous: Document) -> list[Change]:
        changes = super().update(*previous)
        with suppress(UserError):  # a format without keys
            entries, kept = self.read_entries(), self._keep_plurals(*previous)
            for number, key in enumerate(self._find_keys()[: len(self.places)]):
                if key is not None and key[0] in kept:  # all of it is written at once
                    self.places[number] = Place(*entries[key[0]].value)
                    self.blocks[number].written = kept[key[0]]
                    changes[number] = Change(KEPT)
        return changes

    def _keep_plurals(self, earlier: Any, translation: Any) -> dict[Path, str]:
        """Return the translations of messages with plurals that did not change, and add further
        messages that are forms of such plurals. The source may have fewer forms.
        """
        sources, targets = earlier.read_entries(), translation.read_entries()
        starts, kept = [plural.start for plural in self.plurals], dict[Path, str]()
        for path, entry in self.read_entries().items():
            at, (start, end) = bisect_left(starts, entry.start), entry.value
            is_plural = not entry.is_group and at < len(starts) and starts[at] < entry.end
            if not is_plural or path not in targets or path not in sources:
                continue
            if earlier.text[slice(*sources[path].value)] != self.text[start:end]:
                continue
            plural = self.plurals[at]
            if start <= plural.start:
                kept[path] = translation.text[slice(*targets[path].value)]
            low, high = plural.category
            for category, form in plural.missing.items():
                if form in targets:
                    key = self.text[plural.start : low] + category + self.text[high:start]
                    plural.known[category] = key + translation.text[slice(*targets[form].value)]
        return kept

    def role_of(self, token: Token) -> str:
        """Return the role of an element within a paragraph, see [`Token`]."""
        return "fixed"

    def read_entries(self) -> Entries:
        """Return the messages by their keys."""
        raise UserError("Its root must be <resources>, as of Android. Leave it out.")

    def declare(self, text: str, source: "SourceDocument") -> list[Edit]:
        """Return the edits that declare the namespaces of text of another document."""
        return []

    def add_token(self, builder: SpanBuilder, index: int, place: Place) -> int:
        """Add a token of a paragraph, or all tokens of an element that is a mark in it.

        Returns: the number of the next token to add.
        """
        token = self.tokens[index]
        if token.kind == "open":
            return self.add_element(builder, index)
        if token.kind == "text":
            self.add_text(builder, token, place)
        elif token.kind == "close" and (span := builder.close(token.name)):
            span.payload[1] = (token.start, token.end)
        elif self.is_xml and (section := CDATA.fullmatch(self.text, token.start, token.end)):
            place.references.setdefault(">", "&gt;")
            builder.add_text(section[1])
        else:
            text = ""
            if not self.is_blank(token):
                text = " ".join(self.text[token.start : token.end].split())
            builder.add_mark(self.span_of(index, index + 1), text)
        return index + 1

    def add_element(self, builder: SpanBuilder, index: int) -> int:
        """Add an element of a paragraph. Return the number of the next token to add."""
        token, before = self.tokens[index], self.tokens[index - 1]
        mark, role = self.span_of(index, token.after), self.role_of(token)
        may_be_note = role == "inline" and token.local_name in _ABOVE_OR_BELOW
        is_link = role == "inline" and token.local_name in LINKS
        is_number = is_link and builder.is_note(self.text_of(index, token.after))
        if role == "fixed" or is_number:
            builder.add_mark(mark, self.text_of(index, token.after))
        elif may_be_note and builder.is_note(self.text_of(index, token.after)):
            builder.add_mark(mark)
            builder.part()
        elif role == "inline" and not token.is_empty:
            names = {before.local_name, token.local_name}
            if before.kind == "close" and names <= _SIDE_BY_SIDE:
                builder.part()
            opening = (token.start, token.end)
            is_apart = is_link and before.kind == "text"
            builder.open(token.name, [opening, None], self.is_xml, is_apart)
            return index + 1
        else:
            builder.add_mark(mark, breaks=role == "break")
            if role in ("inline", "parting"):
                builder.part()
        return token.after

    def render(self, blocks: Sequence[Block]) -> str:
        """Return the text with translated blocks."""
        if self.signs is not None:
            blocks = leave_open(self.blocks, blocks, self.signs)
            count = sum(block.is_open for block in blocks)
            total = sum(block.written is None for block in blocks)
            done = f"Translated {total - count} of {total} messages."
            self.summary = summarize(done, count)
        rest, outer = iter(blocks[len(self.places) :]), [*self.replaced]
        for start, end, write, part in self.parts:
            text = part.render([*islice(rest, len(part.blocks))])
            if text != part.text:
                outer.append((start, end, write(text)))
        outer.sort(reverse=True)
        self.edits = list[Edit]()
        places = zip(self.places, self.blocks, blocks, strict=False)
        for place, source, block in sorted(places, key=lambda row: (row[0].end, -row[0].start)):
            while outer and outer[-1][1] <= place.end:
                self.edits.append(outer.pop())
            if block != source or block.written is not None:  # which may have edits in it
                written = block.written
                if written is None:
                    written = self.write(place, source, block)
                del self.edits[bisect_left(self.edits, (place.start,)) :]
                self.edits.append((place.start, place.end, written))
        self.edits += reversed(outer)
        self.edits = sorted([*self.edits, *self._write_plurals()])
        return self.slice(0, len(self.text))

    def _write_plurals(self) -> Iterator[Edit]:
        """Yield the edits that write translated forms of plurals for further categories."""
        for plural in self.plurals:
            first, last = plural.category
            before, after = self.slice(plural.start, first), self.slice(last, plural.end)
            source = self.text[plural.start : first] + self.text[last : plural.end]
            if plural.known or before + after != source:
                forms = ""
                for category in plural.missing:
                    form = plural.known.get(category, before + category + after)
                    forms += form + plural.separator
                yield plural.start, plural.start, forms

    def write(self, place: Place, source: Block, block: Block) -> str:
        """Return a translated block as it is written at its place."""

        def write_span(tags: Any, content: str | None) -> str:
            opening, closing = tags
            written = self.slice(*opening)
            return written if closing is None else f"{written}{content}{self.slice(*closing)}"

        if block == source:
            return self.slice(place.start, place.end)
        written = write_block(block, partial(_escape, place), write_span)
        return _quote(written, "") if place.quote == "" else written

    def splice(self, edits: Iterable[Edit], start: int = 0, end: int | None = None) -> str:
        """Return the text, or a part of it, with other text at some places."""
        pieces = list[str]()
        for first, last, new in sorted(edits, key=lambda edit: edit[:2]):
            pieces += [self.slice(start, first), new]
            start = last
        rest = self.slice(start, len(self.text) if end is None else end)
        return "".join([*pieces, rest])

    def slice(self, start: int, end: int) -> str:
        """Return a part of the text with its edits."""
        pieces = list[str]()
        number = bisect_left(self.edits, (start,))
        while number < len(self.edits) and self.edits[number][0] < end:
            first, last, new = self.edits[number]
            pieces += [self.text[start:first], new]
            start = last
            number += 1
        return "".join([*pieces, self.text[start:end]])

    def attributes(self, token: Token) -> dict[str, Attribute]:
        """Return the attributes of an opening tag by their names; names of HTML are in lower
        case.
        """
        if token.start in self._attributes:
            return self._attributes[token.start]
        attributes = self._attributes[token.start] = {}
        after_name = token.start + 1 + len(token.name)
        for match in _ATTRIBUTE.finditer(self.text, after_name, token.end):
            if match[1] is None:
                continue
            name = match[1].lower() if not self.is_xml else match[1]
            raw = match[2] or ""
            quote = raw[:1] if raw[:1] in ("'", '"') else ""
            value = raw[len(quote) : len(raw) - len(quote)]
            attribute = Attribute(self.read(value), *match.span(2), quote)
            attributes.setdefault(name, attribute)
        return attributes

    def end(self, token: Token) -> int:
        """Return the number of the token that ends an element, or of the next one if none does."""
        last = self.tokens[token.after - 1]
        return token.after - (last.kind == "close" and last.name == token.name)

    def add_attribute(self, attribute: Attribute) -> None:
        """Translate the value of an attribute."""
        builder, margin = SpanBuilder(), len(attribute.quote)
        start, end = attribute.start + margin, attribute.end - margin
        place = self.spelling(start, end, quote=attribute.quote)
        self.add_text(builder, Token("text", place.start, place.end), place)
        self._add_block(builder, place)

    def add_run(
        self,
        first: int,
        last: int,
        keeps_space: bool = False,
        breaks: bool = True,
        needs_letters: bool = True,
    ) -> None:
        """
        Translate the text of some tokens as one block, without comments and white space around it.

        Args:
            keeps_space, breaks: Whether white space is content, and lines of the source are
                translated apart then.
            needs_letters: Whether text without letters is no block.
        """
        while first < last and self.is_blank(self.tokens[first]):
            first += 1
        while first < last and self.is_blank(self.tokens[last - 1]):
            last -= 1
        if first >= last:
            return
        start, end = self.tokens[first].start, self.tokens[last - 1].end
        if self.tokens[first].kind == "text" and not keeps_space:
            content = self.text[start:end]
            start += len(content) - len(content.lstrip(_SPACE))
        if self.tokens[last - 1].kind == "text" and not keeps_space:
            content = self.text[start:end]
            end -= len(content) - len(content.rstrip(_SPACE))
        place, builder = self.spelling(start, end), SpanBuilder(keeps_space)
        if keeps_space and breaks:
            line_break = rf"(?P<line>(?<![ \t])[ \t]*+{LINE_END}\s*+{ITEM}?|(?<![^>]){ITEM})"
            place.special = rf"{line_break}|{place.special}"
        if self.signs is not None or "(?P<break>" in place.special:  # a message
            lines = self.text[start:end].translate(_BLANK["" if keeps_space else "\n"])
            lines = lines.replace("\\n", " \n")
            place.wraps = {start + at for at in WrappedText(lines).find_wraps()}
        while first < last:
            first = self.add_token(builder, first, place)
        self._add_block(builder, place, needs_letters)

    def _add_block(self, builder: SpanBuilder, place: Place, needs_letters: bool = True) -> None:
        block = builder.finish()
        if not needs_letters or any(character.isalpha() for character in block.text):
            self.blocks.append(block)
            self.places.append(place)

    def add_text(self, builder: SpanBuilder, token: Token, place: Place) -> None:
        """Add the text of a token to a block."""
        start, end = max(token.start, place.start), min(token.end, place.end)
        special = re.compile(place.special, re.DOTALL)
        for match in special.finditer(self.text, start, end):
            self._add_plain_text(builder, self.text[start : match.start()], place)
            self._add_special_text(builder, match, place)
            start = match.end()
        self._add_plain_text(builder, self.text[start:end], place)

    def _add_plain_text(self, builder: SpanBuilder, raw: str, place: Place) -> None:
        for reference in _REFERENCE.findall(raw):
            character = self.read(reference)
            if len(character) == 1:
                ended = reference if reference.endswith(";") else f"{reference};"
                place.references.setdefault(character, ended)
        builder.add_text(self.read(raw))

    def _add_special_text(self, builder: SpanBuilder, match: re.Match, place: Place) -> None:
        raw, group, mark = match[0], match.lastgroup, [match.span(), None]
        if group == "letter":
            if len(raw) == len(r"\u0000") and raw[1] == "u":
                letter = chr(int(raw[2:], 16))
            else:
                letter = self.read(raw[1:])
            place.references.setdefault(letter, raw)
            builder.add_text(letter)
        elif group == "plain":
            self._add_plain_text(builder, raw, place)
        elif group == "kept":
            builder.add_mark(mark, " ".join(raw.split()))
        elif group in ("line", "break") and not place.wraps.isdisjoint(range(*match.span())):
            line = self.text[match.end() : match.end() + 1]
            builder.add_wrap(mark, find_space(self.text, place.start, match.start(), line))
        else:
            builder.add_mark(mark, breaks=group in ("break", "line", "hidden"))
            if group == "space":
                builder.part()

    def text_of(self, first: int, last: int) -> str:
        """Return the text of some tokens, with white space as one space."""
        pieces = []
        for token in self.tokens[first:last]:
            if token.kind == "text":
                pieces.append(self.text[token.start : token.end])
        return " ".join(self.read("".join(pieces)).split())

    def span_of(self, first: int, last: int) -> list[Range | None]:
        """Return the payload of a mark that is written as some tokens are.

        A span gets the range of its end tag.
        """
        return [(self.tokens[first].start, self.tokens[last - 1].end), None]

    def is_blank(self, token: Token) -> bool:
        """Return whether a token at an end of a paragraph is no part of it."""
        text = self.text[token.start : token.end]
        if token.kind == "other":
            section = CDATA.fullmatch(text) if self.is_xml else None
            return not section[1].strip() if section else not _VALUE.match(text)
        return token.kind == "text" and not text.strip(_SPACE)


def _escape(place: Place, text: str) -> str:
    references = {"&": "&amp;", "<": "&lt;"} | place.references
    if place.quote:
        references.setdefault(place.quote, "&quot;" if place.quote == '"' else "&#39;")
    characters = _NO_CHARACTER.sub("", text)
    text = "".join(references.get(character, character) for character in characters)
    return text.replace("]]>", "]]&gt;")  # which may end a section only


def _quote(value: str, quote: str) -> str:
    if quote or _UNQUOTED.fullmatch(value):
        return f"{quote}{value}{quote}"
    return f'"{value.replace(chr(34), "&quot;")}"'
