"""Translate blocks of text sentence by sentence, with their markup, and keep what must survive."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import regex

from vanilla_transformer.decoding.alignments import Link
from vanilla_transformer.decoding.sentence_splitter import SentenceSplitter, sentence_ranges
from vanilla_transformer.text.protection import Range, find_protected, locate, mask, merge

from .blocks import Block
from .projection import CrossingSpansError, project, proportional_links

# The translation of a text, and its alignment or None.
Answer = tuple[str, Sequence[tuple[int, int, int, int, float]] | None]
Translate = Callable[[list[str]], Sequence[Answer]]
# Return a translation of each text that contains the phrases given for it, or None where there is none.
Constrain = Callable[[list[str], list[list[str]]], Sequence[Answer | None]]
_LETTER = regex.compile(r"\p{L}")
_LINE_BREAK = regex.compile(r"[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")


@dataclass
class _Sentence:
    """
    A sentence of a block.

    Attributes:
        start: Its position in the block.
        kept: Where in `text` characters begin and end that must survive.
        fixed: `(start, end)` of each of them in `text` and in `translation`.
    """

    start: int
    text: str
    kept: list[Range]
    translation: str = ""
    links: list[Link] = field(default_factory=list)
    fixed: list[tuple[Range, Range]] = field(default_factory=list)

    def keep(self) -> None:
        """Take the text as its own translation."""
        self.translation = self.text
        self.links = [Link(index, index + 1, index, index + 1, 1.0) for index in range(len(self.text))]
        self.fixed = [(place, place) for place in self.kept]

    @property
    def kept_texts(self) -> list[str]:
        return [self.text[start:end] for start, end in self.kept]

    @property
    def is_translatable(self) -> bool:
        return bool(_LETTER.search(mask(self.text, self.kept, [" "] * len(self.kept))[0]))


class _Input(NamedTuple):
    """A sentence as the model sees it: its text, and where in it the text is that must survive."""

    sentence: _Sentence
    text: str
    places: list[Range]

    @property
    def kept_texts(self) -> list[str]:
        return [self.text[start:end] for start, end in self.places]


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
    """

    translate: Translate
    splitter: SentenceSplitter
    masks: Sequence[str] = ()
    constrain: Constrain | None = None

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

    def _split(self, block: Block) -> Iterator[_Sentence]:
        """Yield the sentences. None ends in text that is kept; each ends at a break."""
        fixed = [(span.start, span.end) for span in block.walk() if span.fixed and span.end > span.start]
        for low, high in pairwise([0, *sorted(set(_breaks(block))), len(block.text)]):
            text = block.text[low:high]
            own = [(start - low, end - low) for start, end in fixed if low <= start and end <= high]
            found = [place for place in find_protected(text) if not _overlaps(place, own)]
            for start, end in merge([*sentence_ranges(text, self.splitter), *own, *found]):
                inside = [(first - start, last - start) for first, last in sorted(own + found) if start <= first < end]
                yield _Sentence(low + start, text[start:end], inside)

    def _translate(self, sentences: Sequence[_Sentence]) -> None:
        """Translate sentences. Text that is kept goes through the model."""
        inputs = []
        for sentence in sentences:
            if sentence.is_translatable:
                inputs.append(_Input(sentence, *self._mask(sentence)))
            else:
                sentence.keep()
        answers = self._call([_on_one_line(each.text) for each in inputs])
        lost = [each for each, answer in zip(inputs, answers, strict=True) if not _restore(*each, *answer)]
        self._translate_around([each.sentence for each in self._constrain(lost)])

    def _constrain(self, inputs: list[_Input]) -> list[_Input]:
        """Translate sentences under the constraint that what must survive appears. Return those without success."""
        if self.constrain is None or not inputs:
            return inputs
        texts = [_on_one_line(each.text) for each in inputs]
        answers = self.constrain(texts, [each.kept_texts for each in inputs])
        _check_count(texts, answers)
        rows = zip(inputs, texts, answers, strict=True)
        return [each for each, text, answer in rows if answer is None or not _restore(*each, *_read(text, answer))]

    def _mask(self, sentence: _Sentence) -> tuple[str, list[Range]]:
        if not sentence.kept or len(sentence.kept) > len(self.masks):
            return sentence.text, sentence.kept
        return mask(sentence.text, sentence.kept, self.masks[: len(sentence.kept)])

    def _translate_around(self, sentences: Sequence[_Sentence]) -> None:
        """Translate sentences again such that no kept text can be lost: only the pieces between are translated."""
        pieces = [list(_pieces(sentence)) for sentence in sentences]
        texts = [piece.text for of_sentence in pieces for piece in of_sentence if piece.is_translatable]
        answers = iter(self._call([_on_one_line(text) for text in texts]))
        for sentence, of_sentence in zip(sentences, pieces, strict=True):
            for piece in of_sentence:
                if piece.is_translatable:
                    piece.translation, piece.links = next(answers)
                else:
                    piece.keep()
            joined = _concatenate(sentence.text, of_sentence)
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


