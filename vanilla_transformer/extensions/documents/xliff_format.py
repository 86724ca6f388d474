"""XLIFF 1.2 and 2: the segments of translation tools."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from vanilla_transformer.data.readers.xliff import (
    PLACEHOLDERS,
    UNITS,
    Status,
    XliffSegment,
    find_child,
    read_definitions,
    read_segments,
    visible_text,
)
from vanilla_transformer.decoding.protection.blocks import (
    OPEN,
    Block,
    Document,
    SpanBuilder,
    leave_open,
    summarize,
)
from vanilla_transformer.errors import UserError
from vanilla_transformer.text.changes import KEPT, Change, Segment, find_changes
from vanilla_transformer.text.languages import (
    NO_DIRECTION,
    Direction,
    find_differences,
    name_language,
)
from vanilla_transformer.text.translation_warnings import describe_doubts
from vanilla_transformer.text.xml_tree import local_name, translate_value

from .line_breaks import ITEM
from .source_text import Edit, Place, Token
from .xml_format import ENTITY, HIDDEN, XML_SPACE, MarkupDocument

if TYPE_CHECKING:
    from lxml.etree import _Element

_INLINE = {"g", "mrk", "pc"}  # all other elements of a segment are code
# Codes that begin and end a span.
_PAIRS = {"bpt": "ept", "bx": "ex", "sc": "ec", "sm": "em"}
# Codes that may hold an opening or a closing tag of the original.
_CODES_OF_TAGS = PLACEHOLDERS | {"it"}
_TAG = re.compile(r"\s*<(?P<slash>/?)(?P<name>[^\s/<>]+)(?:\s[^<>]*)?(?<!/)>\s*")
_HALF_OF_ANGULAR = re.compile(r"(?:START|(?P<slash>CLOSE))_(?P<name>\w+?)(?:_\d+)?")
# Escaped line breaks, but not in paths, and lines of a text that may be wrapped
_BLANKS = r"(?:(?<![ \t])[ \t]++)?"
_SPECIAL = (
    rf"(?P<hidden>{HIDDEN})|(?P<kept>{ENTITY})|(?P<plain>(?<!\S)(?:[A-Za-z]:|\\)\\\S*)"
    rf"|(?P<break>{_BLANKS}(?:\\r)?\\n[ \t]*+{ITEM}?|(?<![^>]){ITEM})"
    rf"|(?P<space>{_BLANKS}\r?\n\s*+)"
)
_WIDTH = re.compile(r"\d{1,9}")  # that a text may pass
_LINE_BREAK = re.compile(r"\s*+(?:<br\b[^<>]*+>|\\n)\s*+|[^\S\n]*+\n\s*+", re.IGNORECASE)
# What the specifications have for a machine translation before its review.
_MARK = {"state": "needs-review-translation", "state-qualifier": "mt-suggestion"}
_MARK_2 = {"state": "translated", "subState": "vanilla-transformer:mt"}
# Children of a unit before the notes in version 1.2, and after them in 2
_BEFORE_NOTES = {"source", "seg-source", "target"}
_AFTER_NOTES = {"originalData", "segment", "ignorable"}
_MARK_OF_TRADOS = {"conf": "Draft", "origin": "mt"}

_KINDS = {
    Status.OPEN: OPEN,
    Status.DONE: "with a translation",
    Status.FIXED: "not to be translated",
}


class TargetLanguageError(UserError):
    """A file that needs a target language, which neither itself nor the caller names."""


def check_direction(named: Direction, direction: Direction) -> None:
    """Refuse a file that names other languages than the ones of the translation."""
    for side, actual, expected in find_differences(named, direction):
        requirement = f"The {side} language of the file must be {expected}, as of the model"
        raise UserError(
            f"{requirement}, but it is {actual}. Choose a model for it, or correct the file."
        )


class XliffDocument(MarkupDocument):
    """
    The open segments of an XLIFF text: [`read_segments`] says which ones these are.

    Their targets are written with the codes of the source, and marked as machine translations that
    need a review. A file that names no target language gets the one of the translation.

    Args:
        direction: The languages of the translation, as far as they are known. Regions may differ.

    Attributes:
        directions: The languages of each `<file>`, as far as they are named.
        summary: Numbers of segments: translated ones, others with the reason, and ones longer than
            `maxwidth`.
        doubts: These become notes.
    """

    def __init__(self, text: str, direction: Direction = NO_DIRECTION):
        super().__init__(text)
        self.spelling = partial(Place, special=_SPECIAL)
        root = self.tokens[self.root].element
        if local_name(root) != "xliff":
            raise UserError(
                f"An XLIFF text must have the root element <xliff>, got <{local_name(root)}>."
            )
        self._is_new = (root.get("version") or "1.2").startswith("2")
        if self._is_new and not (root.get("trgLang") or direction.target):
            requirement = (
                "An XLIFF 2 text must name its target language, but <xliff> has no attribute "
                "`trgLang`"
            )
            raise TargetLanguageError(
                f"{requirement}. Add it, or name the language by --target_language."
            )
        parts = [root] if self._is_new else [*root.iter("{*}file")]
        names = ("source-language", "target-language")
        if self._is_new:
            names = ("srcLang", "trgLang")
        self.directions = [Direction(*map(part.get, names)) for part in parts]
        for named in self.directions:
            check_direction(named, direction)
        self._numbers = dict[Any, int]()
        for index, token in enumerate(self.tokens):
            if token.kind == "open":
                self._numbers[token.element] = index
        target = {names[1]: name_language(direction.target)} if direction.target else {}
        self._named = list[Edit]()
        for part in parts:
            if not part.get(names[1]):
                self._named += self._set(part, target)
        self._pairs = self._find_pairs()
        self._counts = Counter[str]()
        # The segments of each unit, with the numbers of their blocks
        self._units = list[tuple[Any, list[XliffSegment], list[int | None]]]()
        self._segments = list[tuple[Any, XliffSegment]]()  # with their units
        # Units whose translation is kept: the unit of the earlier version, and its target
        self._kept = dict[Any, tuple[Any, Any]]()
        for unit in root.iter(*(f"{{*}}{name}" for name in UNITS)):
            segments, numbers = read_segments(unit), list[int | None]()
            for segment in segments:
                self._segments.append((unit, segment))
                kind, number = _KINDS[segment.status], len(self.blocks)
                if kind == OPEN:
                    index = self._numbers[segment.source]
                    elements = (segment.source, *segment.source.iterancestors())
                    spaces = (element.get(XML_SPACE) for element in elements)
                    breaks = next(filter(None, spaces), "default") == "preserve"
                    last = self.end(self.tokens[index])
                    self.add_run(
                        index + 1, last, keeps_space=True, breaks=breaks, needs_letters=False
                    )
                    kind = OPEN if len(self.blocks) > number else "without text"
                    words = "" if segment.target is None else visible_text(segment.target)
                    if kind == OPEN and words not in ("", visible_text(segment.source)):
                        block = self.blocks[number]  # of an earlier source, which is unknown
                        self.blocks[number] = replace(block, earlier=("", words))
                self._counts[kind] += 1
                numbers.append(number if kind == OPEN else None)
            if any(number is not None for number in numbers):
                self._units.append((unit, segments, numbers))

    def render(self, blocks: Sequence[Block]) -> str:
        """Return the text with translated blocks as targets."""
        self.edits = sorted(self.replaced)
        blocks = leave_open(self.blocks, blocks)
        rows = zip(self.places, self.blocks, blocks, strict=True)
        written = [self.write(*row) for row in rows]
        edits, longer = self._named if blocks else list[Edit](), 0
        noted = defaultdict[Any, list[str]](list)
        for unit, segments, numbers in self._units:
            texts = list[str | None]()
            for segment, number in zip(segments, numbers, strict=True):
                if number is None or blocks[number].is_open:
                    texts.append(None)
                elif blocks[number].written is not None:
                    texts.append(blocks[number].written)
                else:  # markup around the text of the block stays
                    place = self.places[number]
                    edit = place.start, place.end, written[number]
                    texts.append(self.splice([edit], *self._content(segment.source)))
            if any(text is not None for text in texts):
                edits = [*edits, *self._edit_unit(unit, segments, texts)]
            numbers_of_blocks = [number for number in numbers if number is not None]
            for number in numbers_of_blocks:
                if number in self.doubts and not blocks[number].is_open:
                    noted[unit.getparent() if self._is_new else unit] += self.doubts[number]
            length = sum(len(blocks[number].text) for number in numbers_of_blocks)
            limit = unit.get("maxwidth", "") if unit.get("size-unit") == "char" else ""
            if _WIDTH.fullmatch(limit):
                longer += length > int(limit)
        for unit, names in noted.items():
            edits = [*edits, self._note(unit, names)]
        count: int | None = None
        done = "No segment is open, so the file stays as it is."
        if blocks:
            count = sum(block.is_open for block in blocks)
            num_translated = self._counts[OPEN] - count
            done = f"Translated {num_translated} of {self._counts.total()} segments."
        self.summary = summarize(done, count, self._counts)
        self.summary += f" Longer than their maxwidth: {longer}." if longer else ""
        return self.splice(edits)

    def update(self, *previous: Document) -> list[Change]:
        """Take the translations of segments that an earlier translation of the file has."""
        (earlier,) = previous
        assert isinstance(earlier, XliffDocument)
        versions, known = list[Segment](), list[tuple[Any, XliffSegment]]()
        for unit, segment in earlier._segments:
            if segment.status is Status.DONE and segment.target is not None:
                versions.append(earlier._as_written(segment))
                known.append((unit, segment))
        rows = list[tuple[Any, XliffSegment, int]]()
        for unit, segments, numbers in self._units:
            for segment, number in zip(segments, numbers, strict=True):
                if number is not None:
                    rows.append((unit, segment, number))
        changes = find_changes([self._as_written(segment) for _, segment, _ in rows], versions)
        for (unit, segment, number), change in zip(rows, changes, strict=True):
            if change.earlier is None:
                continue
            unit_before, before = known[change.earlier]
            words = visible_text(before.source), visible_text(before.target)
            block = replace(self.blocks[number], earlier=words)
            if change.kind == KEPT:
                self._counts.update({OPEN: -1, KEPT: 1})
                block.written = earlier.splice([], *earlier._content(before.target))
                if segment.source is find_child(unit, "source"):
                    self._kept[unit] = unit_before, before.target
            self.blocks[number] = block
        return changes

    def _as_written(self, segment: XliffSegment) -> Segment:
        written = self.splice([], *self._content(segment.source))
        return Segment(visible_text(segment.source), written)

    def role_of(self, token: Token) -> str:
        attributes, name = token.element.attrib, token.local_name
        is_protected = attributes.get("mtype") == "protected"
        if is_protected or translate_value(token.element) == "no":
            return "fixed"
        if name in _INLINE:
            return "inline"
        if name not in PLACEHOLDERS:
            return "opaque"
        is_break = attributes.get("ctype") == "lb" or attributes.get("subType") == "xlf:lb"
        if is_break or _LINE_BREAK.fullmatch(_shown(token.element)):
            return "break"
        return "parting"

    def add_element(self, builder: SpanBuilder, index: int) -> int:
        """Add an element.

        Two codes that begin and end a span become one, so that they stay in this order.
        """
        token = self.tokens[index]
        name = token.local_name
        keys = map(token.element.get, ("startRef", "rid", "id"))
        key = next(filter(None, keys), None)
        first, number = self._pairs.get(token.element, (None, 0))
        is_code = key is not None and name in _PAIRS
        if is_code or (first is token.element and not builder.end[-1:].isalnum()):
            of_span = (_PAIRS.get(name), number or key)
            builder.open(of_span, self.span_of(index, token.after))
            return token.after
        is_last = name in _PAIRS.values() or (number and first is not token.element)
        span = None
        if is_last:
            span = builder.close((None, number) if number else (name, key))
        if span is None:
            return super().add_element(builder, index)
        span.payload[1], _ = self.span_of(index, token.after)
        if number:
            builder.part()
        return token.after

    def _find_pairs(self) -> dict[Any, tuple[Any, int]]:
        """Return the first code and the number of each pair of codes that are tags of the original,
        such as <b>, </b>.

        Both are children of one element.
        """
        pairs = dict[Any, tuple[Any, int]]()
        opened = defaultdict[Any, list[Any]](list)
        for token in self.tokens:
            if token.kind != "open" or token.local_name not in _CODES_OF_TAGS:
                continue
            code = token.element
            half = _HALF_OF_ANGULAR.fullmatch(code.get("id", ""))
            if half is None:
                half = _TAG.fullmatch(_shown(code) or code.text or "")
            if half is None:
                continue
            before = opened[code.getparent(), half["name"].lower()]
            if not half["slash"]:
                before.append(code)
            elif before:
                first = before.pop()
                pairs[first] = pairs[code] = first, len(pairs) + 1
        return pairs

    def _edit_unit(
        self, unit: "_Element", segments: Sequence[XliffSegment], texts: Sequence[str | None]
    ) -> Iterator[Edit]:
        """Yield what changes in a unit of which the segments with a text have been translated."""
        translated = []
        for segment, text in zip(segments, texts, strict=True):
            if text is not None:
                translated.append((segment, text))
        target = find_child(unit, "target")
        mark, mark_of_unit = ({}, _MARK_2) if self._is_new else (_MARK, {})
        if unit.get("approved") == "yes":
            mark_of_unit = {"approved": "no"}
        if unit in self._kept:
            unit_before, target_before = self._kept[unit]
            mark = _pick(target_before, *_MARK)
            mark_of_unit = _pick(unit_before, "approved", *_MARK_2)
        if target is None:  # after the source, on another line if the source begins one
            index = self._numbers[find_child(unit, "source")]
            source, before = self.tokens[index], self.tokens[index - 1]
            space = ""
            if before.kind == "text":
                space = self.text[before.start : before.end]
            kept = self.attributes(source).get("xml:space")
            raw = {}
            if kept is not None:
                raw["xml:space"] = self.text[kept.start : kept.end]
            raw |= {name: f'"{value}"' for name, value in mark.items()}
            tag = "".join(f" {name}={value}" for name, value in raw.items())
            name = source.name.removesuffix("source") + "target"
            segmented = find_child(unit, "seg-source")
            last = source
            if segmented is not None:
                last = self.tokens[self._numbers[segmented]]
            at = self.tokens[last.after - 1].end
            inner = self._join(unit, segments, texts)
            indent = space if space.isspace() else ""
            yield at, at, f"{indent}<{name}{tag}>{inner}</{name}>"
        else:
            yield from self._set(target, mark)
            targets = [segment.target for segment, _ in translated]
            if any(other is None or other is target for other in targets):
                yield self._fill(target, self._join(unit, segments, texts))
            else:
                for segment, text in translated:
                    yield self._fill(segment.target, text)
        definitions = read_definitions(unit)
        for segment, _ in translated:
            definition = definitions.get(segment.source.get("mid", ""))
            if definition is not None:
                yield from self._set(definition, _MARK_OF_TRADOS)
        yield from self._set(unit, mark_of_unit)

    def _note(self, unit: "_Element", names: Sequence[str]) -> Edit:
        """Return the edit that adds a note with warnings to a `<trans-unit>`, or to the `<unit>` of
        segments.
        """
        notes = find_child(unit, "notes")
        if notes is not None:
            at, tags = self._content(notes)[1], "<note>{}</note>"
        elif self._is_new:
            following = (child for child in unit if local_name(child) in _AFTER_NOTES)
            at, tags = (
                self.tokens[self._numbers[next(following)]].start,
                "<notes><note>{}</note></notes>",
            )
        else:
            *_, last = (child for child in unit if local_name(child) in _BEFORE_NOTES)
            after = self.tokens[self._numbers[last]].after
            at, tags = self.tokens[after - 1].end, '<note from="vanilla-transformer">{}</note>'
        return at, at, tags.format(describe_doubts(names))

    def _join(
        self, unit: "_Element", segments: Sequence[XliffSegment], texts: Sequence[str | None]
    ) -> str:
        """Return the content of a target: of its only segment, or of all segments as `<seg-source>`
        has them.
        """
        if segments[0].source is find_child(unit, "source"):
            return texts[0] or ""
        edits = []
        for segment, text in zip(segments, texts, strict=True):
            if text is None and segment.target is not None:
                text = self.splice([], *self._content(segment.target))
            edits.append(self._fill(segment.source, text or ""))
        return self.splice(edits, *self._content(find_child(unit, "seg-source")))

    def _content(self, element: "_Element") -> tuple[int, int]:
        token = self.tokens[self._numbers[element]]
        if token.is_empty:
            return token.end, token.end
        return token.end, self.tokens[token.after - 1].start

    def _fill(self, element: "_Element", inner: str) -> Edit:
        """Return the edit that replaces the content of an element."""
        token = self.tokens[self._numbers[element]]
        if not token.is_empty:
            return *self._content(element), inner
        tag = self.text[token.start : token.end].removesuffix("/>").rstrip()
        return token.start + len(tag), token.end, f">{inner}</{token.name}>"

    def _set(self, element: "_Element", values: Mapping[str, str]) -> list[Edit]:
        """Return the edits that set attributes to values without special characters; new ones are
        the last ones.
        """
        token = self.tokens[self._numbers[element]]
        attributes = self.attributes(token)
        ends = [attribute.end for attribute in attributes.values()]
        end = max([token.start + 1 + len(token.name), *ends])
        added, edits = "", []
        for name, value in values.items():
            if name in attributes:
                edits.append(attributes[name].edit(value))
            else:
                added += f' {name}="{value}"'
        return [*edits, (end, end, added)] if added else edits


def _pick(element: "_Element", *names: str) -> dict[str, str]:
    """Return the attributes of these names."""
    return {name: element.get(name) for name in names if name in element.attrib}


def _shown(code: "_Element") -> str:
    """Return what the file says a code stands for."""
    return code.get("equiv-text") or code.get("equiv") or code.get("disp") or ""
