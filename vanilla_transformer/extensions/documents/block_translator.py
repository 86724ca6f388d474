"""Translate blocks of text sentence by sentence, with their markup, whose place the links of a
translation tell.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise

import regex

from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.decoding.protection.block_joining import find_breaks, join_block
from vanilla_transformer.decoding.protection.blocks import Block, find_formulas, walk
from vanilla_transformer.decoding.protection.icu_messages import parse_message
from vanilla_transformer.decoding.protection.inline_markup import parse_markup
from vanilla_transformer.decoding.protection.projection import proportional_links
from vanilla_transformer.decoding.protection.protected_search import ProtectedSearch
from vanilla_transformer.decoding.sentence_splitter import SentenceSplitter, sentence_ranges
from vanilla_transformer.decoding.sentences import (
    Draft,
    Report,
    Sentence,
    TranslateSentences,
    ignore,
)
from vanilla_transformer.decoding.translations import Link, Translation
from vanilla_transformer.errors import UserError
from vanilla_transformer.text.changes import DRAFT_BIAS, KEPT, Segment, find_changes
from vanilla_transformer.text.protection import Range, find_protected, merge, overlapping

from .wrapped_text import wrap_block

_LINE_BREAK = regex.compile(r"[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")


@dataclass
class BlockTranslator:
    """
    Translate blocks.

    The text of a block is split into sentences. [`ProtectedSearch`] translates all sentences of all
    blocks, such that URLs, placeholders and so on survive, and fixed spans too. Where the spans of
    a translation would cross, only the text around what survives is translated.

    Args:
        translate: Translates sentences. Where it loses text that must survive, it gets the text
            around that. Without an alignment, words are taken to be in the order of the source.
        splitter: Returns the sentences of a text.
        protect: Whether text survives that [`find_protected`] finds, and formulas such as H₂O,
            besides fixed spans.
        find_warnings: Returns the warnings about a translation, given the source and the links.

    Attributes:
        doubts: The warnings about the blocks of the last call, by the numbers of these.
    """

    translate: TranslateSentences
    splitter: SentenceSplitter
    protect: bool = True
    find_warnings: Callable[[str, str, Sequence[Link]], list[str]] = lambda *_: []
    doubts: dict[int, list[str]] = field(default_factory=dict, init=False)

    def __call__(self, blocks: Sequence[Block]) -> list[Block]:
        """Return the translated blocks, with every span of the source."""
        search = ProtectedSearch(self._decode, TranslationOptions(protect=self.protect))
        numbered, self.doubts = dict(enumerate(blocks)), {}
        answers = self._translate(numbered, lambda sentences: search(sentences, ignore))
        crossing = {number: numbered[number] for number in numbered if answers[number] is None}
        answers |= self._translate(crossing, search.translate_around)
        self.doubts = {number: names for number, names in self.doubts.items() if names}
        return [answer for answer in answers.values() if answer is not None]

    def _translate(
        self,
        blocks: Mapping[int, Block],
        search: Callable[[list[Sentence]], Sequence[Sequence[Translation]]],
    ) -> dict[int, Block | None]:
        """Return the translated blocks, or None for one whose spans cannot be nested as in the
        source.
        """
        sentences = [list(self._draft(block)) for block in blocks.values()]
        flat = list[Sentence]()
        for _, sentence, known in chain.from_iterable(sentences):
            if known is None:
                flat.append(sentence)
        rows = iter(search(flat))
        joined = {}
        for (number, block), of_block in zip(blocks.items(), sentences, strict=True):
            pieces = list[tuple[int, Sentence, Translation]]()
            for start, sentence, known in of_block:
                pieces.append((start, sentence, known or next(rows)[0]))
            answer = join_block(block, pieces)
            joined[number] = answer and wrap_block(block, answer)
            names = dict[str, None]()
            for _, sentence, (text, *_, links) in pieces:
                names |= dict.fromkeys(self.find_warnings(sentence.text, text, links))
            self.doubts[number] = [*names]
        return joined

    def _draft(self, block: Block) -> Iterator[tuple[int, Sentence, Translation | None]]:
        """Yield the sentences of a block and their starts, and the translation of a sentence that
        did not change in a text without markup.

        The translation of the earlier version of another sentence is its draft: that of the whole
        block, if this does not have as many sentences.
        """
        sentences = [*self._split(block)]
        if block.earlier is None:
            for start, sentence in sentences:
                yield start, sentence, None
            return
        sources, drafts = map(self._sentences_of, block.earlier)
        whole, are_paired = (block.earlier[0], " ".join(drafts)), len(sources) == len(drafts)
        pairs = list(zip(sources if are_paired else [""] * len(drafts), drafts, strict=True))
        new = [Segment(sentence.text, sentence.text) for _, sentence in sentences]
        changes = find_changes(new, [Segment(text, text) for text in sources])
        for at, ((start, sentence), change) in enumerate(zip(sentences, changes, strict=True)):
            kind, number = change
            pair = known = None
            if number is not None:
                pair = pairs[number] if are_paired else whole
            elif len(drafts) == len(sentences):
                pair = pairs[at]
            elif not sources:
                pair = whole
            if pair is not None:
                before, after = pair
                draft = Draft(after, DRAFT_BIAS, before).with_values(sentence.text)
                sentence = sentence._replace(draft=draft)
                if kind == KEPT and are_paired and not block.spans:
                    links = proportional_links(len(sentence.text), after)
                    known = Translation(after, alignment=links)
            yield start, sentence, known

    def _sentences_of(self, text: str) -> list[str]:
        ranges = sentence_ranges(text, self.splitter) if text else ()
        return [text[start:end] for start, end in ranges]

    def _decode(
        self, sentences: Sequence[Sentence], options: TranslationOptions, report: Report
    ) -> list[list[Translation]]:
        """Return one translation on one line for each sentence, with links, in a list."""
        lines = []
        for sentence in sentences:
            lines.append(sentence._replace(text=_LINE_BREAK.sub(" ", sentence.text)))
        translations = self.translate(lines)
        if len(translations) != len(lines):
            raise UserError(
                f"`translate` must return {len(lines)} translations, got {len(translations)}."
            )
        rows = []
        for sentence, translation in zip(lines, translations, strict=True):
            text = _LINE_BREAK.sub(" ", translation.text)
            links = translation.alignment or proportional_links(len(sentence.text), text)
            rows.append([translation._replace(text=text, alignment=links)])
        return rows

    def _split(self, block: Block) -> Iterator[tuple[int, Sentence]]:
        """Yield the sentences and their starts.

        None ends in text that is kept; each ends at a break.
        """
        fixed = []
        for span in walk(block.spans):
            if span.fixed and span.end > span.start:
                fixed.append((span.start, span.end))
        fixed.sort()
        formulas = find_formulas(block) if self.protect else []
        for low, high in pairwise([0, *sorted({*find_breaks(block)}), len(block.text)]):
            text = block.text[low:high]
            marked = _inside(fixed, low, high)
            others = marked + _inside(formulas, low, high)
            protected = merge([*find_protected(text, self.protect), *others[len(marked) :]])
            kept = list(marked)
            for protected_range in protected:
                kept += _without(protected_range, marked)
            kept.sort()
            others = merge(others)
            for start, end in merge([*sentence_ranges(text, self.splitter), *marked, *protected]):
                part = text[start:end]
                is_plain = self.protect and not overlapping((start, end), others)
                if is_plain and (parse_message(part) or parse_markup(part)):
                    # The branches and texts in it are sentences.
                    yield low + start, Sentence(part, "", ())
                    continue
                inside = []
                for first, last in overlapping((start, end), kept):
                    inside.append((first - start, last - start))
                yield low + start, Sentence(part, "", (), kept=inside)


def _inside(ranges: Sequence[Range], low: int, high: int) -> list[Range]:
    """Return the ranges that are whole in a part of a text, from its start."""
    inside = []
    for start, end in overlapping((low, high), ranges):
        if low <= start and end <= high:
            inside.append((start - low, end - low))
    return inside


def _without(whole: Range, others: Sequence[Range]) -> Iterator[Range]:
    """Yield the parts of a range that are in none of others, which are in order."""
    start, end = whole
    for low, high in overlapping(whole, others):
        if start < low:
            yield start, low
        start = high
    if start < end:
        yield start, end
