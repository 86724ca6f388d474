"""XLIFF 1.2 and 2: the segments of translation tools. Translations are written; all other bytes stay."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from vanilla_transformer.text.languages import Direction
from vanilla_transformer.text.xliff import UNITS, Status, XliffSegment, find_child, find_definition, read_segments
from vanilla_transformer.text.xml_tree import local_name, locate_elements, parse_xml

from .blocks import Block, Markup, Span, build_block, content, restore_spaces
from .xml_format import declare_utf8, is_untranslatable

_INLINE = {"g", "mrk", "pc"}  # all other elements of a segment are code
_PAIRS = {"bpt": "ept", "bx": "ex", "sc": "ec", "sm": "em"}  # codes that begin and end a span
_ATTRIBUTE = re.compile(r"""(\s+)([^\s=]+)(\s*=\s*)("[^"]*"|'[^']*')""")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# What the specifications have for a machine translation before its review.
_MARK = {"state": "needs-review-translation", "state-qualifier": "mt-suggestion"}
_MARK_2 = {"state": "translated", "subState": "vanilla-transformer:mt"}
_MARK_OF_TRADOS = {"conf": "Draft", "origin": "mt"}


class XliffDocument:
    """
    The open segments of an XLIFF text: [`read_segments`] says which ones these are.

    Their targets are written with the codes of the source, and marked as machine translations that need a review.

    Attributes:
        directions: The languages of each `<file>`, as far as they are named.
        longer: The number of rendered units that are longer than their `maxwidth` in characters.

    Raises:
        ValueError: The text is not XLIFF, or has no target language where its version requires one.
        OSError: lxml is not installed.
    """

    def __init__(self, text: str):
        self._text, root = text, parse_xml(text).getroot()
        if local_name(root) != "xliff":
            raise ValueError(f"An XLIFF text must have the root element <xliff>, got <{local_name(root)}>.")
        self._is_new = (root.get("version") or "1.2").startswith("2")
        if self._is_new and not root.get("trgLang"):
            raise ValueError("An XLIFF 2 text must name its target language, but <xliff> has no attribute `trgLang`.")
        self.directions = [Direction(root.get("srcLang"), root.get("trgLang"))] if self._is_new else _directions(root)
        self._bytes = text.encode()
        self._places = locate_elements(self._bytes, root)
        self._counts = Counter[str]()
        self._units = list[tuple[Any, list[XliffSegment], list[bool]]]()
        self.blocks = list[Block]()
        self.longer = 0
        for unit in root.iter(*(f"{{*}}{name}" for name in UNITS)):
            segments = read_segments(unit)
            open_ones = [self._is_translated(segment) for segment in segments]
            if any(open_ones):
                self._units.append((unit, segments, open_ones))
        markup = Markup(_role_of, keeps_space=True)
        for _, segments, open_ones in self._units:
            sources = [segment.source for segment, is_open in zip(segments, open_ones, strict=True) if is_open]
            blocks = [build_block(content(source), markup) for source in sources]
            self.blocks += [Block(block.text, _pair(block.spans)) for block in blocks]

    @property
    def summary(self) -> str:
        """Say in one line how many segments are translated, and why the others are not."""
        skipped = {name: count for name, count in sorted(self._counts.items()) if name != _OPEN}
        rest = "; ".join(f"{count} {name}" for name, count in skipped.items()) or "none"
        if not self.blocks:
            return f"No segment is open, so the file stays as it is. Skipped: {rest}."
        line = f"Translated {len(self.blocks)} of {self._counts.total()} segments. Skipped: {rest}."
        return f"{line} Longer than their maxwidth: {self.longer}." if self.longer else line

    def render(self, blocks: Sequence[Block]) -> str:
        """Return the text with translated blocks as targets."""
        translated, edits, self.longer = iter(blocks), list[_Edit](), 0
        for unit, segments, open_ones in self._units:
            own = [next(translated) if is_open else None for is_open in open_ones]
            edits += self._edit_unit(unit, segments, own)
            length = sum(len(block.text) for block in own if block is not None)
            self.longer += unit.get("size-unit") == "char" and length > int(unit.get("maxwidth") or length)
        written = self._splice(0, len(self._bytes), edits)
        return declare_utf8(written) if edits else self._text

    def _is_translated(self, segment: XliffSegment) -> bool:
        """Count a segment, and return whether it is translated."""
        kind = _KINDS[segment.status]
        if kind == _OPEN and not content(segment.source):
            kind = "without text"
        self._counts[kind] += 1
        return kind == _OPEN

    def _edit_unit(self, unit: Any, segments: Sequence[XliffSegment], blocks: Sequence[Block | None]) -> list["_Edit"]:
        """Return what changes in a unit, of which some segments have been translated."""
        target, edits = find_child(unit, "target"), list[_Edit]()
        written = [None if block is None else self._write(block) for block in blocks]
        mark = {} if self._is_new else _MARK
        own = [(segment.target, text) for segment, text in zip(segments, written, strict=True) if text is not None]
        if all(element is not None and element is not target for element, _ in own):
            edits.append(self._change_tag(target, mark))
            edits += [self._fill(element, text) for element, text in own]
        else:
            inner = self._join(unit, segments, written)
            edits.append(self._add(unit, inner, mark) if target is None else self._fill(target, inner, mark))
        for segment in (segment for segment, text in zip(segments, written, strict=True) if text is not None):
            definition = find_definition(unit, segment.source.get("mid", ""))
            edits += [] if definition is None else [self._change_tag(definition, _MARK_OF_TRADOS)]
        if self._is_new:
            edits.append(self._change_tag(unit, _MARK_2))
        elif unit.get("approved") == "yes":
            edits.append(self._change_tag(unit, {"approved": "no"}))
        return edits

    def _join(self, unit: Any, segments: Sequence[XliffSegment], written: Sequence[str | None]) -> str:
        """Return the content of a target: of its only segment, or of all segments as `<seg-source>` has them."""
        if segments[0].source is find_child(unit, "source"):
            return written[0] or ""
        edits = []
        for segment, text in zip(segments, written, strict=True):
            if text is None and segment.target is not None:
                text = self._inner(segment.target)
            edits.append(self._fill(segment.source, text or ""))
        place = self._places[find_child(unit, "seg-source")]
        return self._splice(place.content, place.end_tag, edits)

    def _write(self, block: Block) -> str:
        """Return a translated block as XML, with the markup as it is in the text."""
        block = restore_spaces(block)

        def write(spans: Sequence[Span], start: int, end: int) -> str:
            pieces = []
            for span in spans:
                inner = write(span.children, span.start, span.end)
                pieces += [_escape(block.text[start : span.start]), self._write_span(span, inner)]
                start = span.end
            return "".join([*pieces, _escape(block.text[start:end])])

        return write(block.spans, 0, len(block.text))

    def _write_span(self, span: Span, inner: str) -> str:
        if isinstance(span.payload, tuple):
            first, last = (self._places[code] for code in span.payload)
            return self._bytes[first.start : first.end].decode() + inner + self._bytes[last.start : last.end].decode()
        if callable(span.payload.tag):  # a comment, an instruction or an entity
            from lxml import etree

            return etree.tostring(span.payload, encoding="unicode", with_tail=False)
        if not span.fixed and (inner or not self._is_empty(span.payload)):
            return self._fill(span.payload, inner)[2]
        place = self._places[span.payload]
        return self._bytes[place.start : place.end].decode()

    def _is_empty(self, element: Any) -> bool:
        """Return whether an element has no end tag."""
        place = self._places[element]
        return place.content == place.end

    def _inner(self, element: Any) -> str:
        place = self._places[element]
        return self._bytes[place.content : place.end_tag].decode()

    def _start_tag(self, element: Any) -> str:
        place = self._places[element]
        return self._bytes[place.start : place.content].decode()

    def _fill(self, element: Any, inner: str, attributes: Mapping[str, str] | None = None) -> "_Edit":
        """Replace the content of an element, and set attributes."""
        place, tag = self._places[element], _set_attributes(self._start_tag(element), attributes or {})
        if self._is_empty(element):
            tag, closing = tag[:-2].rstrip() + ">", f"</{_tag_name(tag)}>"
        else:
            closing = self._bytes[place.end_tag : place.end].decode()
        return place.start, place.end, tag + inner + closing

    def _change_tag(self, element: Any, attributes: Mapping[str, str]) -> "_Edit":
        place = self._places[element]
        return place.start, place.content, _set_attributes(self._start_tag(element), attributes)

    def _add(self, unit: Any, inner: str, attributes: Mapping[str, str]) -> "_Edit":
        """Add a target after the source, on another line if the source begins one."""
        source = find_child(unit, "source")
        tag, start = self._start_tag(source), self._places[source].start
        name = re.sub(r"source$", "target", _tag_name(tag))
        kept = "".join(match[0] for match in _ATTRIBUTE.finditer(tag) if match[2] == "xml:space")
        before = self._bytes[self._places[unit].start : start].decode()
        space = before[len(before.rstrip()) :]
        after = find_child(unit, "seg-source")
        at = self._places[source if after is None else after].end
        return at, at, f"{space}{_set_attributes(f'<{name}{kept}>', attributes)}{inner}</{name}>"

    def _splice(self, start: int, end: int, edits: Sequence["_Edit"]) -> str:
        pieces = []
        for first, last, text in sorted(edits):
            pieces += [self._bytes[start:first].decode(), text]
            start = last
        return "".join([*pieces, self._bytes[start:end].decode()])


