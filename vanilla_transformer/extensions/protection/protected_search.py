"""
Keep what must survive a translation: URLs, e-mail addresses, placeholders, emoji and long numbers.

They go through the model as masks that it has learned to copy, or as they are if it knows none. A
sentence whose translation lacks one, or has one too often, is translated again by beam search under
the constraint that all appear. Where that fails, too, only the text around them is translated.
Sentences without such text are translated as always. The branches of an ICU message are sentences
by themselves, and so is text between escapes of line breaks.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import itemgetter
from typing import Any

import regex

from vanilla_transformer.decoding.constraints import tokenize_constraint
from vanilla_transformer.decoding.engine.phrase_constraints import ConstraintError, Phrases
from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.decoding.segments import Sentence
from vanilla_transformer.decoding.steps import Decode, Report, split_on_error
from vanilla_transformer.decoding.token_texts import move_tokens
from vanilla_transformer.decoding.translations import Link, Translation, copy_sentence, join_pieces
from vanilla_transformer.text.protection import (
    MASK,
    SIGN,
    Range,
    adds_signs,
    find_masks,
    find_protected,
    find_texts,
    mask,
    overlapping,
)

from .icu_messages import parse_message
from .inline_markup import MarkedText, parse_markup
from .kept_text import has_others, keeps_order, space_gap

# Return the translations of each sentence that have the texts given for it, or None where there are
# none.
Constrain = Callable[
    [Sequence[Sentence], Sequence[Sequence[str]]], Sequence[list[Translation] | None]
]
_LETTER = regex.compile(r"\p{L}")
_MASK_IN_TEXT = regex.compile(rf"\A{MASK.pattern}\s?|\s?{MASK.pattern}")


class _Protected:
    """
    A sentence, and the text in it that must survive.

    Args:
        kept: Places of that text.
        masks: Words that the model copies.
        protect: Whether patterns find such text, see [`find_protected`].

    Attributes:
        is_kept: There are no letters besides the text that must survive.
        shown: The sentence as the model sees it, with masks if there are enough.
        shown_texts: The texts that must survive, as the model sees them.
    """

    def __init__(
        self, sentence: Sentence, kept: Sequence[Range], masks: Sequence[str], protect: bool
    ):
        self._sentence, self._source, self._kept, self._protect = (
            sentence,
            sentence.text,
            kept,
            protect,
        )
        self._kept_texts = _texts_at(self._source, kept)
        self._is_formatted = any(map(SIGN.search, self._kept_texts))
        self.shown, self._places = sentence, kept
        if 0 < len(kept) <= len(masks) and not sentence.phrases:
            text, self._places = mask(sentence.text, kept, masks[: len(kept)])
            self.shown = sentence._replace(text=text, tokens=())
        self.shown_texts = _texts_at(self.shown.text, self._places)
        starts, ends = [start for start, _ in kept], [end for _, end in kept]
        gaps = zip([0, *ends], [*starts, len(self._source)], strict=True)
        self.is_kept = not any(_LETTER.search(self._source, low, high) for low, high in gaps)

    def around(self) -> list[Sentence]:
        """Return the sentences between the text that must survive."""
        pieces = [
            text for _, text, is_kept in self._pieces() if not is_kept and _LETTER.search(text)
        ]
        return [self._sentence._replace(text=text, separator="", tokens=()) for text in pieces]

    def _pieces(self) -> Iterator[tuple[int, str, bool]]:
        """Yield the text that is kept and the text between, each with its start, and whether it is
        kept.
        """
        edges = [0, *(edge for place in self._kept for edge in place), len(self._source)]
        for index, (start, end) in enumerate(pairwise(edges)):
            text = self._source[start:end] if index % 2 else self._source[start:end].strip()
            if text:
                yield self._source.index(text, start), text, bool(index % 2)

    def read(self, row: Sequence[Translation]) -> Sequence[Translation] | None:
        """Return translations of the model with all text that must survive, or None if one of them
        lacks some.
        """
        found = [self._restore(each) for each in row] if self._kept else row
        return None if None in found else found  # type: ignore[return-value]

    def _restore(self, translation: Translation) -> Translation | None:
        """Return a translation with the text that is kept instead of masks, linked with itself;
        None if it is lost.
        """
        source, shown = self._source, translation.text
        found = self._find(translation)
        if found is None:
            return None
        order = sorted(range(len(found)), key=found.__getitem__)
        if not keeps_order(self._kept_texts, order):
            return None
        edges = [0, *(edge for index in order for edge in found[index]), len(shown)]
        gaps = [shown[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True)]
        leads, pieces, moved, start = list[int](), list[str](), list[Range](), 0
        for gap, left, right in zip(gaps, [None, *order], [*order, None], strict=True):
            after = None if left is None else source[self._kept[left][1] :]
            before = None if right is None else source[: self._kept[right][0]]
            pieces.append(space_gap(gap, after, before))
            leads.append(len(pieces[-1].rstrip()) - len(gap.rstrip()))
            start += len(pieces[-1])
            if right is not None:
                pieces.append(self._kept_texts[right])
                moved.append((start, start := start + len(pieces[-1])))
        text, targets = "".join(pieces), dict(zip(order, moved, strict=True))
        if not self._is_whole(text, targets):
            return None
        ends = [found[index] for index in order]
        there = [
            (end, new - end + lead)
            for (_, end), (_, new), lead in zip(ends, moved, leads[1:], strict=True)
        ]
        apart = [
            link
            for link in translation.alignment
            if not overlapping(link[:2], self._places) and not overlapping(link[2:4], ends)
        ]
        links = _move(apart, _shifts(zip(self._places, self._kept, strict=True)), there)
        links += [Link(*self._kept[index], *targets[index], 1.0) for index in order]
        links.sort(key=lambda link: (link.target_start, link.source_start))
        tokens = move_tokens(translation.tokens, shown, text, [*zip(ends, moved, strict=True)])
        return translation._replace(text=text, tokens=tokens, alignment=links)

    def _find(self, translation: Translation) -> list[Range] | None:
        """Return where a translation has the text that must survive; None if it lacks some or has
        some too often.

        The sentence may have the same text as a word elsewhere. If the translation has both, links
        tell them apart.
        """
        found = find_texts(self.shown_texts, translation.text)
        for text, count in Counter(self.shown_texts).items():
            if len(found[text]) == count:
                continue
            kept_spans = []
            for span, shown_text in zip(self._places, self.shown_texts, strict=True):
                if shown_text == text:
                    kept_spans.append(span)
            spans = list(kept_spans)
            for span in find_texts(self.shown_texts, self.shown.text)[text]:
                if not overlapping(span, self._places):
                    spans.append(span)
            if len(found[text]) != len(spans):
                return None
            sources = self._find_sources(found[text], translation)
            order = sorted(range(len(sources)), key=sources.__getitem__)
            in_order = [found[text][index] for index in order]
            target_of = dict(zip(sorted(spans), in_order, strict=True))
            found[text] = [target_of[span] for span in kept_spans]
        return [found[text].pop(0) for text in self.shown_texts]

    def _find_sources(self, spans: Sequence[Range], translation: Translation) -> list[float]:
        """Return where the source of each span of a translation begins, by the link of the highest
        weight or, without one, in proportion to the texts.
        """
        link_at: dict[int, Link] = {}  # of each character
        for link in translation.alignment:
            for position in range(link.target_start, link.target_end):
                if position not in link_at or link.weight > link_at[position].weight:
                    link_at[position] = link
        sources: list[float] = []
        for start, end in spans:
            links = [link_at[position] for position in range(start, end) if position in link_at]
            if links:
                sources.append(max(links, key=lambda link: link.weight).source_start)
            else:
                sources.append(start * len(self.shown.text) / len(translation.text))
        return sources

    def _is_whole(self, text: str, targets: Mapping[int, Range]) -> bool:
        """Return whether a translation has the fields of the source at their places, and no others.

        Neighbors stay neighbors, and each field is one beside other letters and signs, too. Beside
        fields, a sign of one may be part of one, so there are as many as in the source.
        """
        if self._is_formatted and adds_signs(self._source, text):
            return False
        fields = {*_texts_at(self._source, find_protected(self._source, self._protect))}
        found = find_protected(text, self._protect)
        for at, (one, other) in enumerate(pairwise(self._kept)):
            if one[1] == other[0] and targets[at][1] != targets[at + 1][0]:
                return False
        for start, end in targets.values():
            is_field = any(
                low <= start and end <= high for low, high in overlapping((start, end), found)
            )
            if text[start:end] in fields and not is_field:
                return False
        return not has_others(text, found, [*targets.values()])

    def join(self, found: Sequence[Translation] = ()) -> Translation:
        """Return the translation of the sentence, given the ones of the sentences [`around`];
        without, a copy.
        """
        answers, pieces, is_open = iter(found), list[tuple[int, str, Translation]](), False
        for start, text, is_kept in self._pieces():
            answer = copy_sentence(text)
            if is_kept:
                answer = answer._replace(alignment=[Link(0, len(text), 0, len(text), 1.0)])
            elif _LETTER.search(text):
                answer = next(answers)
                places = find_protected(answer.text, self._protect)
                adds = self._is_formatted and adds_signs(text, answer.text)
                is_wrong = adds or has_others(answer.text, places, [])
                is_open = is_open or is_wrong
                if is_wrong or not answer.text.strip():
                    answer = copy_sentence(text, answer.tokens)
                answer = self._space(start, start + len(text), answer)
            pieces.append((start, text, answer))
        joined = join_pieces(self._source, pieces)._replace(is_open=is_open)
        return _join_scores(joined, found)

    def _space(self, start: int, end: int, answer: Translation) -> Translation:
        """Return the translation of a range with spaces where it touches text that is kept, see
        [`space_gap`].
        """
        after = self._source[start:] if any(place[1] == start for place in self._kept) else None
        before = self._source[:end] if any(place[0] == end for place in self._kept) else None
        text = space_gap(answer.text, after, before)
        lead = len(text.rstrip()) - len(answer.text.rstrip())
        links = [link.shift(0, lead) for link in answer.alignment]
        return answer._replace(
            text=text, tokens=move_tokens(answer.tokens, answer.text, text), alignment=links
        )


def _texts_at(text: str, places: Sequence[Range]) -> list[str]:
    return [text[start:end] for start, end in places]


def _shifts(moved: Iterable[tuple[Range, Range]]) -> list[tuple[int, int]]:
    """Return the places from which on a text is shifted, and the offset of each, given ranges that
    are replaced.
    """
    return [
        (old, new - old) for before, after in moved for old, new in zip(before, after, strict=True)
    ]


def _move(
    links: Iterable[Link], source: Sequence[tuple[int, int]], target: Sequence[tuple[int, int]]
) -> list[Link]:
    """Return links in texts that are shifted so."""

    def move(position: int, shifts: Sequence[tuple[int, int]]) -> int:
        last = bisect_right(shifts, position, key=itemgetter(0))
        return position + (shifts[last - 1][1] if last else 0)

    return [
        Link(move(start, source), move(end, source), move(low, target), move(high, target), weight)
        for start, end, low, high, weight in links
    ]


def _join_scores(joined: Translation, found: Sequence[Translation]) -> Translation:
    """Return a joined translation: log-probabilities add up, and the score is the mean, as for
    sentences of a text.
    """
    score = sum(each.score for each in found) / max(1, len(found))
    log_probability = sum(each.log_probability for each in found)
    is_open = joined.is_open or any(each.is_open for each in found)
    return joined._replace(score=score, log_probability=log_probability, is_open=is_open)


# --- The search -----------------------------------------------------------------------------------


@dataclass
class ProtectedSearch:
    """
    Translate sentences such that URLs, placeholders and so on survive: where [`Sentence.kept`]
    says, or else where [`find_protected`] finds them.

    A sentence with a target prefix is translated as it is, and one with constraints of its own
    keeps them even if text is lost then.

    Args:
        decode: The decode of sentences, of which some have no tokens yet.
        options: The options of the request.
        masks: Words that the model copies, such as `<ph0>`.
        marks: The model's own tokens, which are marks for it and no text to keep.
        constrain: The decode of sentences under constraints, if there is one.
        aligns: Whether the model aligns words, which tell the places of markup.
    """

    decode: Decode
    options: TranslationOptions
    masks: Sequence[str] = ()
    marks: Collection[str] = ()
    constrain: Constrain | None = None
    aligns: bool = False

    def __call__(self, sentences: Sequence[Sentence], report: Report) -> list[list[Translation]]:
        """Return the translations of each sentence, best first."""
        parsed = [
            parse_message(each.text) or parse_markup(each.text, self.marks)
            if self.options.protect and not (each.prefix or each.phrases or each.kept is not None)
            else None
            for each in sentences
        ]
        parts = [
            sentence._replace(text=part.text, separator="", tokens=())
            for sentence, whole in zip(sentences, parsed, strict=True)
            for part in (whole.messages() if whole else ())
        ]
        plain = [
            sentence for sentence, whole in zip(sentences, parsed, strict=True) if whole is None
        ]
        aligned = self.options.model_copy(
            update={"return_alignments": self.aligns or self.options.return_alignments}
        )
        rows = iter(self._translate(plain, report))
        of_parts = iter(replace(self, options=aligned)._translate(parts, _ignore))
        if parts:
            report(len(sentences) - len(plain))
        answers = list[list[Translation]]()
        for sentence, whole in zip(sentences, parsed, strict=True):
            if whole is None:
                answers.append(next(rows))
                continue
            joined, texts = list[Translation](), [part.text for part in whole.messages()]
            for found in zip(*(next(of_parts) for _ in whole.messages()), strict=True):
                if isinstance(whole, MarkedText):
                    answer = whole.join(found)
                else:
                    answer, moved = whole.render(iter(found))
                    links = _move(
                        found[0].alignment, _shifts(whole.moved), _shifts(moved)
                    )  # of the first text
                    answer = answer._replace(alignment=links)
                is_copy = [each.text for each in found] == texts
                if is_copy and answer.text != sentence.text:  # which the source writes in two ways
                    answer = copy_sentence(sentence.text, answer.tokens)
                joined.append(_join_scores(answer, found))
            answers.append(joined)
        return answers

    def _translate(self, sentences: Sequence[Sentence], report: Report) -> list[list[Translation]]:
        if not sentences:
            return []
        parts = [self._protect(each) for each in sentences]
        copied = [part.is_kept for part in parts]
        if any(copied):
            report(sum(copied))
        shown = [part.shown for part in parts if not part.is_kept]
        rows = iter(self.decode(shown, self.options, report) if shown else [])
        decoded = [None if part.is_kept else next(rows) for part in parts]
        found = [
            [part.join()] * self.options.count if row is None else part.read(row)
            for part, row in zip(parts, decoded, strict=True)
        ]
        lost = [at for at, row in enumerate(found) if row is None]
        if lost and self.constrain is not None:
            texts = [parts[at].shown_texts for at in lost]
            again = self.constrain([parts[at].shown for at in lost], texts)
            for at, row in zip(lost, again, strict=True):
                found[at] = None if row is None else parts[at].read(row)
        apart = [at for at in lost if found[at] is None and not parts[at].shown.phrases]
        for at, row in zip(
            apart, self.translate_around([sentences[at] for at in apart]), strict=True
        ):
            found[at] = row
        return [[*(row or of_model or ())] for row, of_model in zip(found, decoded, strict=True)]

    def translate_around(self, sentences: Sequence[Sentence]) -> list[list[Translation]]:
        """Return translations of sentences of which only the text around what must survive is
        translated.
        """
        parts = [self._protect(each) for each in sentences]
        pieces = [part.around() for part in parts]
        flat = [piece for some in pieces for piece in some]
        rows = iter(self.decode(flat, self.options, _ignore) if flat else [])
        return [
            [part.join(found) for found in zip(*(next(rows) for _ in some), strict=True)]
            or [part.join()] * self.options.count
            for part, some in zip(parts, pieces, strict=True)
        ]

    def _protect(self, sentence: Sentence) -> _Protected:
        text, protect = sentence.text, self.options.protect
        kept = [] if sentence.prefix else sentence.kept
        if kept is None:
            kept = [
                place
                for place in find_protected(text, protect)
                if text[slice(*place)] not in self.marks
            ]
        return _Protected(sentence, kept, self.masks, protect)


def _ignore(done: int) -> None:
    """Report nothing: these sentences are parts of others."""


def keep_protected(
    decode: Decode,
    tokenizer: Any,
    uses_masks: bool = True,
    can_constrain: bool = True,
    aligns: bool = False,
) -> Decode:
    """
    Return a decode whose translations keep what must survive, see [`ProtectedSearch`].

    Args:
        tokenizer: The tokenizer of the model, with the masks that it knows.
        uses_masks: Whether whatever reads the sentences knows the masks.
        can_constrain: Whether an engine decodes the model.
        aligns: Whether it also aligns words.
    """

    def decode_protected(
        sentences: Sequence[Sentence], options: TranslationOptions, report: Report
    ) -> list[list[Translation]]:
        is_beam_search = can_constrain and not options.do_sample and options.mbr is None

        def constrain(
            some: Sequence[Sentence], texts: Sequence[Sequence[str]]
        ) -> list[list[Translation] | None]:
            phrases = list[Phrases]()
            for kept in texts:
                try:
                    phrases.append([tokenize_constraint(tokenizer, text) for text in kept])
                except ConstraintError:  # there are no tokens for one of them
                    phrases.append([])
            rows = zip(some, phrases, strict=True)
            known = [each._replace(phrases=[*each.phrases, *its]) for each, its in rows if its]
            beams = options.with_beams()
            found = iter(
                split_on_error(lambda part: decode(part, beams, _ignore), known) if known else []
            )
            return [next(found) if its else None for its in phrases]

        masks = find_masks(tokenizer)
        # Tokens that a model reads as marks, such as `<term>` and the tags of sources, and not as
        # text
        marks = {*getattr(tokenizer, "get_added_vocab", dict)()} - {*masks}
        shown = masks if uses_masks else ()
        constrained = constrain if is_beam_search else None
        return ProtectedSearch(decode, options, shown, marks, constrained, aligns)(
            sentences, report
        )

    return decode_protected


def remove_masks(decode: Decode) -> Decode:
    """Return a decode whose translations have no masks but the ones of their sources, each with a
    space beside it.
    """

    def decode_without(
        sentences: Sequence[Sentence], options: TranslationOptions, report: Report
    ) -> list[list[Translation]]:
        answers = list[list[Translation]]()
        for sentence, row in zip(sentences, decode(sentences, options, report), strict=True):
            answers.append([])
            for answer in row:
                found = _MASK_IN_TEXT.finditer(answer.text)
                places = [match.span() for match in found if match[0].strip() not in sentence.text]
                if places:
                    text, removed = mask(answer.text, places, [""] * len(places))
                    blank, _ = mask(
                        answer.text, places, [" " * (end - start) for start, end in places]
                    )
                    links = [
                        link for link in answer.alignment if not overlapping(link[2:4], places)
                    ]
                    links = _move(links, [], _shifts(zip(places, removed, strict=True)))
                    tokens = move_tokens(answer.tokens, blank, text)
                    answer = answer._replace(text=text, tokens=tokens, alignment=links)
                answers[-1].append(answer)
        return answers

    return decode_without
