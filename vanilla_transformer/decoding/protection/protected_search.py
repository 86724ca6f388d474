"""
Keep what must survive a translation: URLs, e-mail addresses, placeholders, emoji and long numbers.

They go through the model as masks that it has learned to copy, or else as [`StandIns`], words that
it copies. A sentence whose translation lacks one, or has one too often, is translated again, with
other stand-ins and then by beam search under the constraint that all appear. Where that fails, too,
only the text around them is translated. Quotation marks around such text are kept with it, where
the model loses a word in them.
Sentences without such text are translated as always. The branches of an ICU message are sentences
by themselves, and so is text between escapes of line breaks.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from operator import itemgetter

import regex

from vanilla_transformer.decoding.options import TranslationOptions
from vanilla_transformer.decoding.sentences import Decode, Draft, Report, Sentence, ignore
from vanilla_transformer.decoding.token_texts import move_tokens
from vanilla_transformer.decoding.translations import Link, Translation, copy_sentence, join_pieces
from vanilla_transformer.text.protection import (
    MASK,
    SIGN,
    Range,
    adds_signs,
    find_protected,
    find_texts,
    locate,
    mask,
    overlapping,
)

from .icu_messages import Message, parse_message
from .inline_markup import MarkedText, parse_markup
from .kept_text import (
    PAIRS,
    QUOTATION_MARKS,
    add_quotation_marks,
    has_others,
    is_in_marks,
    keeps_order,
    space_gap,
)
from .stand_ins import StandIns, find_forms

# Return the translations of each sentence that have the texts that must survive; None for none.
Constrain = Callable[[Sequence[Sentence]], Sequence[list[Translation] | None]]
_LETTER = regex.compile(r"\p{L}")
_ENDING = regex.compile(r"['’]?\p{L}")
# Marks beside text that is kept, with which no text around it begins or ends
_MARKS_AFTER = regex.compile(r"(?:[\s.,;:!?)\]\"”»›]|['’](?!\p{L}))++")
_MARKS_BEFORE = regex.compile(r"(?r)(?:[\s:(\[\"“‘«‹]|(?<!\p{L})')++\Z")
_FINAL_MARK = regex.compile(r"(?r)\s*+[.:!?…。：！？]++\Z")
_LIST = 3  # texts that come in the order of the source
_MASK_IN_TEXT = regex.compile(rf"\A{MASK.pattern}\s?|\s?{MASK.pattern}")


class _Protected:
    """
    A sentence, and the text in it that must survive.

    Args:
        kept: Places of that text.
        protect: Whether patterns find such text, see [`find_protected`].
        copied: Opening quotation marks and brackets around it that are left to the model. Others
            survive with it.
        masks: Masks in its place for the model; none if it sees it as it is.
        stand_ins: The same, where text may stand for itself.

    Attributes:
        is_kept: There are no letters besides the text that must survive.
        shown: The sentence as the model sees it.
        shown_texts: The texts that must survive, as the model sees them.
        stands_in: Whether some of them are stand-ins.
    """

    def __init__(
        self,
        sentence: Sentence,
        kept: Sequence[Range],
        protect: bool,
        copied: Collection[str] = (),
        masks: Sequence[str] = (),
        stand_ins: Sequence[str] = (),
    ):
        self._sentence, self._source = sentence, sentence.text
        self._unquoted, self._protect = kept, protect
        quoted = add_quotation_marks(sentence.text, kept)
        kept = add_quotation_marks(sentence.text, kept, copied)
        self._kept = kept
        # Whether the model has to write marks around a text
        self._needs_marks = [span != whole for span, whole in zip(kept, quoted, strict=True)]
        self._kept_texts = _texts_at(self._source, kept)
        self._is_formatted = any(map(SIGN.search, self._kept_texts))
        self._places = kept
        self.shown = sentence._replace(kept=kept)
        self._written = self._kept_texts
        if masks or stand_ins:
            text, self._places = mask(sentence.text, kept, masks or stand_ins)
            draft = sentence.draft
            if draft is not None:
                draft, written = self._mask_draft(draft, masks or stand_ins)
                self._written = written or self._kept_texts
            self.shown = sentence._replace(text=text, tokens=(), kept=self._places, draft=draft)
        self.shown_texts = _texts_at(self.shown.text, self._places)
        self._stand_ins = {*stand_ins} - {*self._kept_texts}
        self.stands_in = bool(self._stand_ins)
        edges = [0, *chain.from_iterable(kept), len(self._source)]
        gaps = zip(edges[::2], edges[1::2], strict=True)
        letters = [_LETTER.search(self._source, low, high) for low, high in gaps]
        self.is_kept = not any(letters)

    def _mask_draft(self, draft: Draft, masks: Sequence[str]) -> tuple[Draft, list[str]]:
        """Return a draft with masks instead of the texts that must survive, and what they replace;
        the draft as it is, and nothing, if it has others.

        Where quotation marks belong to a text, the ones of the draft do.
        """
        texts = _texts_at(self._source, self._unquoted)
        source, _ = self._mask_text(draft.source, texts, masks)
        text, written = self._mask_text(draft.text, texts, masks)
        return draft._replace(text=text, source=source), written

    def _mask_text(
        self, text: str, texts: Sequence[str], masks: Sequence[str]
    ) -> tuple[str, list[str]]:
        """Return a text with masks, and what they replace; nothing if it has not all texts."""
        spans = locate(texts, text)
        if not spans:
            return text, []
        order = sorted(range(len(spans)), key=spans.__getitem__)
        in_order = [spans[index] for index in order]
        quoted = dict(zip(order, add_quotation_marks(text, in_order), strict=True))
        for index, span in enumerate(self._kept):
            if span != self._unquoted[index]:
                spans[index] = quoted[index]
        ordered_masks = [masks[index] for index in order]
        masked, _ = mask(text, sorted(spans), ordered_masks)
        return masked, _texts_at(text, spans)

    def around(self) -> list[Sentence]:
        """Return the sentences between the text that must survive."""
        sentences = []
        for _, text, is_kept in self._pieces():
            if not is_kept and _LETTER.search(text):
                part = self._sentence._replace(text=text, separator="", draft=None)
                sentences.append(part._replace(tokens=(), kept=()))
        return sentences

    def _pieces(self) -> Iterator[tuple[int, str, bool]]:
        """Yield the text that is kept and the text between, each with its start, and whether it is
        kept.
        """
        edges = [0, *chain.from_iterable(self._kept), len(self._source)]
        for index, (start, end) in enumerate(pairwise(edges)):
            is_kept = bool(index % 2)
            text = self._source[start:end]
            if not is_kept:
                lead = _MARKS_AFTER.match(text) if start else None
                tail = _MARKS_BEFORE.search(text) if end < len(self._source) else None
                text = text[lead.end() if lead else 0 : tail.start() if tail else None].strip()
            if text:
                yield self._source.index(text, start), text, is_kept

    def _link(self, index: int, written: str, target_start: int) -> Link:
        """Return the link of a text that is kept with itself, without quotation marks around it.

        Args:
            written: The text in the translation, with its quotation marks.
            target_start: Its place there.
        """
        start, end = self._unquoted[index]
        target_start += written.index(self._source[start:end])
        return Link(start, end, target_start, target_start + end - start, 1.0)

    def read(self, row: Sequence[Translation]) -> Sequence[Translation] | None:
        """Return translations of the model with all text that must survive, or None if one of them
        lacks some.
        """
        if not self._kept:
            return row
        restored = []
        for translation in row:
            answer = self._restore(translation)
            if answer is None:
                return None
            restored.append(answer)
        return restored

    def _restore(self, translation: Translation) -> Translation | None:
        """Return a translation with the text that is kept instead of masks, linked with itself;
        None if it is lost.
        """
        source, shown = self._source, translation.text
        spans = self._find(translation)
        if spans is None:
            return None
        order = sorted(range(len(spans)), key=spans.__getitem__)
        if not keeps_order(self._kept_texts, order) or not self._is_linked(
            order, spans, translation
        ):
            return None
        shown_spans = [spans[index] for index in order]
        edges = [0, *chain.from_iterable(shown_spans), len(shown)]
        gap_ranges = zip(edges[::2], edges[1::2], strict=True)
        gaps = [shown[start:end] for start, end in gap_ranges]
        leads: list[int] = []
        pieces: list[str] = []
        moved: list[Range] = []
        start = 0
        for gap, left, right in zip(gaps, [None, *order], [*order, None], strict=True):
            after = None if left is None else source[self._kept[left][1] :]
            before = None if right is None else source[: self._kept[right][0]]
            spaced = space_gap(gap, after, before)
            pieces.append(spaced)
            leads.append(len(spaced.rstrip()) - len(gap.rstrip()))
            start += len(spaced)
            if right is not None:
                pieces.append(self._written[right])
                moved.append((start, start := start + len(pieces[-1])))
        text, targets = "".join(pieces), dict(zip(order, moved, strict=True))
        if not self._is_whole(text, targets):
            return None
        for index, target in targets.items():
            if self._needs_marks[index] and not is_in_marks(text, *target):
                return None
        target_shifts = []
        for (_, old), (_, new), lead in zip(shown_spans, moved, leads[1:], strict=True):
            target_shifts.append((old, new - old + lead))
        apart = []
        for link in translation.alignment:
            is_of_source = overlapping(link[:2], self._places)
            if not is_of_source and not overlapping(link[2:4], shown_spans):
                apart.append(link)
        source_shifts = _shifts(zip(self._places, self._kept, strict=True))
        links = _move(apart, source_shifts, target_shifts)
        for index in order:
            links.append(self._link(index, self._written[index], targets[index][0]))
        links.sort(key=lambda link: (link.target_start, link.source_start))
        replaced = list(zip(shown_spans, moved, strict=True))
        tokens = move_tokens(translation.tokens, shown, text, replaced)
        return translation._replace(text=text, tokens=tokens, alignment=links)

    def _find(self, translation: Translation) -> list[Range] | None:
        """Return where a translation has the text that must survive; None if it lacks some or has
        some too often.

        The sentence may have the same text as a word elsewhere. If the translation has both, links
        tell them apart.
        """
        spans_of = find_texts(self.shown_texts, translation.text)
        for (_, end), text in zip(self._kept, self.shown_texts, strict=True):
            if text in self._stand_ins:
                has_ending = bool(_ENDING.match(self._source, end))
                spans_of[text] = find_forms(text, translation.text, has_ending)
        for text, count in Counter(self.shown_texts).items():
            if len(spans_of[text]) == count:
                continue
            kept_spans = []
            for span, shown_text in zip(self._places, self.shown_texts, strict=True):
                if shown_text == text:
                    kept_spans.append(span)
            spans = list(kept_spans)
            for span in find_texts(self.shown_texts, self.shown.text)[text]:
                if not overlapping(span, self._places):
                    spans.append(span)
            if len(spans_of[text]) != len(spans):
                return None
            sources = self._find_sources(spans_of[text], translation)
            order = sorted(range(len(sources)), key=sources.__getitem__)
            in_order = [spans_of[text][index] for index in order]
            target_of = dict(zip(sorted(spans), in_order, strict=True))
            spans_of[text] = [target_of[span] for span in kept_spans]
        return [spans_of[text].pop(0) for text in self.shown_texts]

    def _is_linked(
        self, order: Sequence[int], spans: Sequence[Range], translation: Translation
    ) -> bool:
        """Return whether texts keep their order, are two, or are linked with their own places.

        A list changes its order only if links say so.
        """
        if len(order) < _LIST or [*order] == sorted(order):
            return True
        if not translation.alignment:
            return False
        sources = self._find_sources(spans, translation)
        linked = zip(self._places, sources, strict=True)
        return all(start <= source < end for (start, end), source in linked)

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
            linked = [position for position in range(start, end) if position in link_at]
            links = [link_at[position] for position in linked]
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
        protected = find_protected(text, self._protect)
        for at, (one, other) in enumerate(pairwise(self._kept)):
            if one[1] == other[0] and targets[at][1] != targets[at + 1][0]:
                return False
        for start, end in targets.values():
            around = overlapping((start, end), protected)
            is_field = any(low <= start and end <= high for low, high in around)
            if text[start:end] in fields and not is_field:
                return False
        return not has_others(text, protected, [*targets.values()])

    def join(self, translations: Sequence[Translation] = ()) -> Translation:
        """Return the translation of the sentence, given the ones of the sentences [`around`];
        without, a copy.
        """
        answers, is_open = iter(translations), False
        kept_at = {start: index for index, (start, _) in enumerate(self._kept)}
        pieces: list[tuple[int, str, Translation]] = []
        for start, text, is_kept in self._pieces():
            answer = copy_sentence(text)
            if is_kept:
                link = self._link(kept_at[start], text, 0).shift(-start, 0)
                answer = answer._replace(alignment=[link])
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
        return _join_scores(joined, translations)

    def _space(self, start: int, end: int, answer: Translation) -> Translation:
        """Return the translation of a range with spaces where it touches text that is kept, see
        [`space_gap`], and without a final mark before a colon of the source.
        """
        after = before = None
        for kept_start, kept_end in self._kept:
            if kept_end == start:
                after = self._source[start:]
            if kept_start == end:
                before = self._source[:end]
        text = answer.text
        if self._source.startswith(":", end):
            text = _FINAL_MARK.sub("", text)
        links = [link for link in answer.alignment if link.target_end <= len(text)]
        spaced = space_gap(text, after, before)
        lead = len(spaced.rstrip()) - len(text.rstrip())
        links = [link.shift(0, lead) for link in links]
        tokens = move_tokens(answer.tokens, text.ljust(len(answer.text)), spaced)
        return answer._replace(text=spaced, tokens=tokens, alignment=links)


def _texts_at(text: str, places: Sequence[Range]) -> list[str]:
    return [text[start:end] for start, end in places]


def _shifts(moved: Iterable[tuple[Range, Range]]) -> list[tuple[int, int]]:
    """Return the places from which on a text is shifted, and the offset of each, given ranges that
    are replaced.
    """
    shifts = []
    for (old_start, old_end), (new_start, new_end) in moved:
        shifts += [(old_start, new_start - old_start), (old_end, new_end - old_end)]
    return shifts


def _move(
    links: Iterable[Link], source: Sequence[tuple[int, int]], target: Sequence[tuple[int, int]]
) -> list[Link]:
    """Return links in texts that are shifted so."""

    def move(position: int, shifts: Sequence[tuple[int, int]]) -> int:
        last = bisect_right(shifts, position, key=itemgetter(0))
        return position + (shifts[last - 1][1] if last else 0)

    moved = []
    for start, end, target_start, target_end, weight in links:
        span = move(start, source), move(end, source)
        target_span = move(target_start, target), move(target_end, target)
        moved.append(Link(*span, *target_span, weight))
    return moved


def _join_scores(joined: Translation, parts: Sequence[Translation]) -> Translation:
    """Return a joined translation: log-probabilities add up, and the score is the mean, as for
    sentences of a text.
    """
    score = sum(part.score for part in parts) / max(1, len(parts))
    log_probability = sum(part.log_probability for part in parts)
    is_open = joined.is_open or any(part.is_open for part in parts)
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
        stand_ins: Returns the words that the model copies, if it has no masks.
        constrain: The decode of sentences under constraints, if there is one.
        aligns: Whether the model aligns words, which tell the places of markup.
    """

    decode: Decode
    options: TranslationOptions
    masks: Sequence[str] = ()
    marks: Collection[str] = ()
    stand_ins: Callable[[], StandIns] | None = None
    constrain: Constrain | None = None
    aligns: bool = False

    def __call__(self, sentences: Sequence[Sentence], report: Report) -> list[list[Translation]]:
        """Return the translations of each sentence, best first."""
        parsed: list[Message | MarkedText | None] = []
        plain: list[Sentence] = []
        parts: list[Sentence] = []
        for sentence in sentences:
            is_bound = sentence.prefix or sentence.phrases or sentence.kept is not None
            whole: Message | MarkedText | None = None
            if self.options.protect and not is_bound:
                whole = self._parse(sentence.text)
            parsed.append(whole)
            if whole is None:
                plain.append(sentence)
                continue
            texts = [part.text for part in whole.messages()]
            drafts = self._split_draft(sentence.draft, len(texts))
            for text, draft in zip(texts, drafts, strict=True):
                part = sentence._replace(text=text, separator="", tokens=(), draft=draft)
                parts.append(part)
        rows = iter(self._translate(plain, report))
        of_parts = iter(replace(self, options=self._aligned())._translate(parts, ignore))
        if parts:
            report(len(sentences) - len(plain))
        answers = list[list[Translation]]()
        for sentence, whole in zip(sentences, parsed, strict=True):
            if whole is None:
                answers.append(next(rows))
                continue
            joined: list[Translation] = []
            texts = [part.text for part in whole.messages()]
            part_rows = [next(of_parts) for _ in texts]
            for translations in zip(*part_rows, strict=True):
                if isinstance(whole, MarkedText):
                    answer = whole.join(translations)
                else:
                    answer, moved = whole.render(iter(translations))
                    first = translations[0].alignment  # of the first text
                    links = _move(first, _shifts(whole.moved), _shifts(moved))
                    answer = answer._replace(alignment=links)
                is_copy = [translation.text for translation in translations] == texts
                # The source writes a character in two ways.
                if is_copy and answer.text != sentence.text:
                    answer = copy_sentence(sentence.text, answer.tokens)
                joined.append(_join_scores(answer, translations))
            answers.append(joined)
        return answers

    def _parse(self, text: str) -> Message | MarkedText | None:
        return parse_message(text) or parse_markup(text, self.marks)

    def _split_draft(self, draft: Draft | None, count: int) -> list[Draft | None]:
        """Return the drafts of the parts of a sentence: the parts of its draft, if it has as
        many.
        """
        if draft is None:
            return [None] * count
        whole = self._parse(draft.text)
        texts = [draft.text]
        if whole is not None:
            texts = [part.text for part in whole.messages()]
        if len(texts) != count:
            return [None] * count
        return [Draft(text, draft.bias) for text in texts]

    def _aligned(self) -> TranslationOptions:
        """Return the options with alignments, if the model gives some."""
        aligns = self.aligns or self.options.return_alignments
        return self.options.model_copy(update={"return_alignments": aligns})

    def _translate(self, sentences: Sequence[Sentence], report: Report) -> list[list[Translation]]:
        if not sentences:
            return []
        parts = [self._protect(sentence, 0) for sentence in sentences]
        copied = [part.is_kept for part in parts]
        if any(copied):
            report(sum(copied))
        shown = [part.shown for part in parts if not part.is_kept]
        rows = iter(self.decode(shown, self.options, report) if shown else [])
        decoded = [None if part.is_kept else next(rows) for part in parts]
        read: list[Sequence[Translation] | None] = []
        for part, row in zip(parts, decoded, strict=True):
            if row is None:
                read.append([part.join()] * self.options.count)
            else:
                read.append(part.read(row))
        lost = [at for at, translations in enumerate(read) if translations is None]
        for translate_again in (self._translate_differently, self._translate_constrained):
            rows_of_lost = translate_again([sentences[at] for at in lost])
            for at, translations in zip(lost, rows_of_lost, strict=True):
                read[at] = translations
            lost = [at for at in lost if read[at] is None]
        apart = [at for at in lost if not sentences[at].phrases]
        around = self.translate_around([sentences[at] for at in apart])
        for at, row in zip(apart, around, strict=True):
            read[at] = row
        answers = []
        for translations, row in zip(read, decoded, strict=True):
            answers.append([*(translations or row or ())])
        return answers

    def _translate_differently(
        self, sentences: Sequence[Sentence]
    ) -> list[Sequence[Translation] | None]:
        """Return translations of sentences with other stand-ins; None where there are none, or they
        are lost.
        """
        parts = [self._protect(sentence, 1) for sentence in sentences]
        shown = [part.shown for part in parts if part.stands_in]
        rows = iter(self.decode(shown, self._aligned(), ignore) if shown else [])
        read: list[Sequence[Translation] | None] = []
        for part in parts:
            translations = None
            if part.stands_in:
                translations = part.read(next(rows))
            read.append(translations)
        return read

    def _translate_constrained(
        self, sentences: Sequence[Sentence]
    ) -> list[Sequence[Translation] | None]:
        """Return translations of sentences under the constraint that all text survives; None where
        there are none.
        """
        if not sentences or self.constrain is None:
            return [None] * len(sentences)
        parts = [self._protect(sentence) for sentence in sentences]
        rows = self.constrain([part.shown for part in parts])
        read: list[Sequence[Translation] | None] = []
        for part, row in zip(parts, rows, strict=True):
            translations = None
            if row is not None:
                translations = part.read(row)
            read.append(translations)
        return read

    def translate_around(self, sentences: Sequence[Sentence]) -> list[list[Translation]]:
        """Return translations of sentences of which only the text around what must survive is
        translated.
        """
        parts = [self._protect(sentence) for sentence in sentences]
        pieces = [part.around() for part in parts]
        flat = list(chain.from_iterable(pieces))
        rows = iter(self.decode(flat, self.options, ignore) if flat else [])
        answers = []
        for part, part_pieces in zip(parts, pieces, strict=True):
            piece_rows = [next(rows) for _ in part_pieces]
            candidates = zip(*piece_rows, strict=True)
            joined = [part.join(translations) for translations in candidates]
            answers.append(joined or [part.join()] * self.options.count)
        return answers

    def _protect(self, sentence: Sentence, attempt: int | None = None) -> _Protected:
        """Return a sentence with masks, or for the first attempts with stand-ins.

        After the first attempt, they are instead of quotation marks around the text, too.
        """
        text, protect = sentence.text, self.options.protect
        kept = [] if sentence.prefix else sentence.kept
        if kept is None:
            spans = find_protected(text, protect)
            kept = [span for span in spans if text[slice(*span)] not in self.marks]
        copied: Collection[str] = PAIRS if attempt == 0 else ()
        if not kept or sentence.phrases:
            return _Protected(sentence, kept, protect, copied)
        if len(kept) <= len(self.masks):
            masks = self.masks[: len(kept)]
            return _Protected(sentence, kept, protect, copied, masks=masks)
        words = None
        if self.stand_ins is not None and attempt is not None:
            stand_ins = self.stand_ins()
            words = stand_ins.choose(text, kept, attempt)
            copied = {*copied} - (QUOTATION_MARKS.keys() - stand_ins.quotation_marks)
        return _Protected(sentence, kept, protect, copied, stand_ins=words or ())


def remove_masks(decode: Decode) -> Decode:
    """Return a decode whose translations have no masks but the ones of their sources, each with a
    space beside it.
    """

    def decode_without(
        sentences: Sequence[Sentence], options: TranslationOptions, report: Report
    ) -> list[list[Translation]]:
        answers = list[list[Translation]]()
        rows = decode(sentences, options, report)
        for sentence, row in zip(sentences, rows, strict=True):
            answers.append([])
            for answer in row:
                masks = []
                for match in _MASK_IN_TEXT.finditer(answer.text):
                    if match[0].strip() not in sentence.text:
                        masks.append(match.span())
                if masks:
                    text, removed = mask(answer.text, masks, [""] * len(masks))
                    spaces = [" " * (end - start) for start, end in masks]
                    blank, _ = mask(answer.text, masks, spaces)
                    apart = []
                    for link in answer.alignment:
                        if not overlapping(link[2:4], masks):
                            apart.append(link)
                    links = _move(apart, [], _shifts(zip(masks, removed, strict=True)))
                    tokens = move_tokens(answer.tokens, blank, text)
                    answer = answer._replace(text=text, tokens=tokens, alignment=links)
                answers[-1].append(answer)
        return answers

    return decode_without
