"""HTML, whole pages and fragments, parsed as browsers parse it."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from vanilla_transformer.import_utils import requires_extra

from .blocks import Block, Item, Markup, build_block, content, fill, has_text, render_block, runs

_PAGE = re.compile(r"\s*(?:<!--.*?-->\s*)*<(?:!doctype|html|head|body)\b", re.IGNORECASE | re.DOTALL)
_FIRST_TAG = re.compile(r"\s*(?:<!--.*?-->\s*)*<(\w+)", re.DOTALL)
# Elements that a parser drops where they may not be: a fragment that begins with one is in such a parent.
_PARENTS = {"td": "tr", "th": "tr", "tr": "tbody", "col": "colgroup", "option": "select", "optgroup": "select"}
_PARENTS |= dict.fromkeys(("tbody", "thead", "tfoot", "caption", "colgroup"), "table")


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_INLINE = _names(
    "a abbr acronym b bdi bdo big button cite data del dfn em font i ins label mark nobr q rb rp rt rtc ruby s small "
    "span strike strong sub sup time tt u"
)
_FIXED = _names("code kbd samp var")
_UNTOUCHED = _names("iframe math noembed noframes plaintext pre script style svg template textarea xmp")
_OPAQUE = _UNTOUCHED - {"pre"} | _names(
    "audio canvas embed img input map meter object output picture progress video wbr"
)


class HtmlDocument:
    """
    The blocks of an HTML text.

    Attributes, comments, scripts, styles, `<pre>`, `<code>`, `<textarea>`, what browsers show instead of media, and
    elements with `translate="no"` are not translated.

    Raises:
        OSError: html5lib is not installed.
    """

    def __init__(self, text: str):
        with requires_extra("documents", "Translating HTML"):
            import html5lib
        parser = html5lib.HTMLParser(html5lib.getTreeBuilder("etree", fullTree=True), namespaceHTMLElements=False)
        if _PAGE.match(text):
            self.root = parser.parse(text)
        else:
            first = _FIRST_TAG.match(text)
            container = _PARENTS.get(first[1].lower() if first else "", "div")
            self.root = parser.parseFragment(text, container=container)
        self._places = list[tuple[Any, list[Item | int]]]()
        self.blocks = list[Block]()
        self._collect(self.root)

    def render(self, blocks: Sequence[Block]) -> str:
        """Return the text with translated blocks."""
        from html5lib.serializer import HTMLSerializer
        from html5lib.treewalkers import getTreeWalker

        for element, items in self._places:
            fill(element, [part for item in items for part in _rendered(item, blocks)])
        serializer = HTMLSerializer(
            omit_optional_tags=False,
            quote_attr_values="always",
            resolve_entities=False,
            minimize_boolean_attributes=False,
        )
        # html5lib does not know that this element has no end tag.
        return serializer.render(getTreeWalker("etree")(self.root)).replace("</wbr>", "")

    def _collect(self, element: Any) -> None:
        items: list[Item | int] = []
        for is_run, run in runs(content(element), _is_inline):
            if is_run and has_text(run):
                items.append(len(self.blocks))
                self.blocks.append(build_block(run, _MARKUP))
            else:
                items += run
                for child in run:
                    if not is_run and not _is_untouched(child):
                        self._collect(child)
        self._places.append((element, items))


def _rendered(item: Item | int, blocks: Sequence[Block]) -> Iterator[Item]:
    if isinstance(item, int):
        yield from render_block(blocks[item])
    else:
        yield item


def _name(element: Any) -> str:
    return element.tag.rpartition("}")[2].lower() if isinstance(element.tag, str) else ""


def _is_untouched(element: Any) -> bool:
    return callable(element.tag) or _name(element) in _UNTOUCHED or element.get("translate") == "no"


def _is_inline(element: Any) -> bool:
    """Return whether an element is part of a paragraph: all that is in it must be, too."""
    name = _name(element)
    if callable(element.tag) or name == "br" or name in _OPAQUE or name in _FIXED:
        return True
    return name in _INLINE and all(_is_inline(child) for child in element)


def _role_of(element: Any) -> str:
    name = _name(element)
    if name == "br":
        return "break"
    if name in _OPAQUE:
        return "opaque"
    return "fixed" if name in _FIXED or element.get("translate") == "no" else "inline"


_MARKUP = Markup(_role_of)

__all__ = ["HtmlDocument"]
