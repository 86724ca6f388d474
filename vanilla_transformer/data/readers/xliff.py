"""
The segments of XLIFF 1.2 and 2, and which of them are open.

The work of translators, reviewers and translation memories is in `state` of both versions, in
`approved` of 1.2, in `conf` of Trados Studio, and in `mq:status` of memoQ.
"""

import re
from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from vanilla_transformer.text.xml_tree import local_name, translate_value

if TYPE_CHECKING:
    from lxml.etree import _Element as Element

# Elements that hold code of the original document instead of text, in TMX and in XLIFF.
CODES = {"bpt", "bx", "cp", "ec", "em", "ept", "ex", "it", "ph", "sc", "sm", "sub", "ut", "x"}
PLACEHOLDERS = {"ph", "x"}  # of these, codes that are no pair, such as line breaks and pictures
UNITS = ("trans-unit", "segment")  # of 1.2 and 2
_UNTRANSLATED = {"new", "needs-translation", "initial"}
_DONE = {"translated", "signed-off", "final", "reviewed"}
_REVIEWED_NEXT = {"needs-review-adaptation", "needs-review-l10n", "needs-review-translation"}
_STATES_OF_TRADOS = {
    "Translated": "translated",
    "ApprovedTranslation": "signed-off",
    "ApprovedSignOff": "final",
}
_DONE_IN_MEMOQ = re.compile(r"Confirmed|Proofread")  # such as ManuallyConfirmed
_LOCKED = {"locked", "true", "yes"}


class Status(Enum):
    """Whether a segment is open, has a translation, or is not to be translated."""

    OPEN = "open"
    DONE = "done"
    FIXED = "fixed"


class XliffSegment(NamedTuple):
    """
    A segment of a unit.

    Args:
        source: `<source>`, or a segment in `<seg-source>`.
        target: `<target>`, or the segment in it; None if there is none.
        status: Whether it is open.
    """

    source: "Element"
    target: "Element | None"
    status: Status


def read_segments(unit: "Element") -> list[XliffSegment]:
    """Return the segments of a `<trans-unit>` of XLIFF 1.2, or the one of a `<segment>` of
    XLIFF 2.
    """
    source, target = find_child(unit, "source"), find_child(unit, "target")
    if source is None:
        return []
    values = map(translate_value, (unit, *unit.iterancestors()))
    is_fixed = next(filter(None, values), "yes") == "no"
    status = Status.FIXED if is_fixed else _status(unit, target, source, target)
    whole = XliffSegment(source, target, status)
    sources = _marks(find_child(unit, "seg-source"))
    targets = _marks(target)
    if not sources or (whole.status is Status.DONE and not targets):
        return [whole]
    segments, definitions = [], read_definitions(unit)
    for mid, mark in sources.items():
        target_mark = targets.get(mid)
        status = Status.FIXED
        if not is_fixed:
            status = _status(unit, target, mark, target_mark, definitions.get(mid))
        segments.append(XliffSegment(mark, target_mark, status))
    return segments


def find_child(element: "Element", name: str) -> "Element | None":
    """Return the first child of a local name, or None."""
    for child in element:
        if local_name(child) == name:
            return child
    return None


def read_definitions(unit: "Element") -> dict[str, "Element"]:
    """Return the entries of `<sdl:seg-defs>`, which Trados Studio writes, by the `mid` of their
    segments.
    """
    definitions = find_child(unit, "seg-defs")
    entries = () if definitions is None else reversed(definitions)
    return {entry.get("id"): entry for entry in entries}  # the first one of each segment


def visible_text(element: "Element") -> str:
    """Return the text of an element without codes, comments and entities, with single spaces."""
    return " ".join("".join(_texts(element)).split())


def _texts(element: "Element") -> Iterator[str]:
    if local_name(element) and local_name(element) not in CODES:
        yield element.text or ""
        for child in element:
            yield from _texts(child)
            yield child.tail or ""


def _marks(element: "Element | None") -> dict[str, "Element"]:
    """Return the outermost segments of a `<seg-source>` or `<target>` by their `mid`."""
    marks = dict[str, "Element"]()
    for child in () if element is None else element:
        if local_name(child) == "mrk" and child.get("mtype") == "seg":
            marks[child.get("mid", "")] = child
        else:
            marks |= _marks(child)
    return marks


def _is_locked(element: "Element | None") -> bool:
    """Return whether a tool has locked a unit or a segment, as `mq:locked`, `m:locked` and `locked`
    of Trados say.
    """
    if element is None:
        return False
    for name, value in element.attrib.items():
        if name.rpartition("}")[2] == "locked" and value in _LOCKED:
            return True
    return False


def _status(
    unit: "Element",
    of_unit: "Element | None",
    source: "Element",
    target: "Element | None",
    definition: "Element | None" = None,
) -> Status:
    """Return the status of a segment that may be translated; a locked one is not open.

    Args:
        of_unit: `<target>` of the unit, of which the target of the segment may be a part.
    """
    is_open = _is_open(unit, of_unit, source, target, definition)
    if is_open and (_is_locked(unit) or _is_locked(definition)):
        return Status.FIXED
    return Status.OPEN if is_open else Status.DONE


def _is_open(
    unit: "Element",
    of_unit: "Element | None",
    source: "Element",
    target: "Element | None",
    definition: "Element | None",
) -> bool:
    if of_unit is None:
        return True
    state = of_unit.get("state") or unit.get("state")
    if definition is not None:
        state = _STATES_OF_TRADOS.get(definition.get("conf", ""), state)
    if _DONE_IN_MEMOQ.search(unit.get("{MQXliff}status", "")):
        state = "translated"
    text = "" if target is None else visible_text(target)
    original = "" if source is None else visible_text(source)
    if target is None or not (text or (len(target) and not original)):
        return state not in _DONE
    if state in _DONE | _REVIEWED_NEXT or unit.get("approved") == "yes":
        return False
    if text == original and any(map(str.isalpha, text)):
        return True
    # Otherwise it names where a suggestion is from.
    qualifier = of_unit.get("state-qualifier", "rejected")
    return state in _UNTRANSLATED and qualifier.startswith("rejected")
