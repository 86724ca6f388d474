"""
Keep what must survive a translation: URLs, e-mail addresses, placeholders, emoji and long numbers.

They go through the model as masks that it has learned to copy, or as they are if it knows none. A sentence whose
translation lacks one, or has one too often, is translated again by beam search under the constraint that all appear.
Where that fails, too, only the text around them is translated. Sentences without such text are translated as always.
The branches of an ICU message are sentences by themselves.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import regex

from vanilla_transformer.text.icu_messages import Message, parse_message
from vanilla_transformer.text.protection import (
    Range,
    arrange,
    can_number,
    find_masks,
    find_others,
    find_own_tokens,
    find_protected,
    locate,
    mask,
    space_gap,
)

from .alignments import Link
from .answers import Translation
from .constraints import tokenize_constraint
from .engine.phrase_constraints import ConstraintError
from .options import TranslationOptions
from .segments import Encode, Sentence
from .steps import Decode, Report, decode_constrained

_Rows = dict[int, list[Translation]]  # by the indices of their sentences
_LETTER = regex.compile(r"\p{L}")
_WORD = re.compile(r"\S+")


@dataclass
class Part:
    """
    A part of a text, and its translation.

    Attributes:
        start: Its position in the text.
        kept: Places in `text` where characters begin and end that must survive.
        protect: The patterns of such text, see [`find_protected`].
        may_number: Whether `%d` and `%s` may become `%1$d` and `%2$s`, to change places.
        message: Its branches, if it is an ICU message.
        fixed: `(start, end)` of each of them in `text` and in `translation`.
    """

    start: int
    text: str
    kept: list[Range]
    protect: bool | str = True
    may_number: bool = False
    message: Message | None = None
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
        """The texts that must survive."""
        return texts_at(self.text, self.kept)

    @property
    def is_translatable(self) -> bool:
        """Whether there are letters besides the text that must survive."""
        return bool(_LETTER.search(mask(self.text, self.kept, [" "] * len(self.kept))[0]))

    def masked(self, masks: Sequence[str]) -> tuple[str, list[Range]]:
        """Return the text as the model sees it, with masks if there are enough, and where kept text is in it."""
        if not self.kept or len(self.kept) > len(masks):
            return self.text, self.kept
        return mask(self.text, self.kept, masks[: len(self.kept)])

    def restore(self, shown: str, places: Sequence[Range], translation: str, links: Sequence[Link]) -> bool:
        """
        Take a translation, and replace its masks by the text that is kept. Return False if one is lost.

        Args:
            shown, places: What [`masked`] returned.
            links: Links of `shown` and its translation.
        """
        if not self.kept:
            self.translation, self.links = translation, list(links)
            return True
        found = locate(texts_at(shown, places), translation)
        if found is None:
            return False
        order = sorted(range(len(found)), key=found.__getitem__)
        kept_texts = arrange(self.kept_texts, order, self.may_number)
        if kept_texts is None:
            return False
        edges = [0, *(edge for index in order for edge in found[index]), len(translation)]
        gaps = [translation[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True)]
        leads, pieces, moved = list[int](), list[str](), list[Range]()
        for gap, left, right in zip(gaps, [None, *order], [*order, None], strict=True):
            after = None if left is None else self.text[self.kept[left][1] :]
            before = None if right is None else self.text[: self.kept[right][0]]
            lead, gap = space_gap(gap, after, before)
            leads.append(lead)
            pieces.append(gap)
            if right is not None:
                start = sum(map(len, pieces))
                pieces.append(kept_texts[right])
                moved.append((start, start + len(kept_texts[right])))
        self.translation = "".join(pieces)
        targets = dict(zip(order, moved, strict=True))
        if any(
            one[1] == other[0] and targets[at][1] != targets[at + 1][0]
            for at, (one, other) in enumerate(pairwise(self.kept))
        ):
            return False
        if find_others(self.translation, moved, self.protect) or not self._are_fields(moved):
            return False
        self.fixed = [(self.kept[index], targets[index]) for index in range(len(order))]
        source = _shifts(places, self.kept)
        ends = [found[index] for index in order]
        target = [(end, new - end + lead) for (_, end), (_, new), lead in zip(ends, moved, leads[1:], strict=True)]
        self.links = [
            Link(_shift(start, source), _shift(end, source), _shift(low, target), _shift(high, target), weight)
            for start, end, low, high, weight in links
            if not overlaps((start, end), places) and not overlaps((low, high), found)
        ]
        return True

    def _are_fields(self, places: Sequence[Range]) -> bool:
        """Return whether each field of the source is one in the translation, too, beside other letters and signs."""
        fields = {self.text[start:end] for start, end in find_protected(self.text, self.protect)}
        found = find_protected(self.translation, self.protect)
        return all(
            any(low <= start and end <= high for low, high in found)
            for start, end in places
            if self.translation[start:end] in fields
        )

    def take(self, translation: str, links: Sequence[Link], kept_texts: Sequence[str]) -> None:
        """
        Take the translation of a piece between text that is kept, or the piece itself if it has such text, too.

        Args:
            kept_texts: What must survive in the whole sentence.
        """
        others = find_others(translation, [], self.protect)
        if others or not translation.strip() or any(locate([text], translation) for text in kept_texts):
            self.keep()
        else:
            self.translation, self.links = translation, list(links)

    def pieces(self) -> Iterator["Part"]:
        """Yield the text that is kept and the text between, without white space around it."""
        edges = [0, *(edge for place in self.kept for edge in place), len(self.text)]
        for index, (start, end) in enumerate(pairwise(edges)):
            text = self.text[start:end]
            if index % 2:
                yield Part(start, text, [(0, len(text))])
            elif text.strip():
                yield Part(start + len(text) - len(text.lstrip()), text.strip(), [], self.protect)


def join_parts(source: str, parts: Sequence[Part]) -> tuple[str, list[Link], list[tuple[Range, Range]]]:
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


def texts_at(text: str, places: Sequence[Range]) -> list[str]:
    """Return the texts at some places of a text."""
    return [text[start:end] for start, end in places]


def overlaps(place: Sequence[int], others: Sequence[Range]) -> bool:
    """Return whether a range shares characters with others."""
    return any(place[0] < end and start < place[1] for start, end in others)


def _shifts(before: Sequence[Range], after: Sequence[Range]) -> list[tuple[int, int]]:
    return [(old, new - old) for (_, old), (_, new) in zip(before, after, strict=True)]


def _shift(position: int, shifts: Sequence[tuple[int, int]]) -> int:
    """Return where a position is after replacements, each given by the old position of its end and the offset."""
    return position + next((offset for end, offset in reversed(shifts) if position >= end), 0)


def _moved(place: Range, offset: int) -> Range:
    return place[0] + offset, place[1] + offset


def copy_sentence(text: str) -> Translation:
    """Return a sentence as its own translation."""
    links = [Link(*match.span(), *match.span(), 1.0) for match in _WORD.finditer(text)]
    return Translation(text, alignment=links)


# --- Sentences of a request -----------------------------------------------------------------------------------------


class _Kept:
    """
    A sentence with text that must survive.

    Attributes:
        part: The sentence and what must survive in it.
        shown: The sentence as the model sees it.
    """

    def __init__(self, sentence: Sentence, part: Part, masks: Sequence[str]):
        self._sentence, self.part = sentence, part
        text, self._places = part.masked([] if sentence.phrases else masks)
        self.shown = sentence._replace(text=text)

    @property
    def is_masked(self) -> bool:
        """Whether the model sees masks, so that the sentence is to be encoded again."""
        return self.shown.text != self._sentence.text

    def read(self, found: Sequence[Translation]) -> list[Translation] | None:
        """Return translations of the model with all text that must survive, or None if one of them lacks some."""
        answers = []
        for each in found:
            part = replace(self.part)
            if not part.restore(self.shown.text, self._places, each.text, each.alignment):
                return None
            links = [*part.links, *(Link(*here, *there, 1.0) for here, there in part.fixed)]
            links.sort(key=lambda link: (link.target_start, link.source_start))
            answers.append(each._replace(text=part.translation, alignment=links))
        return answers

    def constrained(self, tokenizer: Any) -> Sentence | None:
        """Return the sentence with what must survive among its phrases, or None if the vocabulary lacks some."""
        try:
            kept = [tokenize_constraint(tokenizer, text) for text in texts_at(self.shown.text, self._places)]
        except ConstraintError:
            return None
        return self.shown._replace(phrases=[*self.shown.phrases, *kept])

    def copy(self, count: int) -> list[Translation]:
        """Return the sentence as its own translations."""
        return [copy_sentence(self.part.text)] * count

    def around(self) -> list[Sentence]:
        """Return the sentences between the text that must survive, without their tokens."""
        pieces = [piece for piece in self.part.pieces() if piece.is_translatable]
        return [self._sentence._replace(text=piece.text, separator="", tokens=()) for piece in pieces]

    def join(self, rows: Sequence[Sequence[Translation]]) -> list[Translation]:
        """Return the translations of the whole sentence, given the translations of the sentences [`around`]."""
        return [self._join(found) for found in zip(*rows, strict=True)]

    def _join(self, found: Sequence[Translation]) -> Translation:
        """Log-probabilities add up, and the score is the mean, as for the sentences of a text."""
        answers, pieces = iter(found), list(self.part.pieces())
        for piece in pieces:
            if piece.is_translatable:
                answer = next(answers)
                piece.take(answer.text, answer.alignment, self.part.kept_texts)
            else:
                piece.translation, size = piece.text, len(piece.text)
                piece.links = [Link(0, size, 0, size, 1.0)]
        text, links, _ = join_parts(self.part.text, pieces)
        return _join_scores(text, links, found)


def _join_scores(text: str, links: Sequence[Link], found: Sequence[Translation]) -> Translation:
    score = sum(each.score for each in found) / len(found)
    log_probability = sum(each.log_probability for each in found)
    values = [value for each in found for value in each.token_log_probabilities]
    tokens = [token for each in found for token in each.tokens]
    return Translation(text, score, log_probability, values, tokens, links)


def _join_message(source: str, message: Message, found: Sequence[Translation]) -> Translation:
    """Return the translation of a message, given the ones of its texts. It is aligned as a whole."""
    text = message.render(each.text for each in found)
    return _join_scores(text, [Link(0, len(source), 0, len(text), 1.0)], found)


@dataclass
class ProtectedSearch:
    """
    Translate the sentences of a request such that URLs, placeholders and so on survive, see [`find_protected`].

    A sentence with a target prefix is translated as it is, and one with constraints of its own keeps them even if text
    is lost then.

    Args:
        decode: The decode of sentences.
        options: The options of the request.
        encode: The function that returns the token ids of sentences.
        tokenizer: The tokenizer of the model, with the masks that it knows.
        uses_masks: Whether whatever reads the sentences knows the masks.
        can_constrain: Whether an engine decodes the model.
    """

    decode: Decode
    options: TranslationOptions
    encode: Encode
    tokenizer: Any
    uses_masks: bool = True
    can_constrain: bool = True

    def __call__(self, sentences: Sequence[Sentence], report: Report) -> list[list[Translation]]:
        """Return the translations of each sentence, best first."""
        messages = {
            at: message
            for at, each in enumerate(sentences)
            if not each.prefix and not each.phrases and (message := parse_message(each.text, self.options.protect))
        }
        if not messages:
            return self._translate(sentences, report)
        others = [at for at in range(len(sentences)) if at not in messages]
        found = dict(zip(others, self._translate([sentences[at] for at in others], report), strict=True))
        rows = self._translate_messages([(sentences[at], message) for at, message in messages.items()])
        found |= dict(zip(messages, rows, strict=True))
        report(len(messages))
        return [found[at] for at in range(len(sentences))]

    def _translate_messages(self, messages: Sequence[tuple[Sentence, Message]]) -> Iterator[list[Translation]]:
        """Yield the translations of each message, of which each branch is a sentence."""
        branches = [
            (sentence, each.text)
            for sentence, message in messages
            for each in message.messages()
            if _LETTER.search(each.text)
        ]
        tokens = self.encode([text for _, text in branches], self.options)
        sentences = [
            sentence._replace(text=text, separator="", tokens=own)
            for (sentence, text), own in zip(branches, tokens, strict=True)
        ]
        rows = iter(self._translate(sentences, lambda done: None))
        for sentence, message in messages:
            found = [
                next(rows) if _LETTER.search(each.text) else [copy_sentence(each.text)] * self.options.count
                for each in message.messages()
            ]
            yield [_join_message(sentence.text, message, of_one) for of_one in zip(*found, strict=True)]

    def _translate(self, sentences: Sequence[Sentence], report: Report) -> list[list[Translation]]:
        protect, own = self.options.protect, find_own_tokens(self.tokenizer)
        parts = [
            Part(
                0,
                each.text,
                [] if each.prefix else self._find_kept(each.text, own),
                protect,
                can_number(protect) and each.is_whole,
            )
            for each in sentences
        ]
        if not any(part.kept for part in parts):
            return self.decode(sentences, self.options, report)
        masks = find_masks(self.tokenizer) if self.uses_masks else []
        kept = {at: _Kept(sentences[at], part, masks) for at, part in enumerate(parts) if part.kept}
        found = {at: each.copy(self.options.count) for at, each in kept.items() if not each.part.is_translatable}
        report(len(found))
        self._encode_masked([kept[at] for at in kept.keys() - found.keys()])
        order = [at for at in range(len(sentences)) if at not in found]
        inputs = [kept[at].shown if at in kept else sentences[at] for at in order]
        rows = dict(zip(order, self.decode(inputs, self.options, report), strict=True))
        found |= {at: row for at, row in rows.items() if at not in kept}
        found |= self._read(kept, rows)
        for search in (self._search_constrained, self._search_around):
            found |= search({at: each for at, each in kept.items() if at not in found})
        return [found.get(at) or rows[at] for at in range(len(sentences))]

    def _find_kept(self, text: str, own: Collection[str]) -> list[Range]:
        """Return where text must survive, besides the model's own tokens, which are marks for it."""
        return [place for place in find_protected(text, self.options.protect) if text[slice(*place)] not in own]

    def _read(self, kept: Mapping[int, _Kept], rows: Mapping[int, Sequence[Translation]]) -> _Rows:
        """Return the translations with all text that must survive."""
        read = {at: kept[at].read(row) for at, row in rows.items() if at in kept}
        return {at: row for at, row in read.items() if row is not None}

    def _search_constrained(self, kept: Mapping[int, _Kept]) -> _Rows:
        """Return the translations of sentences under the constraint that what must survive appears."""
        found = {at: each.constrained(self.tokenizer) for at, each in kept.items()}
        inputs = {at: each for at, each in found.items() if each is not None}
        if not inputs or not self.can_constrain or self.options.do_sample or self.options.mbr is not None:
            return {}
        rows = zip(inputs, decode_constrained(self.decode, [*inputs.values()], self.options), strict=True)
        return self._read(kept, {at: row for at, row in rows if row is not None})

    def _search_around(self, kept: Mapping[int, _Kept]) -> _Rows:
        """Return translations of sentences of which only the text around what must survive is translated."""
        pieces = {at: each.around() for at, each in kept.items() if not each.shown.phrases}
        flat = [piece for some in pieces.values() for piece in some]
        if not flat:
            return {}
        tokens = self.encode([piece.text for piece in flat], self.options)
        encoded = [piece._replace(tokens=own) for piece, own in zip(flat, tokens, strict=True)]
        rows = iter(self.decode(encoded, self.options, lambda done: None))
        return {at: kept[at].join([next(rows) for _ in some]) for at, some in pieces.items()}

    def _encode_masked(self, kept: Sequence[_Kept]) -> None:
        masked = [each for each in kept if each.is_masked]
        rows = self.encode([each.shown.text for each in masked], self.options) if masked else []
        for each, tokens in zip(masked, rows, strict=True):
            each.shown = each.shown._replace(tokens=tokens)


def keep_protected(decode: Decode, **further: Any) -> Decode:
    """Return a decode whose translations keep what must survive, see [`ProtectedSearch`]."""

    def decode_protected(
        sentences: Sequence[Sentence], options: TranslationOptions, report: Report
    ) -> list[list[Translation]]:
        return ProtectedSearch(decode, options, **further)(sentences, report)

    return decode_protected


__all__ = ["Part", "ProtectedSearch", "copy_sentence", "join_parts", "keep_protected", "overlaps"]
__all__ += ["texts_at"]