def _restore(sentence: _Sentence, text: str, places: list[Range], translation: str, links: list[Link]) -> bool:
    """Take a translation of `text`, and replace its masks by the text that is kept. Return False if one is lost."""
    found = locate([text[start:end] for start, end in places], translation)
    if found is None:
        return False
    order = sorted(range(len(found)), key=found.__getitem__)
    texts = [sentence.kept_texts[index] for index in order]
    sentence.translation, moved = mask(translation, [found[index] for index in order], texts)
    targets = dict(zip(order, moved, strict=True))
    sentence.fixed = [(sentence.kept[index], targets[index]) for index in range(len(order))]
    source = _shifts(places, sentence.kept)
    target = _shifts([found[index] for index in order], moved)
    sentence.links = [
        Link(_shift(start, source), _shift(end, source), _shift(low, target), _shift(high, target), weight)
        for start, end, low, high, weight in links
        if not _overlaps((start, end), places) and not _overlaps((low, high), found)
    ]
    return True


def _shifts(before: Sequence[Range], after: Sequence[Range]) -> list[tuple[int, int]]:
    return [(old, new - old) for (_, old), (_, new) in zip(before, after, strict=True)]


def _shift(position: int, shifts: Sequence[tuple[int, int]]) -> int:
    """Return where a position is after replacements, each given by the old position of its end and the offset."""
    return position + next((offset for end, offset in reversed(shifts) if position >= end), 0)


def _pieces(sentence: _Sentence) -> Iterator[_Sentence]:
    """Yield the text that is kept and the text between, without white space around it."""
    edges = [0, *(edge for place in sentence.kept for edge in place), len(sentence.text)]
    for index, (start, end) in enumerate(pairwise(edges)):
        text = sentence.text[start:end]
        if index % 2:
            yield _Sentence(start, text, [(0, len(text))])
        elif text.strip():
            yield _Sentence(start + len(text) - len(text.lstrip()), text.strip(), [])


def _concatenate(source: str, parts: Sequence[_Sentence]) -> tuple[str, list[Link], list[tuple[Range, Range]]]:
    """Join the translations of the parts of a text, with the white space that is between them in the source."""
    target, end = "", 0
    links, fixed = list[Link](), list[tuple[Range, Range]]()
    for part in parts:
        target += source[end : part.start]
        links += [link.shift(part.start, len(target)) for link in part.links]
        fixed += [(_moved(one, part.start), _moved(other, len(target))) for one, other in part.fixed]
        target += part.translation
        end = part.start + len(part.text)
    return target + source[end:], links, fixed


def _moved(place: Range, offset: int) -> Range:
    return place[0] + offset, place[1] + offset


def _join(block: Block, sentences: Sequence[_Sentence]) -> Block | None:
    """Return the translation of a block, or None if its spans cannot be nested as in the source."""
    target, links, fixed = _concatenate(block.text, sentences)
    fixed += [((at, at), (_place_of(at, block.text, sentences),) * 2) for at in _breaks(block)]
    try:
        return Block(target, project(block.spans, block.text, target, links, fixed))
    except CrossingSpansError:
        return None


def _breaks(block: Block) -> list[int]:
    return [span.start for span in block.walk() if span.breaks]


def _place_of(position: int, source: str, sentences: Sequence[_Sentence]) -> int:
    """Return where a position of the source between two sentences is in the translation."""
    before = [sentence for sentence in sentences if sentence.start + len(sentence.text) <= position]
    return len(_concatenate(source[:position], before)[0])


def _overlaps(place: Sequence[int], others: Sequence[Range]) -> bool:
    return any(place[0] < end and start < place[1] for start, end in others)


def _on_one_line(text: str) -> str:
    return _LINE_BREAK.sub(" ", text)


__all__ = ["BlockTranslator", "Constrain", "Translate"]
