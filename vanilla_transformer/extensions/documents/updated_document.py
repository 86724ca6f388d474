"""A document of which only what changed since an earlier version is translated."""

from collections.abc import Sequence

from vanilla_transformer.decoding.protection.blocks import Block, Document
from vanilla_transformer.text.changes import describe_changes


class UpdatedDocument(Document):
    """
    The blocks of a text that an earlier version does not have.

    The others are written as in the translation of that version, byte for byte. A block that
    changed has its earlier version and the translation of it.

    Args:
        source: The text.
        previous: The version and its translation, or one document with both. The blocks of a
            translation belong to the ones of its source by the keys of messages or, without keys,
            by their order.

    Attributes:
        summary: Numbers of blocks: those that were kept, that changed and that are new.
    """

    def __init__(self, source: Document, *previous: Document):
        self._source, self.directions = source, source.directions
        self._changes = source.update(*previous)
        self._numbers, self.blocks = list[int](), list[Block]()
        for number, block in enumerate(source.blocks):
            if block.written is None:
                self._numbers.append(number)
                self.blocks.append(block)

    def render(self, blocks: Sequence[Block]) -> str:
        """Return the text with translated blocks."""
        rows = [*self._source.blocks]
        for number, block in zip(self._numbers, blocks, strict=True):
            rows[number] = block
        doubts = dict[int, Sequence[str]]()
        for number, names in self.doubts.items():
            doubts[self._numbers[number]] = names
        self._source.doubts = doubts
        text = self._source.render(rows)
        counts = describe_changes(self._changes, "segments")
        self.summary = f"{counts} {self._source.summary}".rstrip()
        return text
