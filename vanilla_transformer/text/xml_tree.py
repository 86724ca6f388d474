"""Parse XML safely: no entity is expanded, and nothing outside of the text is read."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from xml.parsers import expat

from vanilla_transformer.import_utils import requires_extra

DECLARATION = re.compile(r"\A\ufeff?<\?xml\s[^>]*\?>\s*")
LANG = "{http://www.w3.org/XML/1998/namespace}lang"
_SAFE = {"resolve_entities": False, "no_network": True, "load_dtd": False, "strip_cdata": False}


def parse_xml(text: str | bytes) -> Any:
    """Return the tree of an XML text. Entities are left as they are, and nothing outside of the text is read.

    Args:
        text: Bytes are decoded as their XML declaration says; a decoded text has been decoded already.

    Raises:
        ValueError: The text is not well-formed XML; the message names the line.
        OSError: lxml is not installed.
    """
    with requires_extra("documents", "Reading XML"):
        from lxml import etree
    parser = etree.XMLParser(**_SAFE)
    if isinstance(text, str):
        text = DECLARATION.sub(lambda match: "\n" * match[0].count("\n"), text, count=1)
    try:
        return etree.fromstring(text, parser).getroottree()
    except (etree.XMLSyntaxError, ValueError) as error:
        raise _mistake(error) from None


class Place(NamedTuple):
    """Where an element is in the UTF-8 bytes of its text; an element without an end tag ends with its start tag."""

    start: int
    content: int
    end_tag: int
    end: int


_START_TAG = re.compile(rb"<(?:[^\"'>]|\"[^\"]*\"|'[^']*')*>")


def locate_elements(content: bytes, root: Any) -> dict[Any, Place]:
    """Return the places of all elements of a tree in the UTF-8 bytes from which [`parse_xml`] parsed it."""
    starts, places, parser = list[int](), list[Place | None](), expat.ParserCreate("utf-8")
    opened = list[int]()

    def start(name: str, attributes: dict[str, str]) -> None:
        opened.append(len(places))
        starts.append(parser.CurrentByteIndex)
        places.append(None)

    def end(name: str) -> None:
        number = opened.pop()
        tag = _START_TAG.match(content, starts[number])
        assert tag is not None
        at = tag.end() if tag[0].endswith(b"/>") else parser.CurrentByteIndex
        after = at if tag[0].endswith(b"/>") else content.index(b">", at) + 1
        places[number] = Place(starts[number], tag.end(), at, after)

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.DefaultHandler = lambda data: None  # without one, entities would be expanded
    parser.Parse(content, True)
    return dict(zip(root.iter("*"), filter(None, places), strict=True))


def iterate_elements(file: Any, names: Sequence[str]) -> Iterator[Any]:
    """Yield the elements of some local names from an XML file of any size, one by one, each complete.

    An element and what precedes it are removed once the next one is read; its ancestors keep their attributes.

    Args:
        file: A binary file.

    Raises:
        ValueError: The text is not well-formed XML; the message names the line.
        OSError: lxml is not installed.
    """
    with requires_extra("documents", "Reading XML"):
        from lxml import etree
    try:
        for _, element in etree.iterparse(file, tag=[f"{{*}}{name}" for name in names], **_SAFE):
            yield element
            element.clear(keep_tail=False)
            while element.getprevious() is not None:
                del element.getparent()[0]
    except etree.XMLSyntaxError as error:
        raise _mistake(error) from None


def _mistake(error: Exception) -> ValueError:
    reason = " ".join(str(error).split())  # older releases of lxml write two lines about bytes that are not UTF-8
    return ValueError(f"The text must be well-formed XML: {reason}.")


def is_of_language(code: str, language: str) -> bool:
    """Return whether a code of a language is another one, or a variant of it: `de-AT` is of `de`."""
    code, language = code.lower().replace("_", "-"), language.lower().replace("_", "-")
    return code == language or code.startswith(f"{language}-")


def local_name(element: Any) -> str:
    """Return the name of an element without its namespace; comments, instructions and entities have none."""
    return "" if callable(element.tag) else element.tag.rpartition("}")[2]


__all__ = ["DECLARATION", "LANG", "Place", "is_of_language", "iterate_elements", "local_name", "locate_elements"]
__all__ += ["parse_xml"]
