"""Catalogs of messages of programs, which translate-toolkit reads: PO, TS of Qt, and formats of one
language.
"""

from collections.abc import Sequence
from typing import Any

import regex

from vanilla_transformer.errors import UserError
from vanilla_transformer.files.formats import FORMATS
from vanilla_transformer.machine.imports import requires_extra
from vanilla_transformer.text.languages import Direction
from vanilla_transformer.text.xml_tree import DECLARATION, parse_xml

# The mark of the letter that chooses an item of a menu, as in &File and _File, but not in &amp;
ACCELERATOR = r"(?<=\A|[\s(])[&_](?=\p{L})(?!\w*[;=_(])"
MESSAGE_FORMAT = regex.compile(r"\{\d+[,}]")  # of Java, in which '' is an apostrophe
# But no files and names of controls
RESX_TEXTS = "data[not(@type or @mimetype or starts-with(@name, '>>'))]"
_STRINGS = regex.compile(
    r'(?P<kept>"(?:[^"\\]|\\.)*+(?:"|\Z)|;)|/\*.*?(?:\*/|\Z)|//[^\n]*+|\s++', regex.DOTALL
)
_ATTRIBUTE = regex.compile(r"(?:\A|\n)(\.[a-zA-Z][\w-]*) =\s")  # of a message of Fluent
# As in E&xit, but not in AT&T
_WITHIN_WORD = regex.compile(r"\b(\p{Lu}|\p{L}*\p{Ll})&(?=\p{Ll})(?!\w*[;=])")


def read_catalog(text: str, form: str) -> Any:
    """Return the store of a text in a format that has one, see [`Format.store`]."""
    with requires_extra("documents", "Reading catalogs of messages"):
        from translate.storage import base, factory
    if form == "ts":
        root = parse_xml(text).getroot()
        if root.tag != "TS":
            raise UserError(f"The root element must be <TS>, got <{root.tag}>.")
        for nameless in root.xpath("context[not(name)]"):
            raise UserError(
                f"Each <context> must have a <name>, got none in line {nameless.sourceline}."
            )
    if form == "strings":  # translate-toolkit reads one message on each line
        text = _STRINGS.sub(
            lambda match: (match["kept"] or " ").replace("\n", r"\n") + "\n" * (match[0] == ";"),
            text,
        )
    store: Any = factory.getclass("", form, classes_str={form: FORMATS[form].store})()
    try:
        store.parse(DECLARATION.sub("", text).encode())
    except (ValueError, RecursionError, base.ParseError) as error:
        reason = " ".join(str(getattr(error, "inner_exc", error)).split()).rstrip(".")
        raise UserError(f"The text must be in the format {form}: {reason}.") from None
    for forms in (
        store.document.iterfind(".//message[@numerus='yes']/translation") if form == "ts" else ()
    ):
        if len(forms) == 0:  # which the store cannot read
            forms.append(forms.makeelement("numerusform"))
    charset = (
        store.parseheader().get("Content-Type", "").rpartition("charset=")[2]
        if form == "po"
        else ""
    )
    if charset.lower() not in ("", "utf-8", "utf8", "us-ascii", "ascii", "charset"):
        raise UserError(
            f"The text must be UTF-8, but its header says {charset}. Convert it by `msgconv -t "
            "UTF-8`."
        )
    return store


def read_messages(text: str, form: str) -> dict[str, str]:
    """Return the messages of a text in one language by their keys.

    Attributes of Fluent are messages.
    """
    if form == "resx":
        return {
            entry.get("name"): entry.findtext("value", "")
            for entry in parse_xml(text).getroot().xpath(RESX_TEXTS)
        }
    texts = dict[str, str]()
    for unit in read_catalog(text, form).units:
        key, message = unit.getid(), unit.source
        if isinstance(message, str) and ".@" not in key:  # which describes messages in ARB
            if form == "properties" and MESSAGE_FORMAT.search(message):
                message = message.replace("''", "'")
            pieces = ["", *(_ATTRIBUTE.split(message) if form == "fluent" else [message])]
            texts |= {
                key + name: piece
                for name, piece in zip(pieces[::2], pieces[1::2], strict=True)
                if piece
            }
    return texts


def find_catalog_languages(store: Any, form: str) -> Direction:
    """Return the languages that a PO or TS file names."""
    if form == "po":
        return Direction(
            store.parseheader().get("X-Source-Language") or None, store.gettargetlanguage() or None
        )
    return Direction(*(store.header.get(name) or None for name in ("sourcelanguage", "language")))


def strings_of(text: Any) -> Sequence[str]:
    """Return the forms of a source or of a translation, of which plurals have several.

    Accelerators begin a word.
    """
    return [
        _WITHIN_WORD.sub(r"&\1", str(plural_form or ""))
        for plural_form in getattr(text, "strings", [text])
    ]
