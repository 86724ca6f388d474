"""XML of any vocabulary: an element with text among its children is a paragraph."""

import re
from abc import ABC, abstractmethod

from vanilla_transformer.text.languages import NO_DIRECTION, Direction
from vanilla_transformer.text.xml_tree import DECLARATION, parse_xml, translate_value

from .blocks import SpanBuilder
from .source_text import PageLanguages, Place, SourceDocument, Token, read_tokens, unescape_xml

_ENCODING = re.compile(r"encoding\s*=\s*[\"']([^\"']*)[\"']")
_ENTITY = re.compile(r"(&(?!(?:amp|lt|gt|quot|apos);)[^\s#;&]+;)")
_CDATA = re.compile(r"<!\[CDATA\[(.*)\]\]>", re.DOTALL)
_XML_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
_BREAKS = {"br", "lb", "linebreak"}
_ABOVE_OR_BELOW = {"sub", "subscript", "sup", "superscript"}


class MarkupDocument(SourceDocument, ABC):
    """The text of a well-formed XML document, which names the encoding UTF-8 if it names one."""

    def __init__(self, text: str):
        elements = parse_xml(text).getroot().iter("*")
        super().__init__(text, read_tokens(text), unescape_xml)
        opened = list[Token]()
        for index, token in enumerate(self.tokens):
            if token.kind == "close":
                opened.pop().after = index + 1
            elif token.kind == "open":
                token.after, token.element = index + 1, next(elements)
                opened += [] if token.is_empty else [token]
        self.root = next(index for index, token in enumerate(self.tokens) if token.kind == "open")
        declaration = DECLARATION.match(text)
        encoding = _ENCODING.search(declaration[0]) if declaration else None
        if encoding and encoding[1].lower() not in ("utf-8", "utf8"):
            self.replaced.append((*encoding.span(1), "UTF-8"))

    def end(self, index: int) -> int:
        """Return the number of the token that ends an element."""
        token = self.tokens[index]
        return token.after if token.is_empty else token.after - 1

    @abstractmethod
    def role_of(self, token: Token) -> str:
        """Return the role of an element within a paragraph.

        `"inline"`: markup of text. `"fixed"`: its text is part of the sentence and is not translated. `"opaque"`: a
        mark within a word or between words. `"parting"`: a mark between words. `"break"`: a line break.
        """

    def add_token(self, builder: SpanBuilder, index: int, place: Place) -> int:
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
            start, end = max(token.start, place.start), min(token.end, place.end)
            for number, piece in enumerate(_ENTITY.split(self.text[start:end])):
                if number % 2:
                    builder.add_mark([(start, start + len(piece)), None], piece)
                else:
                    self.add_text(builder, Token("text", start, start + len(piece)), place)
                start += len(piece)
        return index + 1

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

    def is_blank(self, token: Token) -> bool:
        return super().is_blank(token) and not self.plain_text(token).strip()

    def plain_text(self, token: Token) -> str:
        """Return the text of a token or a section, without entities."""
        text = self.text[token.start : token.end]
        if token.kind == "text":
            return _ENTITY.sub("", text)
        section = _CDATA.fullmatch(text) if token.kind == "other" else None
        return section[1] if section else ""


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
        self._languages = PageLanguages(self, [self.tokens[self.root]], ("xml:lang",), direction)
        index, after = self.root, 0  # the first token after a paragraph
        while index < len(self.tokens):
            token = self.tokens[index]
            index += 1
            if token.kind != "open":
                continue
            if self._is_kept(token):
                index = token.after
                continue
            self._languages.name_target(token)
            if index > after and self._has_text(index - 1):
                spaces = (element.get(_XML_SPACE) for element in (token.element, *token.element.iterancestors()))
                space = next((value for value in spaces if value is not None), None)
                self.add_run(index, self.end(index - 1), keeps_space=space == "preserve")
                after = token.after

    def _is_kept(self, token: Token) -> bool:
        return translate_value(token.element) == "no" or self._languages.is_other(token)

    def _has_text(self, index: int) -> bool:
        """Return whether an element has letters among its children."""
        end, index = self.end(index), index + 1
        while index < end:
            token = self.tokens[index]
            if any(map(str.isalpha, self.plain_text(token))):
                return True
            index = token.after if token.kind == "open" else index + 1
        return False

    def role_of(self, token: Token) -> str:
        if self._is_kept(token):
            return "fixed"
        has_content = not (token.is_empty or self.text.startswith("</", token.end))
        return "inline" if has_content or token.local_name not in _BREAKS else "break"
