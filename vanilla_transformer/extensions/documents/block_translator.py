"""
Translate blocks of text sentence by sentence, with their markup, and keep what must survive.

The steps are the ones of `decoding/protected_search.py`, whose parts of sentences this uses. They differ in what they
carry: there n-best lists with tokens and scores, here one translation whose links place the markup.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import regex

from vanilla_transformer.decoding.alignments import Link
from vanilla_transformer.decoding.protected_search import Part, join_parts, overlaps, texts_at
from vanilla_transformer.decoding.sentence_splitter import SentenceSplitter, sentence_ranges
from vanilla_transformer.text.icu_messages import parse_message
from vanilla_transformer.text.protection import Range, can_number, find_protected, merge

from .blocks import Block, find_formulas
from .projection import CrossingSpansError, project, proportional_links

# The translation of a text, and its alignment or None.
Answer = tuple[str, Sequence[tuple[int, int, int, int, float]] | None]
Translate = Callable[[list[str]], Sequence[Answer]]
# Return a translation of each text that contains the phrases given for it, or None where there is none.
Constrain = Callable[[list[str], list[list[str]]], Sequence[Answer | None]]
_LINE_BREAK = regex.compile(r"[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")


class _Input(NamedTuple):
    """A sentence as the model sees it: its text, and where in it the text is that must survive."""

    sentence: Part
    text: str
    places: list[Range]


@dataclass
class BlockTranslator:
    """
    Translate blocks.

    The text of a block is split into sentences. All sentences of all blocks are translated by one call of
    `translate`. URLs, placeholders and so on (see [`find_protected`]) and fixed spans go through the model as masks
    that it has learned to copy, or as they are if it knows none. If one of them is missing in a translation, the
    sentence is translated again by `constrain`. If it is still missing, only the text around them is translated, and
    they are put back in the order of the source.

    Args:
        translate: Returns the translation of each text and its alignment, with character offsets. Without one, words
            are taken to be in the order of the source.
        splitter: Returns the sentences of a text.
        masks: Words that the model copies, such as `<ph0>`.
        constrain: Returns a translation of each text that contains the given phrases.
        protect: The patterns of text that survives, see [`find_protected`], besides fixed spans and formulas such as
            H₂O.
    """

    translate: Translate
    splitter: SentenceSplitter
    masks: Sequence[str] = ()
    constrain: Constrain | None = None
    protect: bool | str = True

    def __call__(self, blocks: Sequence[Block]) -> list[Block]:
        """Return the translated blocks, with every span of the source."""
        sentences = [list(self._split(block)) for block in blocks]
        self._translate([sentence for of_block in sentences for sentence in of_block])
        answers = [_join(block, of_block) for block, of_block in zip(blocks, sentences, strict=True)]
        crossing = [index for index, answer in enumerate(answers) if answer is None]
        self._translate_around([sentence for index in crossing for sentence in sentences[index]])
        for index in crossing:
            answers[index] = _join(blocks[index], sentences[index])
        return [answer for answer in answers if answer is not None]

    def _split(self, block: Block) -> Iterator[Part]:
        """Yield the sentences. None ends in text that is kept; each ends at a break."""
        fixed = [(span.start, span.end) for span in block.walk() if span.fixed and span.end > span.start]
        formulas = find_formulas(block) if self.protect else []
        for low, high in pairwise([0, *sorted(set(_breaks(block))), len(block.text)]):
            text = block.text[low:high]
            own, its_formulas = _inside(fixed, low, high), _inside(formulas, low, high)
            found = merge([*find_protected(text, self.protect), *its_formulas])
            ranges = merge([*sentence_ranges(text, self.splitter), *own, *found])
            apart = [piece for place in found for piece in _outside(place, own)]
            may_number = can_number(self.protect) and len(ranges) == 1 and text == block.text
            for start, end in ranges:
                inside = [(first - start, last - start) for first, last in sorted(own + apart) if start <= first < end]
                is_plain = not overlaps((start, end), own + its_formulas)
                message = parse_message(text[start:end], self.protect) if is_plain else None
                yield Part(low + start, text[start:end], inside, self.protect, may_number, message)

    def _translate(self, sentences: Sequence[Part]) -> None:
        """Translate sentences, and each branch of an ICU message by itself."""
        branches = [
            [Part(0, each.text, find_protected(each.text, self.protect), self.protect) for each in message.messages()]
            if (message := sentence.message)
            else [sentence]
            for sentence in sentences
        ]
        self._translate_sentences([part for parts in branches for part in parts])
        for sentence, parts in zip(sentences, branches, strict=True):
            if sentence.message:
                sentence.translation = sentence.message.render(part.translation for part in parts)
                sentence.links = proportional_links(len(sentence.text), sentence.translation)

    def _translate_sentences(self, sentences: Sequence[Part]) -> None:
        """Translate sentences. Text that is kept goes through the model."""
        inputs = []
        for sentence in sentences:
            if sentence.is_translatable:
                inputs.append(_Input(sentence, *sentence.masked(self.masks)))
            else:
                sentence.keep()
        answers = self._call([_on_one_line(each.text) for each in inputs])
        lost = [
            each for each, answer in zip(inputs, answers, strict=True) if not each.sentence.restore(*each[1:], *answer)
        ]
        self._translate_around([each.sentence for each in self._constrain(lost)])

    def _constrain(self, inputs: list[_Input]) -> list[_Input]:
        """Translate sentences under the constraint that what must survive appears. Return those without success."""
        if self.constrain is None or not inputs:
            return inputs
        texts = [_on_one_line(each.text) for each in inputs]
        answers = self.constrain(texts, [texts_at(each.text, each.places) for each in inputs])
        _check_count(texts, answers)
        rows = zip(inputs, texts, answers, strict=True)
        return [
            each
            for each, text, answer in rows
            if answer is None or not each.sentence.restore(*each[1:], *_read(text, answer))
        ]

    def _translate_around(self, sentences: Sequence[Part]) -> None:
        """Translate sentences again such that no kept text can be lost: only the pieces between are translated."""
        pieces = [list(sentence.pieces()) for sentence in sentences]
        texts = [piece.text for of_sentence in pieces for piece in of_sentence if piece.is_translatable]
        answers = iter(self._call([_on_one_line(text) for text in texts]))
        for sentence, of_sentence in zip(sentences, pieces, strict=True):
            for piece in of_sentence:
                if piece.is_translatable:
                    piece.take(*next(answers), sentence.kept_texts)
                else:
                    piece.keep()
            joined = join_parts(sentence.text, of_sentence)
            sentence.translation, sentence.links, sentence.fixed = joined

    def _call(self, texts: list[str]) -> list[tuple[str, list[Link]]]:
        if not texts:
            return []
        answers = list(self.translate(texts))
        _check_count(texts, answers)
        return [_read(text, answer) for text, answer in zip(texts, answers, strict=True)]


def _check_count(texts: Sequence[str], answers: Sequence[Any]) -> None:
    if len(answers) != len(texts):
        raise ValueError(f"`translate` must return {len(texts)} translations, got {len(answers)}.")


def _read(text: str, answer: Answer) -> tuple[str, list[Link]]:
    """Return a translation on one line, and links: without an alignment, words are in the order of the source."""
    translation, alignment = answer
    links = [Link(*link) for link in alignment or ()]
    return _on_one_line(translation), links or proportional_links(len(text), translation)


def _join(block: Block, sentences: Sequence[Part]) -> Block | None:
    """Return the translation of a block, or None if its spans cannot be nested as in the source."""
    target, links, fixed = join_parts(block.text, sentences)
    if target == block.text:
        return block  # its markup is where it was, also within words
    fixed += [((at, at), (_place_of(at, block.text, sentences),) * 2) for at in _breaks(block)]
    try:
        return Block(target, project(block.spans, block.text, target, links, fixed))
    except CrossingSpansError:
        return None


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


def _place_of(position: int, source: str, sentences: Sequence[Part]) -> int:
    """Return where a position of the source between two sentences is in the translation."""
    before = [sentence for sentence in sentences if sentence.start + len(sentence.text) <= position]
    return len(join_parts(source[:position], before)[0])


def _on_one_line(text: str) -> str:
    return _LINE_BREAK.sub(" ", text)


__all__ = ["BlockTranslator", "Constrain", "Translate"]
