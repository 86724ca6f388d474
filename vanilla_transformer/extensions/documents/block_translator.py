"""Translate blocks of text sentence by sentence, with their markup, whose place the links of a
translation tell.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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
from vanilla_transformer.decoding.sentences import Report, Sentence, TranslateSentences, ignore
from vanilla_transformer.decoding.translations import Translation
from vanilla_transformer.errors import UserError
from vanilla_transformer.text.protection import Range, find_protected, merge, overlapping

TranslateTexts = Callable[[list[str]], Sequence[str | Translation]]
_LINE_BREAK = regex.compile(r"[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")


@dataclass
class BlockTranslator:
    """
    Translate blocks.

    The text of a block is split into sentences, and those of all blocks are translated together.
    URLs, placeholders and so on survive, and fixed spans too. Where the spans of a translation
    would cross, only the text around what survives is translated.

    Args:
        translate: Without links between words, these are taken to be in the order of the source.
        splitter: Returns the sentences of a text.
        protect: Whether text survives that [`find_protected`] finds, and formulas such as H₂O,
            besides fixed spans.
    """

    translate: TranslateSentences
    splitter: SentenceSplitter
    protect: bool = True

    def __call__(self, blocks: Sequence[Block]) -> list[Block]:
        """Return the translated blocks, with every span of the source."""
        answers = self._translate(blocks, self.translate)
        crossing = [block for block, answer in zip(blocks, answers, strict=True) if answer is None]
        again = iter(filter(None, self._translate(crossing, self._translate_around)))
        return [next(again) if answer is None else answer for answer in answers]

    def _translate(
        self, blocks: Sequence[Block], translate: TranslateSentences
    ) -> list[Block | None]:
        """Return the translated blocks, or None for one whose spans cannot be nested as in the
        source.
        """
        sentences = [list(self._split(block)) for block in blocks]
        flat = [sentence for _, sentence in chain.from_iterable(sentences)]
        translations = translate(flat)
        if len(translations) != len(flat):
            raise UserError(
                f"`translate` must return {len(flat)} translations, got {len(translations)}."
            )
        rows = iter(translations)
        joined = []
        for block, of_block in zip(blocks, sentences, strict=True):
            pieces = []
            for start, sentence in of_block:
                translation = next(rows)
                line = _on_one_line(translation.text, sentence.text)
                pieces.append((start, sentence, translation._replace(text=line)))
            joined.append(join_block(block, pieces))
        return joined

    def _translate_around(self, sentences: Sequence[Sentence]) -> list[Translation]:
        """Return translations of sentences of which only the text around what survives is
        translated.
        """

        def decode(
            sentences: Sequence[Sentence], options: TranslationOptions, report: Report
        ) -> list[list[Translation]]:
            return [[translation] for translation in self.translate(sentences)]

        search = ProtectedSearch(decode, TranslationOptions(protect=self.protect))
        return [row[0] for row in search.translate_around(sentences)]

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


def keep_spans(translate: TranslateTexts, protect: bool = True) -> TranslateSentences:
    """
    Return a function whose translations keep what must survive, given one that may lose it.

    Where `translate` loses text, it gets the text around that.

    Args:
        translate: Returns the translation of each text, as a string, or as a [`Translation`] with
            links between its words and those of the text.
        protect: As of [`BlockTranslator`].
    """

    def decode(
        sentences: Sequence[Sentence], options: TranslationOptions, report: Report
    ) -> list[list[Translation]]:
        texts = [_LINE_BREAK.sub(" ", sentence.text) for sentence in sentences]
        answers = translate(texts)
        if len(answers) != len(texts):
            raise UserError(
                f"`translate` must return {len(texts)} translations, got {len(answers)}."
            )
        rows = []
        for text, answer in zip(texts, answers, strict=True):
            translation = Translation(answer) if isinstance(answer, str) else answer
            line = _LINE_BREAK.sub(" ", translation.text)
            links = translation.alignment or proportional_links(len(text), line)
            rows.append([translation._replace(text=line, alignment=links)])
        return rows

    search = ProtectedSearch(decode, TranslationOptions(protect=protect))
    return lambda sentences: [row[0] for row in search(sentences, ignore)]


def _on_one_line(text: str, source: str) -> str:
    """Return a text with spaces instead of line breaks that its source does not have."""
    return _LINE_BREAK.sub(lambda match: match[0] if match[0] in source else " ", text)


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