_Edit = tuple[int, int, str]  # the start and the end of bytes, and what replaces them
_OPEN = "open"
_KINDS = {Status.OPEN: _OPEN, Status.DONE: "with a translation", Status.FIXED: "not to be translated"}


def _pair(spans: Sequence[Span]) -> list[Span]:
    """Make one span of two codes that begin and end it and the spans between, so that they stay in this order."""
    paired = list[Span]()
    for span in spans:
        span.children = _pair(span.children)
        key = _pair_key(span.payload, _PAIRS.values())
        starts = [_pair_key(each.payload, _PAIRS) for each in paired]
        if key is None or key not in starts:
            paired.append(span)
            continue
        at = starts.index(key)
        first = paired[at]
        paired[at:] = [Span(first.start, span.end, (first.payload, span.payload), paired[at + 1 :])]
        if first.start == span.end:
            paired[at].space_before, paired[at].space_after = first.space_before, span.space_after
    return paired


def _pair_key(payload: Any, names: Iterable[str]) -> tuple[str, str] | None:
    """Return what the two codes of a pair have in common, or None if a payload is no code of these names."""
    if isinstance(payload, tuple) or local_name(payload) not in names:
        return None
    name = local_name(payload)
    key = payload.get("startRef") or payload.get("rid") or payload.get("id")
    return None if key is None else (_PAIRS.get(name) or name, key)


def _directions(root: Any) -> list[Direction]:
    files = root.iter("{*}file")
    return [Direction(each.get("source-language"), each.get("target-language")) for each in files]


def _tag_name(tag: str) -> str:
    return re.split(r"[\s/>]", tag[1:], maxsplit=1)[0]


def _set_attributes(tag: str, values: Mapping[str, str]) -> str:
    """Return a start tag with the values of attributes; new ones are last."""
    left = dict(values)

    def replace(match: re.Match[str]) -> str:
        value = left.pop(match[2], None)
        return match[0] if value is None else f'{match[1]}{match[2]}{match[3]}"{value}"'

    tag = _ATTRIBUTE.sub(replace, tag)
    added = "".join(f' {name}="{value}"' for name, value in left.items())
    end = re.search(r"\s*/?>\Z", tag)
    assert end is not None
    return tag[: end.start()] + added + tag[end.start() :] if added else tag


def _escape(text: str) -> str:
    return escape(_NOT_XML.sub("", text))


def _role_of(element: Any) -> str:
    if is_untranslatable(element) or element.get("mtype") == "protected":
        return "fixed"
    return "inline" if local_name(element) in _INLINE else "opaque"


__all__ = ["XliffDocument"]
