"""Translate blocks of text sentence by sentence, with their markup, whose place the links of a translation tell."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import regex

from vanilla_transformer.decoding.answers import Link, Translation, join_pieces
from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.decoding.segments import Sentence
from vanilla_transformer.decoding.sentence_splitter import SentenceSplitter, sentence_ranges
from vanilla_transformer.decoding.steps import Report
from vanilla_transformer.errors import UserError
from vanilla_transformer.text.protection import Range, find_protected, merge, overlaps

from .blocks import Block, find_formulas
from .projection import CrossingSpansError, project, proportional_links

# The translation of a text, and its alignment or None.
Answer = tuple[str, Sequence[tuple[int, int, int, int, float]] | None]
Translate = Callable[[list[str]], Sequence[Answer]]
# Return a translation of each text that contains the phrases given for it, or None where there is none.
Constrain = Callable[[list[str], list[list[str]]], Sequence[Answer | None]]
Search = Callable[[list[Sentence]], Sequence[Sequence[Translation]]]
_LINE_BREAK = regex.compile(r"[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")


@dataclass
class BlockTranslator:
    """
    Translate blocks.

    The text of a block is split into sentences. [`ProtectedSearch`] translates all sentences of all blocks, such that
    URLs, placeholders and so on survive, and fixed spans too. Where the spans of a translation would cross, only the
    text around what survives is translated.

    Args:
        translate: Returns the translation of each text and its alignment, with character offsets. Without one, words
            are taken to be in the order of the source.
        splitter: Returns the sentences of a text.
        masks: Words that the model copies, such as `<ph0>`.
        constrain: Returns a translation of each text that contains the given phrases.
        protect: Whether text survives that [`find_protected`] finds, and formulas such as H₂O, besides fixed spans.
    """

    translate: Translate
    splitter: SentenceSplitter
    masks: Sequence[str] = ()
    constrain: Constrain | None = None
    protect: bool = True

    def __call__(self, blocks: Sequence[Block]) -> list[Block]:
        """Return the translated blocks, with every span of the source."""
        from vanilla_transformer.extensions.protection.protected_search import ProtectedSearch

        constrain = None if self.constrain is None else self._constrain
        options = TranslationOptions(protect=self.protect)
        search = ProtectedSearch(self._decode, options, self.masks, constrain=constrain)
        found = self._translate(blocks, lambda sentences: search(sentences, lambda done: None))
        crossing = [block for block, answer in zip(blocks, found, strict=True) if answer is None]
        again = (answer for answer in self._translate(crossing, search.translate_around) if answer is not None)
        return [next(again) if answer is None else answer for answer in found]

    def _translate(self, blocks: Sequence[Block], search: Search) -> list[Block | None]:
        """Return the translated blocks, or None for one whose spans cannot be nested as in the source."""
        sentences = [list(self._split(block)) for block in blocks]
        rows = iter(search([sentence for of_block in sentences for _, sentence in of_block]))
        return [
            _join(block, [(start, sentence, next(rows)[0]) for start, sentence in of_block])
            for block, of_block in zip(blocks, sentences, strict=True)
        ]

    def _split(self, block: Block) -> Iterator[tuple[int, Sentence]]:
        """Yield the sentences and their starts. None ends in text that is kept; each ends at a break."""
        from vanilla_transformer.extensions.protection.icu_messages import parse_message

        fixed = [(span.start, span.end) for span in block.walk() if span.fixed and span.end > span.start]
        formulas = find_formulas(block) if self.protect else []
        for low, high in pairwise([0, *sorted(set(_breaks(block))), len(block.text)]):
            text = block.text[low:high]
            own, its_formulas = _inside(fixed, low, high), _inside(formulas, low, high)
            found = merge([*find_protected(text, self.protect), *its_formulas])
            ranges = merge([*sentence_ranges(text, self.splitter), *own, *found])
            apart = [piece for place in found for piece in _outside(place, own)]
            for start, end in ranges:
                inside = [(first - start, last - start) for first, last in sorted(own + apart) if start <= first < end]
                is_plain = not overlaps((start, end), own + its_formulas)
                is_message = self.protect and is_plain and parse_message(text[start:end])
                kept = None if is_message else inside
                yield low + start, Sentence(text[start:end], "", (), kept=kept)

    def _decode(
        self, sentences: Sequence[Sentence], options: TranslationOptions, report: Report
    ) -> list[list[Translation]]:
        texts = [_on_one_line(each.text) for each in sentences]
        return [[_read(*row)] for row in _pairs(texts, self.translate(texts))]

    def _constrain(
        self, sentences: Sequence[Sentence], phrases: Sequence[Sequence[str]]
    ) -> list[list[Translation] | None]:
        assert self.constrain is not None
        texts = [_on_one_line(each.text) for each in sentences]
        found = _pairs(texts, self.constrain(texts, [[*own] for own in phrases]))
        return [None if answer is None else [_read(text, answer)] for text, answer in found]


def _pairs(texts: Sequence[str], answers: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    if len(answers) != len(texts):
        raise UserError(f"`translate` must return {len(texts)} translations, got {len(answers)}.")
    return zip(texts, answers, strict=True)


def _read(text: str, answer: Answer) -> Translation:
    """Return a translation on one line, with links: without an alignment, words are in the order of the source."""
    translation, alignment = answer
    links = [Link(*link) for link in alignment or ()] or proportional_links(len(text), translation)
    return Translation(_on_one_line(translation), alignment=links)


def _join(block: Block, sentences: Sequence[tuple[int, Sentence, Translation]]) -> Block | None:
    """Return the translation of a block, or None if its spans cannot be nested as in the source."""
    pieces = [(start, sentence.text, _aligned(sentence, found)) for start, sentence, found in sentences]
    target, links = join_pieces(block.text, pieces)
    if target == block.text:
        return block  # its markup is where it was, also within words
    kept = {(start + low, start + high) for start, sentence, _ in sentences for low, high in sentence.kept or ()}
    fixed = [((start, end), (low, high)) for start, end, low, high, _ in links if (start, end) in kept]
    fixed += [((at, at), (_place_of(at, block.text, pieces),) * 2) for at in _breaks(block)]
    try:
        return Block(target, project(block.spans, block.text, target, links, fixed))
    except CrossingSpansError:
        return None


def _aligned(sentence: Sentence, found: Translation) -> Translation:
    """Return a translation with links of words also in the syntax of a message, which is linked as a whole."""
    if sentence.kept is not None:
        return found
    links = [
        each.shift(start, low)._replace(weight=weight)
        for start, end, low, high, weight in found.alignment
        for each in proportional_links(end - start, found.text[low:high])
    ]
    return found._replace(alignment=links)


def _inside(places: Sequence[Range], low: int, high: int) -> list[Range]:
    """Return the places in a part of a text, relative to its start."""
    return [(start - low, end - low) for start, end in places if low <= start and end <= high]


def _outside(place: Range, own: Sequence[Range]) -> Iterator[Range]:
    """Yield the parts of a range that are in none of others."""
    start, end = place
    for low, high in sorted(own):
        if low < end and start < high:
            if start < low:
                yield start, low
            start = max(start, high)
    if start < end:
        yield start, end


def _breaks(block: Block) -> list[int]:
    return [span.start for span in block.walk() if span.breaks]


def _place_of(position: int, source: str, pieces: Sequence[tuple[int, str, Translation]]) -> int:
    """Return where a position of the source between two sentences is in the translation."""
    before = [(start, text, found) for start, text, found in pieces if start + len(text) <= position]
    return len(join_pieces(source[:position], before)[0])


def _on_one_line(text: str) -> str:
    return _LINE_BREAK.sub(" ", text)
