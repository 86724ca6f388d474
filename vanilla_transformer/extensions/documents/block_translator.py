"""Translate blocks of text sentence by sentence, with their markup, whose place the links of a
translation tell.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import regex

from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.decoding.protection.block_joining import find_breaks, join_block
from vanilla_transformer.decoding.protection.blocks import Block, find_formulas, walk
from vanilla_transformer.decoding.protection.icu_messages import parse_message
from vanilla_transformer.decoding.protection.inline_markup import parse_markup
from vanilla_transformer.decoding.protection.projection import proportional_links
from vanilla_transformer.decoding.protection.protected_search import ProtectedSearch
from vanilla_transformer.decoding.segments import Sentence
from vanilla_transformer.decoding.sentence_splitter import SentenceSplitter, sentence_ranges
from vanilla_transformer.decoding.translations import Link, Translation
from vanilla_transformer.errors import UserError
from vanilla_transformer.text.protection import Range, find_protected, merge, overlapping

# The translation of a text, and its alignment or None.
Answer = tuple[str, Sequence[tuple[int, int, int, int, float]] | None]
Translate = Callable[[list[str]], Sequence[Answer]]
# Return a translation of each text that contains the phrases given for it, or None where there is
# none.
Constrain = Callable[[list[str], list[list[str]]], Sequence[Answer | None]]
_LINE_BREAK = regex.compile(r"[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")


@dataclass
class BlockTranslator:
    """
    Translate blocks.

    The text of a block is split into sentences. [`ProtectedSearch`] translates all sentences of all
    blocks, such that URLs, placeholders and so on survive, and fixed spans too. Where the spans of
    a translation would cross, only the text around what survives is translated.

    Args:
        translate: Returns the translation of each text and its alignment, with character offsets.
            Without one, words are taken to be in the order of the source.
        splitter: Returns the sentences of a text.
        masks: Words that the model copies, such as `<ph0>`.
        constrain: Returns a translation of each text that contains the given phrases.
        protect: Whether text survives that [`find_protected`] finds, and formulas such as H₂O,
            besides fixed spans.
    """

    translate: Translate
    splitter: SentenceSplitter
    masks: Sequence[str] = ()
    constrain: Constrain | None = None
    protect: bool = True

    def __call__(self, blocks: Sequence[Block]) -> list[Block]:
        """Return the translated blocks, with every span of the source."""
        search = ProtectedSearch(
            lambda sentences, options, report: _search(self.translate, sentences),
            TranslationOptions(protect=self.protect),
            self.masks,
            constrain=None if self.constrain is None else partial(_search, self.constrain),
        )
        answers = self._translate(blocks, lambda sentences: search(sentences, lambda done: None))
        crossing = [block for block, answer in zip(blocks, answers, strict=True) if answer is None]
        again = (
            answer
            for answer in self._translate(crossing, search.translate_around)
            if answer is not None
        )
        return [next(again) if answer is None else answer for answer in answers]

    def _translate(
        self,
        blocks: Sequence[Block],
        search: Callable[[list[Sentence]], Sequence[Sequence[Translation]]],
    ) -> list[Block | None]:
        """Return the translated blocks, or None for one whose spans cannot be nested as in the
        source.
        """
        sentences = [list(self._split(block)) for block in blocks]
        rows = iter(search([sentence for of_block in sentences for _, sentence in of_block]))
        return [
            join_block(block, [(start, sentence, next(rows)[0]) for start, sentence in of_block])
            for block, of_block in zip(blocks, sentences, strict=True)
        ]

    def _split(self, block: Block) -> Iterator[tuple[int, Sentence]]:
        """Yield the sentences and their starts.

        None ends in text that is kept; each ends at a break.
        """
        fixed = sorted(
            (span.start, span.end)
            for span in walk(block.spans)
            if span.fixed and span.end > span.start
        )
        formulas = find_formulas(block) if self.protect else []
        for low, high in pairwise([0, *sorted({*find_breaks(block)}), len(block.text)]):
            text = block.text[low:high]
            marked, formulas_here = (
                [
                    (start - low, end - low)
                    for start, end in overlapping((low, high), places)
                    if low <= start and end <= high
                ]
                for places in (fixed, formulas)
            )
            protected = merge([*find_protected(text, self.protect), *formulas_here])
            kept = sorted(
                [
                    *marked,
                    *(
                        piece
                        for protected_range in protected
                        for piece in _without(protected_range, marked)
                    ),
                ]
            )
            others = merge(marked + formulas_here)
            for start, end in merge([*sentence_ranges(text, self.splitter), *marked, *protected]):
                is_plain, part = (
                    self.protect and not overlapping((start, end), others),
                    text[start:end],
                )
                is_parted = is_plain and (parse_message(part) or parse_markup(part))
                inside = [
                    (first - start, last - start) for first, last in overlapping((start, end), kept)
                ]
                yield low + start, Sentence(part, "", (), kept=None if is_parted else inside)


def _search(
    translate: Callable[..., Sequence[Any]],
    sentences: Sequence[Sentence],
    phrases: Sequence[Sequence[str]] | None = None,
) -> Any:
    """Return one translation on one line for each sentence, with links, in a list; None where there
    is none.
    """
    texts = [_LINE_BREAK.sub(" ", sentence.text) for sentence in sentences]
    answers = (
        translate(texts)
        if phrases is None
        else translate(texts, [[*sentence_phrases] for sentence_phrases in phrases])
    )
    if len(answers) != len(texts):
        raise UserError(f"`translate` must return {len(texts)} translations, got {len(answers)}.")
    rows = list[list[Translation] | None]()
    for text, answer in zip(texts, answers, strict=True):
        if answer is None:
            rows.append(None)
            continue
        translation, alignment = answer
        # Without an alignment, words are in the order of the source.
        links = [Link(*link) for link in alignment or ()] or proportional_links(
            len(text), translation
        )
        rows.append([Translation(_LINE_BREAK.sub(" ", translation), alignment=links)])
    return rows


def _without(whole: Range, others: Sequence[Range]) -> Iterator[Range]:
    """Yield the parts of a range that are in none of others, which are in order."""
    start, end = whole
    for low, high in overlapping(whole, others):
        if start < low:
            yield start, low
        start = high
    if start < end:
        yield start, end
