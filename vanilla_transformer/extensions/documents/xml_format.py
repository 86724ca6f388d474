"""XML of any vocabulary: an element with text among its children is a paragraph."""

import re
from abc import ABC, abstractmethod

from vanilla_transformer.text.languages import NO_DIRECTION, Direction
from vanilla_transformer.text.xml_tree import DECLARATION, parse_xml, translate_value

from .blocks import SpanBuilder
from .page_languages import PageLanguages
from .source_text import Place, SourceDocument, Token, read_xml, unescape_xml

_ENCODING = re.compile(r"encoding\s*=\s*[\"']([^\"']*)[\"']")
_ENTITY = re.compile(r"(&(?!(?:amp|lt|gt|quot|apos);)[^\s#;&]+;)")
_CDATA = re.compile(r"<!\[CDATA\[(.*)\]\]>", re.DOTALL)
_BREAKS = {"br", "lb", "linebreak"}
_ABOVE_OR_BELOW = {"sub", "subscript", "sup", "superscript"}


class MarkupDocument(SourceDocument, ABC):
    """The text of a well-formed XML document, which names the encoding UTF-8 if it names one."""

    def __init__(self, text: str):
        root = parse_xml(text).getroot()
        super().__init__(text, read_xml(text), unescape_xml)
        declaration = DECLARATION.match(text)
        encoding = _ENCODING.search(declaration[0]) if declaration else None
        if encoding and encoding[1].lower() not in ("utf-8", "utf8"):
            self._replaced.append((*encoding.span(1), "UTF-8"))
        opened = [index for index, token in enumerate(self.tokens) if token.kind == "open"]
        for index, element in zip(opened, root.iter("*"), strict=True):
            self.tokens[index].element = element
        self.root = opened[0]

    def children(self, index: int) -> list[int]:
        """Return the numbers of the tokens in an element, without those in the elements in it."""
        found, index, end = list[int](), index + 1, self.end(index)
        while index < end:
            found.append(index)
            token = self.tokens[index]
            index = token.after if token.kind == "open" else index + 1
        return found

    def end(self, index: int) -> int:
        """Return the number of the token that ends an element."""
        token = self.tokens[index]
        return token.after if token.is_empty else token.after - 1

    def is_untranslatable(self, token: Token) -> bool:
        """Return whether an element is marked as not to be translated."""
        return translate_value(token.element) == "no"

    @abstractmethod
    def role_of(self, token: Token) -> str:
        """Return the role of an element within a paragraph.

        `"inline"`: markup of text. `"fixed"`: its text is part of the sentence and is not translated. `"opaque"`: a
        mark within a word or between words. `"parting"`: a mark between words. `"break"`: a line break.
        """

    def add_token(self, builder: SpanBuilder, index: int, place: Place) -> int:
        """Add a token of a paragraph, or all tokens of an element whose text is not translated."""
        token = self.tokens[index]
        if token.kind == "open":
            return self.add_element(builder, index)
        if token.kind == "close":
            span = builder.close(token.name)
            assert span is not None
            span.payload[1] = (token.start, token.end)
        elif token.kind == "other":
            section = _CDATA.fullmatch(self.text, token.start, token.end)
            if section:
                place.references.setdefault(">", "&gt;")
                builder.add_text(section[1])
            else:
                builder.add_mark(self.span_of(index, index + 1))
        else:
            self._add_entities(builder, token, place)
        return index + 1

    def _add_entities(self, builder: SpanBuilder, token: Token, place: Place) -> None:
        start, end = max(token.start, place.start), min(token.end, place.end)
        for number, piece in enumerate(_ENTITY.split(self.text[start:end])):
            if number % 2:
                builder.add_mark([(start, start + len(piece)), None], piece)
            else:
                self.add_text(builder, Token("text", start, start + len(piece)), place)
            start += len(piece)

    def add_element(self, builder: SpanBuilder, index: int) -> int:
        """Add an element of a paragraph. Return the number of the next token to add."""
        token = self.tokens[index]
        mark, text, role = self.span_of(index, token.after), self.text_of(index, token.after), self.role_of(token)
        if role == "fixed":
            builder.add_mark(mark, text)
        elif role == "inline" and token.local_name in _ABOVE_OR_BELOW and builder.is_note(text):
            builder.add_mark(mark)
            builder.part()
        elif role == "inline" and not token.is_empty:
            builder.open(token.name, [(token.start, token.end), None], is_paired=True)
            return index + 1
        else:
            builder.add_mark(mark, breaks=role == "break")
            if role in ("inline", "parting"):
                builder.part()
        return token.after

    def _plain(self, token: Token) -> str:
        text = self.text[token.start : token.end]
        if token.kind == "text":
            return _ENTITY.sub("", text)
        section = _CDATA.fullmatch(text) if token.kind == "other" else None
        return section[1] if section else ""

    def _is_blank(self, token: Token) -> bool:
        return super()._is_blank(token) and not self._plain(token).strip()


class XmlDocument(MarkupDocument):
    """
    The blocks of an XML text.

    An element that has text is a paragraph, with all elements in it. Those with `translate="no"` or
    `its:translate="no"` or in another language than the root, attributes, comments, processing instructions and
    entities are not translated.

    Args:
        direction: The languages, as far as they are known. The language of the root is the source language unless that
            is given, and its attribute `xml:lang` becomes the target language.
    """

    def __init__(self, text: str, direction: Direction = NO_DIRECTION):
        super().__init__(text)
        self._languages = PageLanguages(direction, self._language(self.tokens[self.root]))
        self._collect(self.root, False)

    def role_of(self, token: Token) -> str:
        if self._is_kept(token):
            return "fixed"
        has_content = not (token.is_empty or self.text.startswith("</", token.end))
        return "inline" if has_content or token.local_name not in _BREAKS else "break"

    def _language(self, token: Token) -> str | None:
        attribute = self.attributes(token).get("xml:lang")
        return None if attribute is None else attribute.value.strip()

    def _is_kept(self, token: Token) -> bool:
        is_root = token is self.tokens[self.root]
        return self.is_untranslatable(token) or (not is_root and self._languages.is_other(self._language(token)))

    def _collect(self, index: int, keeps_space: bool) -> None:
        token = self.tokens[index]
        if self._is_kept(token):
            return
        attributes = self.attributes(token)
        space = attributes.get("xml:space")
        keeps_space = keeps_space if space is None else space.value == "preserve"
        texts = (self._plain(self.tokens[child]) for child in self.children(index))
        if any(character.isalpha() for text in texts for character in text):
            self._name_languages(index, token.after)
            self.add_run(index + 1, self.end(index), self.add_token, keeps_space)
            return
        self._name_languages(index, index + 1)
        for child in self.children(index):
            if self.tokens[child].kind == "open":
                self._collect(child, keeps_space)

    def _name_languages(self, first: int, last: int) -> None:
        """Replace the source language by the target language in some tags, except of elements that are kept."""
        while first < last:
            token = self.tokens[first]
            first += 1
            if token.kind != "open":
                continue
            if self._is_kept(token):
                first = token.after
                continue
            attribute = self.attributes(token).get("xml:lang")
            is_page = token is self.tokens[self.root]
            code = None if attribute is None else self._languages.translated(attribute.value, is_page)
            if attribute is not None and code is not None:
                self.replace(attribute, code)
