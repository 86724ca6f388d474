"""Parse XML safely: no entity is expanded, and nothing outside of the text is read."""

import re
from typing import Any

from vanilla_transformer.import_utils import requires_extra

DECLARATION = re.compile(r"\ufeff?<\?xml\s[^>]*\?>\s*")


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
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, strip_cdata=False)
    if isinstance(text, str):
        text = DECLARATION.sub(lambda match: "\n" * match[0].count("\n"), text, count=1)
    try:
        return etree.fromstring(text, parser).getroottree()
    except (etree.XMLSyntaxError, ValueError) as error:
        raise ValueError(f"The text must be well-formed XML: {error}.") from None


__all__ = ["DECLARATION", "parse_xml"]
