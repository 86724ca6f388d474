"""Translate a block, given the translations of its sentences."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

from vanilla_transformer.decoding.sentences import Sentence
from vanilla_transformer.decoding.translations import Translation, join_pieces
from vanilla_transformer.text.protection import Range, overlapping

from .blocks import Block, walk
from .projection import CrossingSpansError, project, proportional_links


def join_block(
    block: Block, sentences: Sequence[tuple[int, Sentence, Translation]]
) -> Block | None:
    """Return the translation of a block, or None if its spans cannot be nested as in the source."""
    pieces = list[tuple[int, str, Translation]]()
    kept = set[Range]()
    for start, sentence, translation in sentences:
        kept_here = set(sentence.kept or ())
        links = list(translation.alignment)
        if sentence.kept is None:
            # Words are linked also in the syntax of a message, which is linked as a whole.
            links = []
            for first, last, low, high, weight in translation.alignment:
                words = translation.text[low:high]
                for link in proportional_links(last - first, words):
                    links.append(link.shift(first, low)._replace(weight=weight))
        elif all(link[:2] in kept_here for link in links):  # and no words are linked
            for link in proportional_links(len(sentence.text), translation.text):
                if not overlapping(link[:2], sentence.kept):
                    links.append(link)
        translation = translation._replace(alignment=links)
        pieces.append((start, sentence.text, translation))
        kept |= {(start + low, start + high) for low, high in kept_here}
    joined = join_pieces(block.text, pieces)
    is_open = any(translation.is_open for _, _, translation in pieces)
    if joined.text == block.text:  # its markup is where it was, also within words
        return replace(block, is_open=is_open)
    fixed = list[tuple[Range, Range]]()
    for start, end, low, high, _ in joined.alignment:
        if (start, end) in kept:
            fixed.append(((start, end), (low, high)))
    ends, longer = list[int](), [0]
    for start, text, translation in pieces:
        ends.append(start + len(text))
        longer.append(longer[-1] + len(translation.text) - len(text))
    for at in find_breaks(block):
        moved = at + longer[bisect_right(ends, at)]
        fixed.append(((at, at), (moved, moved)))
    try:
        spans = project(block.spans, block.text, joined.text, joined.alignment, fixed)
    except CrossingSpansError:
        return None
    return Block(joined.text, spans, is_open)


def find_breaks(block: Block) -> list[int]:
    """Return where the text of a block is parted."""
    return [span.start for span in walk(block.spans) if span.breaks]
