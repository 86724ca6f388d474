"""
Keep what must survive a translation: URLs, e-mail addresses, placeholders, emoji and long numbers.

They go through the model as masks that it has learned to copy, or as they are if it knows none. A sentence whose
translation lacks one, or has one too often, is translated again by beam search under the constraint that all appear.
Where that fails, too, only the text around them is translated. Sentences without such text are translated as always.
The branches of an ICU message are sentences by themselves.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import regex

from vanilla_transformer.decoding.answers import Link, Translation, copy_sentence, join_pieces
from vanilla_transformer.decoding.constraints import tokenize_constraint
from vanilla_transformer.decoding.engine.phrase_constraints import ConstraintError, Phrases
from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.decoding.segments import Sentence
from vanilla_transformer.decoding.steps import Decode, Report, split_on_error
from vanilla_transformer.text.protection import Range, find_masks, find_protected, locate, mask, overlaps

from .icu_messages import Message, parse_message
from .kept_text import find_invented_masks, find_own_tokens, has_others, keeps_order, space_gap

_Rows = dict[int, list[Translation]]  # by the indices of their sentences
# Return the translations of each sentence that have the texts given for it, or None where there are none.
Constrain = Callable[[Sequence[Sentence], Sequence[Sequence[str]]], Sequence[list[Translation] | None]]
_LETTER = regex.compile(r"\p{L}")


class _Protected:
    """
    A sentence, and the text in it that must survive.

    Args:
        kept: Places of that text.
        masks: Words that the model copies.
        protect: Whether patterns find such text, see [`find_protected`].

    Attributes:
        shown: The sentence as the model sees it, with masks if there are enough.
    """

    def __init__(self, sentence: Sentence, kept: Sequence[Range], masks: Sequence[str], protect: bool):
        self.sentence, self._kept, self._protect = sentence, kept, protect
        self.shown, self._places = sentence, kept
        if 0 < len(kept) <= len(masks) and not sentence.phrases:
            text, self._places = mask(sentence.text, kept, masks[: len(kept)])
            self.shown = sentence._replace(text=text, tokens=())

    @property
    def is_kept(self) -> bool:
        """Whether there are no letters besides the text that must survive."""
        return not _LETTER.search(mask(self.sentence.text, self._kept, [" "] * len(self._kept))[0])

    @property
    def shown_texts(self) -> list[str]:
        """The texts that must survive, as the model sees them."""
        return _texts_at(self.shown.text, self._places)

    def read(self, row: Sequence[Translation]) -> list[Translation] | None:
        """Return translations of the model with all text that must survive, or None if one of them lacks some."""
        found = [self._restore(each) for each in row] if self._kept else row
        return [each for each in found if each is not None] if None not in found else None

    def _restore(self, translation: Translation) -> Translation | None:
        """Return a translation with the text that is kept instead of masks, linked with itself; None if it is lost."""
        source, shown = self.sentence.text, translation.text
        found = locate(self.shown_texts, shown)
        if found is None:
            return None
        order = sorted(range(len(found)), key=found.__getitem__)
        kept_texts = _texts_at(source, self._kept)
        if not keeps_order(kept_texts, order):
            return None
        edges = [0, *(edge for index in order for edge in found[index]), len(shown)]
        gaps = [shown[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True)]
        leads, pieces, moved = list[int](), list[str](), list[Range]()
        for gap, left, right in zip(gaps, [None, *order], [*order, None], strict=True):
            after = None if left is None else source[self._kept[left][1] :]
            before = None if right is None else source[: self._kept[right][0]]
            lead, gap = space_gap(gap, after, before)
            leads.append(lead)
            pieces.append(gap)
            if right is not None:
                start = sum(map(len, pieces))
                pieces.append(kept_texts[right])
                moved.append((start, start + len(kept_texts[right])))
        text, targets = "".join(pieces), dict(zip(order, moved, strict=True))
        if not self._is_whole(text, targets):
            return None
        ends = [found[index] for index in order]
        there = [(end, new - end + lead) for (_, end), (_, new), lead in zip(ends, moved, leads[1:], strict=True)]
        apart = [
            link
            for link in translation.alignment
            if not overlaps(link[:2], self._places) and not overlaps(link[2:4], found)
        ]
        links = _move(apart, _shifts(zip(self._places, self._kept, strict=True)), there)
        links += [Link(*self._kept[index], *targets[index], 1.0) for index in order]
        links.sort(key=lambda link: (link.target_start, link.source_start))
        return translation._replace(text=text, alignment=links)

    def _is_whole(self, text: str, targets: Mapping[int, Range]) -> bool:
        """Return whether a translation has the fields of the source at their places, and no others.

        Neighbors stay neighbors, and each field is one beside other letters and signs, too.
        """
        kept, fields = self._kept, {*_texts_at(self.sentence.text, find_protected(self.sentence.text, self._protect))}
        found = find_protected(text, self._protect)
        return (
            all(
                one[1] != other[0] or targets[at][1] == targets[at + 1][0]
                for at, (one, other) in enumerate(pairwise(kept))
            )
            and not has_others(text, found, [*targets.values()])
            and all(
                any(low <= start and end <= high for low, high in found)
                for start, end in targets.values()
                if text[start:end] in fields
            )
        )

    def around(self) -> list[Sentence]:
        """Return the sentences between the text that must survive."""
        pieces = [text for _, text, is_kept in self._pieces() if not is_kept and _LETTER.search(text)]
        return [self.sentence._replace(text=text, separator="", tokens=()) for text in pieces]

    def join(self, found: Sequence[Translation] = ()) -> Translation:
        """Return the translation of the sentence, given the ones of the sentences [`around`]; without, a copy."""
        answers, pieces = iter(found), list[tuple[int, str, Translation]]()
        for start, text, is_kept in self._pieces():
            if is_kept:
                each = Translation(text, alignment=[Link(0, len(text), 0, len(text), 1.0)])
            else:
                each = self._take(text, next(answers)) if _LETTER.search(text) else copy_sentence(text)
            pieces.append((start, text, each))
        return _join_scores(*join_pieces(self.sentence.text, pieces), found)

    def _take(self, text: str, found: Translation) -> Translation:
        """Return the translation of a piece, or the piece itself if that has text to keep or is empty."""
        others = has_others(found.text, find_protected(found.text, self._protect), [])
        is_other = any(locate([kept], found.text) for kept in _texts_at(self.sentence.text, self._kept))
        return copy_sentence(text) if others or is_other or not found.text.strip() else found

    def _pieces(self) -> Iterator[tuple[int, str, bool]]:
        """Yield the text that is kept and the text between, each with its start, and whether it is kept."""
        source = self.sentence.text
        edges = [0, *(edge for place in self._kept for edge in place), len(source)]
        for index, (start, end) in enumerate(pairwise(edges)):
            text = source[start:end] if index % 2 else source[start:end].strip()
            if text:
                yield source.index(text, start), text, bool(index % 2)


def _texts_at(text: str, places: Sequence[Range]) -> list[str]:
    return [text[start:end] for start, end in places]


def _shifts(moved: Iterable[tuple[Range, Range]]) -> list[tuple[int, int]]:
    """Return the places from which on a text is shifted, and the offset of each, given ranges that are replaced."""
    return [(old, new - old) for before, after in moved for old, new in zip(before, after, strict=True)]


def _move(links: Iterable[Link], source: Sequence[tuple[int, int]], target: Sequence[tuple[int, int]]) -> list[Link]:
    """Return links in texts that are shifted so."""

    def move(position: int, shifts: Sequence[tuple[int, int]]) -> int:
        return position + next((offset for place, offset in reversed(shifts) if position >= place), 0)

    return [
        Link(move(start, source), move(end, source), move(low, target), move(high, target), weight)
        for start, end, low, high, weight in links
    ]


def _join_scores(text: str, links: Sequence[Link], found: Sequence[Translation]) -> Translation:
    """Return a joined translation: log-probabilities add up, and the score is the mean, as for sentences of a text."""
    score = sum(each.score for each in found) / max(1, len(found))
    log_probability = sum(each.log_probability for each in found)
    values = [value for each in found for value in each.token_log_probabilities]
    tokens = [token for each in found for token in each.tokens]
    return Translation(text, score, log_probability, values, tokens, links)


def _join_message(message: Message, rows: Iterator[Sequence[Translation]]) -> list[Translation]:
    """Return the translations of a message, given the ones of its texts. Its links are the ones of its first text."""
    source, joined = _shifts(message.moved), list[Translation]()
    for found in zip(*(next(rows) for _ in message.messages()), strict=True):
        text, moved = message.render(each.text for each in found)
        joined.append(_join_scores(text, _move(found[0].alignment, source, _shifts(moved)), found))
    return joined


# --- The search -----------------------------------------------------------------------------------------------------


@dataclass
class ProtectedSearch:
    """
    Translate sentences such that URLs, placeholders and so on survive: where [`Sentence.kept`] says, or else where
    [`find_protected`] finds them.

    A sentence with a target prefix is translated as it is, and one with constraints of its own keeps them even if text
    is lost then.

    Args:
        decode: The decode of sentences, of which some have no tokens yet.
        options: The options of the request.
        masks: Words that the model copies, such as `<ph0>`.
        marks: The model's own tokens, which are marks for it and no text to keep.
        constrain: The decode of sentences under constraints, if there is one.
    """

    decode: Decode
    options: TranslationOptions
    masks: Sequence[str] = ()
    marks: Collection[str] = ()
    constrain: Constrain | None = None

    def __call__(self, sentences: Sequence[Sentence], report: Report) -> list[list[Translation]]:
        """Return the translations of each sentence, best first."""
        parsed = [self._parse(each) for each in sentences]
        branches = [
            sentence._replace(text=branch.text, separator="", tokens=())
            for sentence, message in zip(sentences, parsed, strict=True)
            for branch in (message.messages() if message else ())
        ]
        plain = [sentence for sentence, message in zip(sentences, parsed, strict=True) if message is None]
        rows, of_branches = iter(self._translate(plain, report)), iter(self._translate(branches, _ignore))
        if branches:
            report(len(sentences) - len(plain))
        return [
            _join_message(message, of_branches) if message else next(rows)
            for sentence, message in zip(sentences, parsed, strict=True)
        ]

    def _parse(self, sentence: Sentence) -> Message | None:
        is_given = sentence.prefix or sentence.phrases or sentence.kept is not None
        return None if is_given or not self.options.protect else parse_message(sentence.text)

    def _translate(self, sentences: Sequence[Sentence], report: Report) -> list[list[Translation]]:
        if not sentences:
            return []
        parts = dict(enumerate(map(self._protect, sentences)))
        found: _Rows = {at: [part.join()] * self.options.count for at, part in parts.items() if part.is_kept}
        if found:
            report(len(found))
        shown = {at: part.shown for at, part in parts.items() if at not in found}
        rows = dict(zip(shown, self.decode([*shown.values()], self.options, report) if shown else [], strict=True))
        found |= _read(parts, rows)
        lost = {at: part for at, part in parts.items() if at not in found}
        if lost and self.constrain is not None:
            texts = [part.shown_texts for part in lost.values()]
            again = self.constrain([part.shown for part in lost.values()], texts)
            found |= _read(parts, {at: row for at, row in zip(lost, again, strict=True) if row is not None})
        apart = [at for at, part in lost.items() if at not in found and not part.shown.phrases]
        found |= zip(apart, self.translate_around([sentences[at] for at in apart]), strict=True)
        return [found.get(at) or rows[at] for at in parts]

    def translate_around(self, sentences: Sequence[Sentence]) -> list[list[Translation]]:
        """Return translations of sentences of which only the text around what must survive is translated."""
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
            kept = [place for place in find_protected(text, protect) if text[slice(*place)] not in self.marks]
        return _Protected(sentence, kept, self.masks, protect)


def _read(parts: Mapping[int, _Protected], rows: Mapping[int, Sequence[Translation]]) -> _Rows:
    """Return the translations with all text that must survive."""
    read = {at: parts[at].read(row) for at, row in rows.items()}
    return {at: row for at, row in read.items() if row is not None}


def _ignore(done: int) -> None:
    """Report nothing: these sentences are parts of others."""


def keep_protected(decode: Decode, tokenizer: Any, uses_masks: bool = True, can_constrain: bool = True) -> Decode:
    """
    Return a decode whose translations keep what must survive, see [`ProtectedSearch`].

    Args:
        tokenizer: The tokenizer of the model, with the masks that it knows.
        uses_masks: Whether whatever reads the sentences knows the masks.
        can_constrain: Whether an engine decodes the model.
    """

    def decode_protected(
        sentences: Sequence[Sentence], options: TranslationOptions, report: Report
    ) -> list[list[Translation]]:
        is_beam_search = can_constrain and not options.do_sample and options.mbr is None
        constrain = partial(_decode_with, decode, tokenizer, options) if is_beam_search else None
        masks = find_masks(tokenizer) if uses_masks else ()
        search = ProtectedSearch(decode, options, masks, find_own_tokens(tokenizer), constrain)
        return search(sentences, report)

    return decode_protected


def remove_masks(decode: Decode) -> Decode:
    """Return a decode whose translations have no masks but the ones of their sources."""

    def decode_without(
        sentences: Sequence[Sentence], options: TranslationOptions, report: Report
    ) -> list[list[Translation]]:
        rows = decode(sentences, options, report)
        return [
            [_without_masks(each, sentence.text) for each in row]
            for sentence, row in zip(sentences, rows, strict=True)
        ]

    return decode_without


def _without_masks(translation: Translation, source: str) -> Translation:
    if not (places := find_invented_masks(translation.text, source)):
        return translation
    text, removed = mask(translation.text, places, [""] * len(places))
    links = [link for link in translation.alignment if not overlaps(link[2:4], places)]
    return translation._replace(text=text, alignment=_move(links, [], _shifts(zip(places, removed, strict=True))))


def _decode_with(
    decode: Decode,
    tokenizer: Any,
    options: TranslationOptions,
    sentences: Sequence[Sentence],
    texts: Sequence[Sequence[str]],
) -> list[list[Translation] | None]:
    """Return the translations with some texts by beam search, or None where there are none, or no tokens for them."""
    phrases = [_tokenize(tokenizer, own) for own in texts]
    known = [each._replace(phrases=[*each.phrases, *own]) for each, own in zip(sentences, phrases, strict=True) if own]
    options = options.with_beams()
    rows = iter(split_on_error(lambda some: decode(some, options, _ignore), known) if known else [])
    return [next(rows) if own else None for own in phrases]


def _tokenize(tokenizer: Any, texts: Sequence[str]) -> Phrases:
    try:
        return [tokenize_constraint(tokenizer, text) for text in texts]
    except ConstraintError:
        return []
