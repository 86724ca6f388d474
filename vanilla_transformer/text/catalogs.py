"""Catalogs of messages of programs, which translate-toolkit reads and writes: PO and TS of Qt."""

from collections.abc import Sequence
from typing import Any

import regex

from vanilla_transformer.errors import UserError
from vanilla_transformer.utils.import_utils import requires_extra

from .languages import Direction
from .xml_tree import DECLARATION, parse_xml

# The mark of the letter that chooses an item of a menu, as in &File and _File, but not in &amp;
ACCELERATOR = r"(?<=\A|[\s(])[&_](?=\p{L})(?!\w*[;=_(])"
_WITHIN_WORD = regex.compile(r"\b(\p{Lu}|\p{L}*\p{Ll})&(?=\p{Ll})(?!\w*[;=])")  # as in E&xit, but not in AT&T


def read_catalog(text: str, form: str) -> Any:
    """Return the store of a text.

    Args:
        form: po or ts.
    """
    with requires_extra("documents", "Reading catalogs of messages"):
        from translate.storage import pypo, ts2
    if form == "ts":
        root = parse_xml(text).getroot()
        if root.tag != "TS":
            raise UserError(f"The root element must be <TS>, got <{root.tag}>.")
        for nameless in root.xpath("context[not(name)]"):
            raise UserError(f"Each <context> must have a <name>, got none in line {nameless.sourceline}.")
    store = pypo.pofile() if form == "po" else ts2.tsfile()
    try:
        store.parse(DECLARATION.sub("", text).encode())
    except ValueError as error:
        raise UserError(
            f"The text must be in the format {form}: {' '.join(str(error).split()).rstrip('.')}."
        ) from None
    for forms in store.document.iterfind(".//message[@numerus='yes']/translation") if form == "ts" else ():
        if len(forms) == 0:  # which the store cannot read
            forms.append(forms.makeelement("numerusform"))
    charset = store.parseheader().get("Content-Type", "").rpartition("charset=")[2] if form == "po" else ""
    if charset.lower() not in ("", "utf-8", "utf8", "us-ascii", "ascii", "charset"):
        raise UserError(f"The text must be UTF-8, but its header says {charset}. Convert it by `msgconv -t UTF-8`.")
    return store


def find_catalog_languages(store: Any, form: str) -> Direction:
    """Return the languages that a PO or TS file names."""
    if form == "po":
        return Direction(store.parseheader().get("X-Source-Language") or None, store.gettargetlanguage() or None)
    return Direction(*(store.header.get(name) or None for name in ("sourcelanguage", "language")))


def strings_of(text: Any) -> Sequence[str]:
    """Return the forms of a source or of a translation, of which plurals have several. Accelerators begin a word."""
    return [_WITHIN_WORD.sub(r"&\1", str(each or "")) for each in getattr(text, "strings", [text])]
