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
ACCESS_KEY = r"(?<![^\s(])&(?=\p{L})(?!\w*[;=_(])"
ACCELERATOR = rf"{ACCESS_KEY}|(?<![^\s(])_(?=\p{{L}})(?!\w*[;=_(])"
# One in the text of a file, after a quotation mark, a tag or a key
_ACCESS_KEY_IN_FILE = regex.compile(r"(?<![^\s(\"=:>])&(?:amp;)?(?=\p{L})(?!\w*[;=_(])")
MESSAGE_FORMAT = regex.compile(r"\{\d+[,}]")  # of Java, in which '' is an apostrophe
# But no files and names of controls
RESX_TEXTS = "data[not(@type or @mimetype or starts-with(@name, '>>'))]"
_STRINGS = regex.compile(
    r'(?P<kept>"(?:[^"\\]|\\.)*+(?:"|\Z)|;)|/\*.*?(?:\*/|\Z)|//[^\n]*+|\s++', regex.DOTALL
)
_ATTRIBUTE = regex.compile(r"(?:\A|\n)(\.[a-zA-Z][\w-]*) =\s")  # of a message of Fluent
# As in E&xit, but not in AT&T; and as in Prog&ram, which drag&drop looks like
_AFTER_INITIAL = regex.compile(r"\b(\p{Lu})&(?=\p{Ll})(?!\w*[;=])")
_WITHIN_WORD = regex.compile(r"\b(\p{Lu}|\p{L}*\p{Ll})&(?=\p{Ll})(?!\w*[;=])")
_SHORT = 4  # words of a message that may have a mark within a word


def read_catalog(text: str, form: str) -> Any:
    """Return the store of a text in a format that has one, see [`Format.store`]."""
    with requires_extra("documents", "Reading catalogs of messages"):
        from translate.storage import base, factory
    if form == "ts":
        root = parse_xml(text).getroot()
        if root.tag != "TS":
            raise UserError(f"The root element must be <TS>, got <{root.tag}>.")
        for nameless in root.xpath("context[not(name)]"):
            number = nameless.sourceline
            raise UserError(f"Each <context> must have a <name>, got none in line {number}.")
    if form == "strings":  # translate-toolkit reads one message on each line
        text = _STRINGS.sub(_put_on_one_line, text)
    store: Any = factory.getclass("", form, classes_str={form: FORMATS[form].store})()
    try:
        store.parse(DECLARATION.sub("", text).encode())
    except (ValueError, RecursionError, base.ParseError) as error:
        words = str(getattr(error, "inner_exc", error)).split()
        reason = " ".join(words).rstrip(".")
        raise UserError(f"The text must be in the format {form}: {reason}.") from None
    if form == "ts":
        for forms in store.document.iterfind(".//message[@numerus='yes']/translation"):
            if len(forms) == 0:  # which the store cannot read
                forms.append(forms.makeelement("numerusform"))
    charset = ""
    if form == "po":
        content_type = store.parseheader().get("Content-Type", "")
        charset = content_type.rpartition("charset=")[2]
    if charset.lower() not in ("", "utf-8", "utf8", "us-ascii", "ascii", "charset"):
        raise UserError(
            f"The text must be UTF-8, but its header says {charset}. Convert it by `msgconv -t "
            "UTF-8`."
        )
    return store


def _put_on_one_line(match: regex.Match[str]) -> str:
    """Return a string of a `.strings` file without line breaks, and with one after a message."""
    kept = (match["kept"] or " ").replace("\n", r"\n")
    return kept + "\n" if match[0] == ";" else kept


def read_messages(text: str, form: str) -> dict[str, str]:
    """Return the messages of a text in one language by their keys.

    Attributes of Fluent are messages.
    """
    texts = dict[str, str]()
    if form == "resx":
        for entry in parse_xml(text).getroot().xpath(RESX_TEXTS):
            texts[entry.get("name")] = entry.findtext("value", "")
        return texts
    for unit in read_catalog(text, form).units:
        key, message = unit.getid(), unit.source
        if isinstance(message, str) and ".@" not in key:  # which describes messages in ARB
            if form == "properties" and MESSAGE_FORMAT.search(message):
                message = message.replace("''", "'")
            pieces = _ATTRIBUTE.split(message) if form == "fluent" else [message]
            # The message itself has no name.
            for name, piece in zip(["", *pieces[1::2]], pieces[::2], strict=True):
                if piece:
                    texts[key + name] = piece
    return texts


def find_catalog_languages(store: Any, form: str) -> Direction:
    """Return the languages that a PO or TS file names."""
    if form == "po":
        source = store.parseheader().get("X-Source-Language")
        target = store.gettargetlanguage()
    else:
        source = store.header.get("sourcelanguage")
        target = store.header.get("language")
    return Direction(source or None, target or None)


def uses_access_keys(text: str) -> bool:
    """Return whether a file has messages with `&` before a word."""
    return bool(_ACCESS_KEY_IN_FILE.search(text))


def pair_strings(source: Any, target: Any, has_keys: bool) -> tuple[Sequence[str], Sequence[str]]:
    """Return the forms of a source and of its translation, which has an accelerator if it does."""
    sources = strings_of(source, has_keys)
    has_key = has_keys or any(regex.search(ACCESS_KEY, message) for message in sources)
    return sources, strings_of(target, has_key)


def strings_of(text: Any, has_keys: bool = False) -> Sequence[str]:
    """Return the forms of a source or of a translation, of which plurals have several.

    Accelerators begin a word. Between two words, `&` is one only if the message is short and the
    file has others.
    """
    moved = []
    for plural_form in getattr(text, "strings", [text]):
        message = str(plural_form or "")
        may_be_within = has_keys and len(message.split()) <= _SHORT
        expression = _WITHIN_WORD if may_be_within else _AFTER_INITIAL
        moved.append(expression.sub(r"&\1", message))
    return moved
