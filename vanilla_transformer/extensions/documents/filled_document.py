"""A translation of messages that gets what it lacks, and stays as it is elsewhere."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from vanilla_transformer.decoding.protection.blocks import (
    LINE_END,
    Block,
    Document,
    leave_open,
    summarize,
    unify_line_ends,
)
from vanilla_transformer.errors import UserError
from vanilla_transformer.text.changes import Key, Segment
from vanilla_transformer.text.languages import CATEGORIES
from vanilla_transformer.text.protection import SIGN, Range, merge, overlapping

from .message_keys import Path
from .source_text import Edit, SourceDocument

_PLURAL = re.compile(rf"(?:{'|'.join(CATEGORIES)})\Z")
_SHOWN = 3  # names in a summary
_NEW_LINE = "\ud800"  # in text that is added; no text that was read has it


def _find_changed(segments: Sequence[Segment], earlier: Mapping[Key, Segment]) -> set[Path]:
    """Return the keys of messages that an earlier version has with another text."""
    known, changed = {path for path, *_ in earlier}, set[Path]()
    for segment in segments:
        before = earlier.get(segment.key) if segment.key else segment
        is_same = before is not None and before.written == segment.written
        if segment.key and segment.key[0] in known and not is_same:
            changed.add(segment.key[0])
    return changed


class FilledDocument(Document):
    r"""
    The messages of a text that an existing translation lacks, or has without text.

    They are written where the source has them: after the nearest message before them that the
    translation has, with their comments. All else of the translation stays, byte for byte.

    Args:
        source, existing: Documents of the same format, whose lines end in `\n`.
        text: The text of the existing translation as it was read.
        earlier: The source of the existing translation. What changed since is translated, too.

    Attributes:
        summary: Numbers of messages: translated ones, and those that the source does not have.
    """

    def __init__(
        self,
        source: SourceDocument,
        existing: SourceDocument,
        text: str,
        earlier: SourceDocument | None = None,
    ):
        self._source, self._existing, self._text = source, existing, text
        if existing.text.strip():
            source.sample = existing.text
        sources, translations = source.read_entries(), existing.read_entries()
        segments = source.segments()
        before = dict[Key, Segment]()
        for segment in earlier.segments() if earlier else ():
            if segment.key:
                before[segment.key] = segment
        self._changed = _find_changed(segments, before)
        # Where entries end, and where the next one of a group begins
        ends, following = dict[Path, int](), dict[Path, int]()
        for path, entry in reversed(translations.items()):
            following.setdefault(path, entry.content)
            if path:
                ends[path] = following.setdefault(path[:-1], translations[path[:-1]].content)
                following[path[:-1]] = entry.start
        for form in source.plurals:
            missing = form.missing.items()
            form.missing = {name: path for name, path in missing if path not in translations}
        taken = set[Path]()
        # Places in the translation, the part of the source for each, and whether that is added
        self._parts = list[tuple[Range, Range, bool]]()
        for path, entry in sources.items():
            other, group = translations.get(path), path[:-1]
            if other is None or group in taken:
                if group not in taken:
                    position = following[group]
                    self._parts.append(((position, position), (entry.start, entry.end), True))
                taken.add(path)
                continue
            if other.is_group != entry.is_group:
                raise UserError(f"{'.'.join(path)} must be a group where the source has one.")
            if path:
                following[group] = ends[path]
            if path in self._changed or (other.is_empty and not entry.is_empty):
                taken.add(path)
                self._parts.append((other.value, entry.value, False))
        self._kept = list[str]()
        for path, entry in translations.items():
            # Languages have other plurals.
            plural = _PLURAL.sub("other", path[-1]) if path else ""
            if {path, (*path[:-1], plural)}.isdisjoint(sources) and not entry.is_group:
                self._kept.append(".".join(path))
        ranges = merge(of_source for _, of_source, _ in self._parts)
        self._numbers, self.blocks = list[int](), list[Block]()
        texts = {segment.key: segment.text for segment in existing.segments()}
        for number, start in enumerate(source.starts):
            if overlapping((start, start + 1), ranges):
                key, block = segments[number].key, source.blocks[number]
                if key in before and key in texts:
                    block = replace(block, earlier=(before[key].text, texts[key]))
                self._numbers.append(number)
                self.blocks.append(block)

    def render(self, blocks: Sequence[Block]) -> str:
        """Return the translation with translated blocks."""
        blocks = leave_open(self.blocks, blocks, self._source.signs or SIGN)
        translated = dict(enumerate(self._source.blocks)) | dict(
            zip(self._numbers, blocks, strict=True)
        )
        self._source.render([*translated.values()])
        self.summary = "No message is missing, so the file stays as it is."
        if self._parts:
            count = sum(block.is_open for block in blocks)
            kinds = "missing or changed" if self._changed else "missing"
            done = f"Translated {len(blocks) - count} of {len(blocks)} {kinds} messages."
            self.summary = summarize(done, count)
        if self._kept:
            names = ", ".join(self._kept[:_SHOWN]) + ", …" * (len(self._kept) > _SHOWN)
            self.summary += f" Kept, but not in the source: {len(self._kept)} ({names})."
        edits = list[Edit]()
        added = ""
        for (start, end), of_source, is_added in self._parts:
            new = self._source.slice(*of_source)
            if is_added:
                new = self._separate(new, start)
            added += new
            edits.append((start, end, new.replace("\n", _NEW_LINE)))
        for start, end, new in self._existing.declare(added, self._source):
            edits.append((start, end, new.replace("\n", _NEW_LINE)))
        mark, line_end, _ = unify_line_ends(self._text)
        line_ends = iter(re.findall(LINE_END, self._text))
        filled = re.sub("\n", lambda _: next(line_ends), self._existing.splice(edits))
        return mark + filled.replace(_NEW_LINE, line_end)

    def _separate(self, text: str, position: int) -> str:
        """Return an entry with what separates it from the text around it."""
        separator = self._source.separator
        if separator:
            text = text.removeprefix(separator)
            if self._existing.text[position - 1] == "{":
                return text + separator
            return separator + text
        if not position:
            return text.strip("\n") + "\n"
        return text if text[0].isspace() else f"\n{text}"
