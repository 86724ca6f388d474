"""SubRip subtitles (.srt)."""

import re
import textwrap
from collections.abc import Sequence
from itertools import islice
from typing import Any

from vanilla_transformer.import_utils import requires_extra
from vanilla_transformer.text.languages import NO_DIRECTION, Direction

from .blocks import BYTE_ORDER_MARK, Block, Span, SpanBuilder, find_line_end, restore_spaces

_TAG = re.compile(r"<(/?)([a-z]+)(?:\s[^<>]*)?>|\{\\[^{}]*\}", re.IGNORECASE)
_WORD = re.compile(rf"(?:(?:{_TAG.pattern})\s+)*(?:{_TAG.pattern}|\S)+", re.IGNORECASE | re.ASCII)  # with its tags
_DASH = re.compile(r"\s*[-‐–—]\s*")
_DIALOGUE = re.compile(r"\n(?=\s*(?:<[^<>]*>)*\s*[-‐–—])")


class SrtDocument:
    """
    The lines of speech of a SubRip text. Each is translated by itself and wrapped to as many lines as before.

    Args:
        direction: Is not used: subtitles name no languages.

    Raises:
        ValueError: The text is not SubRip.
        OSError: srt is not installed.
    """

    def __init__(self, text: str, direction: Direction = NO_DIRECTION):
        with requires_extra("documents", "Translating subtitles"):
            import srt
        self._srt, self._line_end = srt, find_line_end(text)
        self._mark, self._end = BYTE_ORDER_MARK * text.startswith(BYTE_ORDER_MARK), text[len(text.rstrip()) :]
        text = text.removeprefix(BYTE_ORDER_MARK).replace("\r\n", "\n")
        try:
            self._cues: list[Any] = list(srt.parse(text))
        except srt.SRTParseError as error:
            raise ValueError(f"The text must be SubRip subtitles: {error}.") from None
        self._speeches = [_DIALOGUE.split(cue.content) for cue in self._cues]
        self.blocks = [_block(speech) for speeches in self._speeches for speech in speeches]

    def render(self, blocks: Sequence[Block]) -> str:
        """Return the text with translated blocks."""
        translations = iter(blocks)
        for cue, speeches in zip(self._cues, self._speeches, strict=True):
            cue.content = "\n".join(_wrap(_render(next(translations)), speech.count("\n") + 1) for speech in speeches)
        return self._mark + self._srt.compose(self._cues, reindex=False, eol=self._line_end).rstrip() + self._end


def _block(speech: str) -> Block:
    """Return the text of a speech. A tag that has no partner is a mark without text."""
    builder, dash = SpanBuilder(), _DASH.match(speech)
    end = dash.end() if dash else 0
    if dash:
        builder.add_mark([dash[0], ""])
    for tag in _TAG.finditer(speech, end):
        builder.add_text(speech[end : tag.start()])
        end, name = tag.end(), (tag[2] or "").lower()
        if tag[1]:
            span = builder.close(name)
            if span is None:
                builder.add_mark([tag[0], ""])
            else:
                span.payload[1] = tag[0]
        elif name:
            builder.open(name, [tag[0], ""])
        else:
            builder.add_mark([tag[0], ""])
    builder.add_text(speech[end:])
    return builder.finish()


def _render(block: Block) -> str:
    block = restore_spaces(block)

    def write(spans: Sequence[Span], start: int, end: int) -> str:
        pieces = []
        for span in spans:
            opening, closing = span.payload
            pieces += [block.text[start : span.start], opening, write(span.children, span.start, span.end), closing]
            start = span.end
        return "".join([*pieces, block.text[start:end]])

    return write(block.spans, 0, len(block.text))


def _wrap(text: str, count: int) -> str:
    """Wrap a text to `count` lines of about the same length without tags, or to fewer if it has too few words."""
    words = [match[0].replace("\n", " ") for match in _WORD.finditer(text)]
    seen = " ".join("x" * max(1, len(_TAG.sub("", word).strip())) for word in words)
    for width in range(max(1, -(-len(seen) // count)), len(seen) + 1):
        lines = textwrap.wrap(seen, width, break_long_words=False)
        if len(lines) <= count:
            left = iter(words)
            return "\n".join(" ".join(islice(left, len(line.split()))) for line in lines)
    return text


__all__ = ["SrtDocument"]
