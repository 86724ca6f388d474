"""Parse XML safely: no entity is expanded, and nothing outside of the text is read."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from vanilla_transformer.errors import UserError
from vanilla_transformer.machine.imports import requires_extra

# Where the declaration is no text of the document
DECLARATION = re.compile(r"\A\ufeff?\s*+<\?xml\s[^>]*\?>\s*+")
# The name of another file, which may define entities
_OTHER_FILE = re.compile(
    r"(?:[^<]++|<!--(?:(?!-->).)*+-->|<\?(?:(?!\?>).)*+\?>)*+<!DOCTYPE\s++[^\s\[>]++\s++"
    r"(?P<name>(?:PUBLIC\s++(?:\"[^\"]*+\"|'[^']*+')|SYSTEM)\s*+(?:\"[^\"]*+\"|'[^']*+'))",
    re.DOTALL,
)
LANG = "{http://www.w3.org/XML/1998/namespace}lang"
_TRANSLATE = ("translate", "{http://www.w3.org/2005/11/its}translate")
_SAFE = {
    "resolve_entities": False,
    "no_network": True,
    "load_dtd": False,
    "strip_cdata": False,
}


def parse_xml(text: str | bytes) -> Any:
    """Return the tree of an XML text. Entities are left as they are, and nothing outside of the
    text is read.

    Args:
        text: Bytes are decoded as their XML declaration says; a decoded text has been decoded
            already.
    """
    with requires_extra("documents", "Reading XML"):
        from lxml import etree
    # XML with two equal names is well-formed. Without them, lxml opens the file of a document type.
    parser = etree.XMLParser(**_SAFE, collect_ids=isinstance(text, bytes))
    if isinstance(text, str):
        text = DECLARATION.sub(lambda match: "\n" * match[0].count("\n"), text).removeprefix(
            "\ufeff"
        )
        if "<!DOCTYPE" not in text:  # entities may be defined in other files, of which it needs one
            text = f'<!DOCTYPE x SYSTEM "">{text}'
        if other := _OTHER_FILE.match(text):
            start, end = other.span("name")
            text = f'{text[:start]}SYSTEM ""' + "\n" * other["name"].count("\n") + text[end:]
    try:
        return etree.fromstring(text, parser).getroottree()
    except (etree.XMLSyntaxError, ValueError) as error:
        raise _mistake(error) from None


def iterate_elements(file: Any, names: Sequence[str]) -> Iterator[Any]:
    """Yield the elements of some local names from an XML file of any size, one by one, each
    complete.

    An element and what precedes it are removed once the next one is read; its ancestors keep their
    attributes.

    Args:
        file: A binary file.
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
    # Older releases of lxml write two lines about bytes that are not UTF-8.
    reason = " ".join(str(error).split())
    return UserError(f"The text must be well-formed XML: {reason}.")


def local_name(element: Any) -> str:
    """Return the name of an element without its namespace; comments, instructions and entities have
    none.
    """
    return "" if callable(element.tag) else element.tag.rpartition("}")[2]


def translate_value(element: Any) -> str | None:
    """Return the value of the attribute `translate` of an element, its own one or of ITS, or
    None.
    """
    return next(filter(None, map(element.get, _TRANSLATE)), None)
