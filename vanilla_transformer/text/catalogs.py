"""Catalogs of messages of programs, which translate-toolkit reads and writes: PO, TS of Qt and RESX of .NET."""

from collections.abc import Sequence
from typing import Any

from vanilla_transformer.errors import UserError
from vanilla_transformer.utils.import_utils import requires_extra

from .languages import Direction
from .xml_tree import DECLARATION, local_name, parse_xml

CATALOGS = ("po", "ts", "resx")
# The mark of the letter that chooses an item of a menu: &File, E&xit and _File, but not in AT&T or &amp;
ACCELERATOR = (
    r"(?<=\A|[\s(])[&_](?=\p{L})(?!\w*[;=_(])|(?<=\p{Lu})&(?=\p{Ll})(?!\w*[;=])|(?<=\p{Ll})&(?=\p{L})(?!\w*[;=])"
)
_ROOTS = {"ts": "TS", "resx": "root"}


def read_catalog(text: str, form: str) -> Any:
    """Return the store of a text.

    Args:
        form: One of `CATALOGS`.
    """
    with requires_extra("documents", "Reading catalogs of messages"):
        from translate.storage import pypo, resx, ts2
    if form in _ROOTS:
        root = parse_xml(text).getroot()
        if local_name(root) != _ROOTS[form]:
            raise UserError(f"The root element must be <{_ROOTS[form]}>, got <{local_name(root)}>.")
        for nameless in root.xpath("context[not(name)]"):
            raise UserError(f"Each <context> must have a <name>, got none in line {nameless.sourceline}.")
    store = {"po": pypo.pofile, "ts": ts2.tsfile, "resx": resx.RESXFile}[form]()
    try:
        store.parse(DECLARATION.sub("", text).encode())
    except ValueError as error:
        raise UserError(f"The text must be in the format {form}: {' '.join(str(error).split())}.") from None
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
    """Return the forms of a source or of a translation, of which plurals have several."""
    return [str(each or "") for each in getattr(text, "strings", [text])]
