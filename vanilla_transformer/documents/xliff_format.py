"""XLIFF 1.2 and 2: the segments of translation tools."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vanilla_transformer.text.languages import NO_DIRECTION, Direction

from .blocks import Block
from .source_text import Token
from .xml_format import MarkupDocument

_INLINE = {"g", "mrk", "pc"}  # all other elements of a segment are code
_PLACEHOLDERS = {"ph", "x"}
_LINE_BREAK = re.compile(r"\s*(?:<br\b[^<>]*>|\\n|\n)\s*", re.IGNORECASE)
_MACHINE_TRANSLATED = {"state": "needs-review-translation", "state-qualifier": "mt-suggestion"}


class _Segment(NamedTuple):
    """The numbers of the tokens that begin a segment, its source and its target."""

    parent: int
    source: int
    target: int | None


class XliffDocument(MarkupDocument):
    """
    The segments of an XLIFF text that have no target yet, or an empty one.

    Their targets are written, with the codes of the source and the state of a machine translation that needs a review.
    Units with `translate="no"` are left as they are.

    Args:
        direction: Is not used: the text names its languages.

    Raises:
        ValueError: The text is not XLIFF, or has no target language where its version requires one.
        OSError: lxml is not installed.
    """

    def __init__(self, text: str, direction: Direction = NO_DIRECTION):
        super().__init__(text)
        root = self.tokens[self.root]
        if root.local_name != "xliff":
            raise ValueError(f"An XLIFF text must have the root element <xliff>, got <{root.local_name}>.")
        attributes = self.attributes(root)
        self._is_new = "version" in attributes and attributes["version"].value.startswith("2")
        if self._is_new and not ("trgLang" in attributes and attributes["trgLang"].value):
            raise ValueError("An XLIFF 2 text must name its target language, but <xliff> has no attribute `trgLang`.")
        self._segments = list[_Segment]()
        for segment in self._find(self.root):
            count = len(self.blocks)
            self.add_run(segment.source + 1, self.end(segment.source), self.add_token, True)
            self._segments += [segment] if len(self.blocks) > count else []

    def render(self, blocks: Sequence[Block]) -> str:
        """Return the text with translated blocks as targets."""
        self._write_attributes(blocks)
        edits = [
            edit
            for segment, place, source, block in zip(self._segments, self._places, self.blocks, blocks, strict=True)
            for edit in self._edits_of(segment, place.start, place.end, self.write(place, source, block))
        ]
        return self.splice(edits)

    def role_of(self, token: Token) -> str:
        """Return the role of an element within a segment, see [`MarkupDocument.role_of`]."""
        attributes = {name: attribute.value for name, attribute in self.attributes(token).items()}
        if self.is_untranslatable(token) or attributes.get("mtype") == "protected":
            return "fixed"
        name = token.local_name
        if name in _INLINE:
            return "inline"
        if name not in _PLACEHOLDERS:
            return "opaque"
        code = attributes.get("equiv-text") or attributes.get("equiv") or attributes.get("disp") or ""
        is_break = attributes.get("ctype") == "lb" or attributes.get("subType") == "xlf:lb"
        return "break" if is_break or _LINE_BREAK.fullmatch(code) else "parting"

    def _find(self, index: int) -> Iterator[_Segment]:
        """Yield the segments in an element that are to be translated."""
        token = self.tokens[index]
        if self.is_untranslatable(token):
            return
        inner = {
            each: self.tokens[each].local_name for each in self.children(index) if self.tokens[each].kind == "open"
        }
        for child, name in inner.items():
            if name == "source" and token.local_name in ("trans-unit", "segment"):
                target = next((each for each, other in inner.items() if other == "target"), None)
                if self.has_text(child) and (target is None or self._is_open(target)):
                    yield _Segment(index, child, target)
            elif name != "alt-trans":
                yield from self._find(child)

    def _is_open(self, target: int) -> bool:
        inner = self.tokens[target + 1 : self.end(target)]
        return not any(token.kind == "open" or self._plain(token).strip() for token in inner)

    def _edits_of(self, segment: _Segment, start: int, end: int, written: str) -> Iterator[tuple[int, int, str]]:
        """Yield the edits of a segment whose source text from `start` to `end` is translated."""
        source, parent = self.tokens[segment.source], self.tokens[segment.parent]
        last = self.tokens[source.after - 1]
        attributes = self._raw_attributes(source)
        attributes.pop("xml:lang", None)
        if segment.target is not None:
            attributes |= self._raw_attributes(self.tokens[segment.target])
        if self._is_new:
            yield self._set_state(parent)
        else:
            attributes |= {name: f'"{value}"' for name, value in _MACHINE_TRANSLATED.items()}
        name = source.name.removesuffix("source") + "target"
        opening = "".join(f" {each}={value}" for each, value in attributes.items())
        content = self.text[source.end : start] + written + self.text[end : last.start]
        target = f"<{name}{opening}>{content}</{name}>"
        if segment.target is not None:
            old = self.tokens[segment.target]
            yield old.start, self.tokens[old.after - 1].end, target
            return
        before = next((each for each in self.children(segment.parent) if self._is_segmented(each)), segment.source)
        at = self.tokens[self.tokens[before].after - 1].end
        first = self.tokens[segment.parent + 1]
        indent = self.text[first.start : first.end] if first.kind == "text" else ""
        yield at, at, target if indent.strip() else indent + target

    def _is_segmented(self, index: int) -> bool:
        return self.tokens[index].kind == "open" and self.tokens[index].local_name == "seg-source"

    def _raw_attributes(self, token: Token) -> dict[str, str]:
        return {name: self.text[each.start : each.end] for name, each in self.attributes(token).items()}

    def _set_state(self, token: Token) -> tuple[int, int, str]:
        state = self.attributes(token).get("state")
        if state is not None:
            return state.start, state.end, '"translated"'
        return token.start + 1 + len(token.name), token.start + 1 + len(token.name), ' state="translated"'


__all__ = ["XliffDocument"]
