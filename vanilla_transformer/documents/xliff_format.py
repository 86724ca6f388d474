"""XLIFF 1.2 and 2: the segments of translation tools."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

from vanilla_transformer.text.xml_tree import LANG, local_name, parse_xml

from .blocks import Block, Markup, build_block, content, fill, has_text, render_block
from .xml_format import is_untranslatable, write_xml

_INLINE = {"g", "mrk", "pc"}  # all other elements of a segment are code


class XliffDocument:
    """
    The segments of an XLIFF text that have no target yet, or an empty one.

    Their targets are written, with the codes of the source and the state of a machine translation that needs a review.
    Units with `translate="no"` are left as they are.

    Raises:
        ValueError: The text is not XLIFF, or has no target language where its version requires one.
        OSError: lxml is not installed.
    """

    def __init__(self, text: str):
        self._text, self._tree = text, parse_xml(text)
        root = self._tree.getroot()
        if local_name(root) != "xliff":
            raise ValueError(f"An XLIFF text must have the root element <xliff>, got <{local_name(root)}>.")
        self._is_new = (root.get("version") or "1.2").startswith("2")
        if self._is_new and not root.get("trgLang"):
            raise ValueError("An XLIFF 2 text must name its target language, but <xliff> has no attribute `trgLang`.")
        self._segments = [segment for segment in _sources(root) if _is_open(segment[1])]
        self.blocks = list[Block]()
        self._targets = list[Any]()
        for source, _ in self._segments:
            target = deepcopy(source)
            target.tag, target.tail = source.tag.replace("source", "target"), None
            target.attrib.pop(LANG, None)
            self._targets.append(target)
            self.blocks.append(build_block(content(target), Markup(_role_of, keeps_space=True)))

    def render(self, blocks: Sequence[Block]) -> str:
        """Return the text with translated blocks as targets."""
        for (source, old), target, block in zip(self._segments, self._targets, blocks, strict=True):
            fill(target, render_block(block))
            parent = source.getparent()
            if old is not None:
                target.attrib.update(old.attrib)
                target.tail = old.tail
                parent.replace(old, target)
            else:
                before = next((child for child in parent if local_name(child) == "seg-source"), source)
                target.tail = before.tail
                before.addnext(target)
                before.tail = source.getparent().text if (source.getparent().text or "").isspace() else before.tail
            if self._is_new:
                parent.set("state", "translated")
            else:
                target.set("state", "needs-review-translation")
                target.set("state-qualifier", "mt-suggestion")
        return write_xml(self._tree, self._text)


def _sources(element: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the sources with text under an element and their targets or None, without those not to be translated."""
    if is_untranslatable(element):
        return
    for child in element:
        if callable(child.tag) or local_name(child) == "alt-trans":
            continue
        if local_name(child) == "source" and local_name(element) in ("trans-unit", "segment"):
            if has_text(content(child)):
                yield child, next((other for other in element if local_name(other) == "target"), None)
        else:
            yield from _sources(child)


def _is_open(target: Any) -> bool:
    return target is None or not (len(target) or (target.text or "").strip())


def _role_of(element: Any) -> str:
    if is_untranslatable(element) or element.get("mtype") == "protected":
        return "fixed"
    return "inline" if local_name(element) in _INLINE else "opaque"


__all__ = ["XliffDocument"]
