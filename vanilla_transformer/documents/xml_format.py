"""XML of any vocabulary: an element with text among its children is a paragraph."""

import re
from collections.abc import Sequence
from typing import Any

from vanilla_transformer.text.xml_tree import DECLARATION, parse_xml

from .blocks import Block, Markup, build_block, content, fill, has_text, render_block

_ENCODING = re.compile(r"(encoding\s*=\s*[\"'])(?!utf-8[\"'])[^\"']*([\"'])", re.IGNORECASE)
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
_ITS = "{http://www.w3.org/2005/11/its}translate"


def write_xml(tree: Any, text: str) -> str:
    """Return a tree as text, with the XML declaration of the text from which it was parsed, but the encoding UTF-8."""
    from lxml import etree

    declaration = DECLARATION.match(text)
    return (declare_utf8(declaration[0]) if declaration else "") + etree.tostring(tree, encoding="unicode")


def declare_utf8(text: str) -> str:
    """Return an XML text whose declaration, if there is one, names the encoding UTF-8."""
    return DECLARATION.sub(lambda match: _ENCODING.sub(r"\g<1>UTF-8\g<2>", match[0]), text, count=1)


class XmlDocument:
    """
    The blocks of an XML text.

    An element that has text is a paragraph, with all elements in it. Those with `translate="no"` or
    `its:translate="no"`, attributes, comments, processing instructions and entities are not translated.

    Raises:
        ValueError: The text is not well-formed XML.
        OSError: lxml is not installed.
    """

    def __init__(self, text: str):
        self._text, self._tree = text, parse_xml(text)
        self._elements = list[Any]()
        self.blocks = list[Block]()
        self._collect(self._tree.getroot(), False)

    def render(self, blocks: Sequence[Block]) -> str:
        """Return the text with translated blocks."""
        for element, block in zip(self._elements, blocks, strict=True):
            fill(element, render_block(block))
        return write_xml(self._tree, self._text)

    def _collect(self, element: Any, keeps_space: bool) -> None:
        if callable(element.tag) or is_untranslatable(element):
            return
        keeps_space = element.get(_SPACE, "preserve" if keeps_space else "default") == "preserve"
        items = content(element)
        if has_text([item for item in items if isinstance(item, str)]):
            self._elements.append(element)
            self.blocks.append(build_block(items, Markup(_role_of, keeps_space)))
        else:
            for child in element:
                self._collect(child, keeps_space)


def is_untranslatable(element: Any) -> bool:
    """Return whether an element is marked as not to be translated."""
    return "no" in (element.get("translate"), element.get(_ITS))


def _role_of(element: Any) -> str:
    return "fixed" if is_untranslatable(element) else "inline"


__all__ = ["XmlDocument", "declare_utf8", "is_untranslatable", "write_xml"]
