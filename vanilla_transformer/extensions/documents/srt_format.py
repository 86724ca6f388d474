"""Subtitles: SubRip (.srt) and WebVTT (.vtt)."""

import re
import textwrap
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, islice
from typing import NamedTuple

import regex

from vanilla_transformer.decoding.protection.blocks import (
    BYTE_ORDER_MARK,
    LINE_END,
    Block,
    Document,
    SpanBuilder,
    write_block,
)
from vanilla_transformer.errors import UserError
from vanilla_transformer.text.changes import Segment
from vanilla_transformer.text.languages import NO_DIRECTION, Direction

from .line_breaks import find_cuts, join_lines
from .source_text import read_html

# Hours of many digits are no number of seconds. The digits of a fraction follow.
_TIME = r"((?:\d{1,9}[:：] ?){1,2}\d{1,9})(?:[,.:，．。：](\d*+))?"
_TIMES = re.compile(rf"\s*{_TIME}\s*-[ -]?\s*>\s*{_TIME}(?:\s.*)?", re.DOTALL)
_LINE = re.compile(rf"[^\r\n]*+(?:{LINE_END}|\r)|[^\r\n]+")
_LIKE_TIMES = re.compile(r"\s*+\d+[:：] ?\d[\d:,.：，．。 ]*+[^\w>]*+>")
_NUMBER = re.compile(r"\s*-?\d+(?:\.\d*)?\s*")
_TAG = re.compile(r"<(/?)([a-z]+)(?:[.\s][^<>]*)?>|<[\d:.]+>|\{\\[^{}]*\}", re.IGNORECASE)
# A word with its tags
_WORD = re.compile(rf"(?:(?:{_TAG.pattern})\s+)*(?:{_TAG.pattern}|\S)+", re.IGNORECASE | re.ASCII)
_DASH = re.compile(r"\s*[-‐–—]\s*")
_BEFORE_DASH = re.compile(r"\n(?:\s|<[^<>]*+>)*+(?P<dash>(?=[-‐–—]))?")
# The ends of texts without white space there, in their last characters
# The end of a speech whose sentence may continue
_OPEN_END = regex.compile(r"[\p{L}\p{M}\p{N}][,;،؛、，；]?\Z")
_COMMA_END = re.compile(r"[,،、，]\Z")
_FULL_STOP = regex.compile(r"[\p{Sentence_Terminal}--[!?！？؟]][\p{Pe}\p{Pf}\"'\p{M}]*\Z", regex.V1)
_CLAUSE_END = regex.compile(r"[,;:،؛、，；…\p{Sentence_Terminal}][\p{Pe}\p{Pf}\"'\p{M}]*\Z")
# Speeches with one of these are not joined.
_APART = re.compile(rf"{_TAG.pattern}|[♩♪♫♬]", re.IGNORECASE)
_NAME = r"\w[\w .']{,20}:"  # of a speaker, which begins a speech
_SPEAKER = re.compile(rf"\s*{_NAME}(?:\s|\Z)")
_SPEAKER_LINE = re.compile(rf"(?:\A|\n){_NAME}[ \t]*+\n")
_PAUSE = 2.0  # seconds between two cues of one sentence, at most
_MOST_CUES = 6  # of one sentence: more are speech without punctuation marks
_LONGEST_END = 16  # characters that tell how a text ends
_SPEECH_END = "\r"  # no speech has one
_CLAUSE = 8  # characters that a cut is moved, at most, to be at the end of a clause


class _Cue(NamedTuple):
    """A subtitle: its times in seconds, and the lines of its text, which end before the line
    `last`.
    """

    start: float
    end: float
    first: int
    last: int
    content: str


class SrtDocument(Document):
    """
    The speeches of a SubRip text, each wrapped to as many lines as before.

    Speeches of successive cues are one if the first ends within a sentence. Their translation is
    divided over the cues in proportion to the lengths of the source, at the end of a clause if one
    is near. Cues with tags stay apart.
    """

    name, header = "SubRip", ""  # the word that begins a text
    escapes: Mapping[int, str] = {}  # of characters

    def __init__(self, text: str, direction: Direction = NO_DIRECTION):
        self._mark = BYTE_ORDER_MARK * text.startswith(BYTE_ORDER_MARK)
        self._lines = _LINE.findall(text.removeprefix(self._mark))  # with their ends
        self._cues = [*self._read_cues()]
        self._speeches = [_split_speeches(cue.content) for cue in self._cues]
        speeches = [speech for speeches_of_cue in self._speeches for speech in speeches_of_cue]
        num_stops = sum(bool(_FULL_STOP.search(_end(speech))) for speech in speeches)
        has_stops = 3 * num_stops >= len(speeches)
        runs, end = list[list[str]](), None
        for cue, (first, *others) in zip(self._cues, self._speeches, strict=True):
            is_near = end is not None and 0 <= round(cue.start - end, 3) <= _PAUSE
            if is_near and _continues(runs[-1][-1], first, has_stops):
                runs[-1].append(first)
            else:
                runs.append([first])
            runs += [[speech] for speech in others]
            end = cue.end
        self._sentences = list[list[str]]()  # the speeches that are translated as one
        for run in runs:
            if len(run) <= _MOST_CUES:
                self._sentences.append(run)
            else:
                self._sentences += [[speech] for speech in run]
        self._build_blocks()

    def _build_blocks(self) -> None:
        joined = ("\n".join(sentence) for sentence in self._sentences)
        texts = (join_lines(text.split("\n")) for text in joined)
        read = read_html if self.escapes else str
        self.blocks = [_build_block(text, read) for text in texts]

    def segments(self) -> list[Segment]:
        rows = zip(self.blocks, self._sentences, strict=True)
        return [Segment(block.text, _SPEECH_END.join(speeches)) for block, speeches in rows]

    def pair(self, earlier: Document, translation: Document) -> list[tuple[Segment, Segment]]:
        assert isinstance(earlier, SrtDocument) and isinstance(translation, SrtDocument)
        if len(earlier._cues) != len(translation._cues):
            raise UserError(
                f"A text and its translation must have as many subtitles, got {len(earlier._cues)} "
                f"and {len(translation._cues)}. Give the version that was translated."
            )
        # As the sentences of the source; one with other speeches has no translation
        speeches = list[str | None]()
        rows = zip(earlier._speeches, translation._cues, translation._speeches, strict=True)
        for of_source, cue, of_translation in rows:
            if len(of_source) == 1:
                speeches.append(cue.content)
            elif len(of_source) == len(of_translation):
                speeches += of_translation
            else:
                speeches += [None] * len(of_source)
        left, translation._sentences = iter(speeches), []
        for run in earlier._sentences:
            parts = [part for part in islice(left, len(run)) if part is not None]
            translation._sentences.append(parts if len(parts) == len(run) else [])
        translation._build_blocks()
        return super().pair(earlier, translation)

    def render(self, blocks: Sequence[Block]) -> str:
        """Return the text with translated blocks."""
        written = list[str]()
        rows = zip(self._sentences, self.blocks, blocks, strict=True)
        for sentence, source, block in rows:
            if block == source or block.written is not None:
                written += sentence if block.written is None else block.written.split(_SPEECH_END)
                continue
            text = write_block(
                block,
                lambda text: text.translate(self.escapes),
                lambda tags, content: tags[0] + (content or "") + tags[1],
            )
            parts = _divide(text, [len(speech) for speech in sentence])
            for part, speech in zip(parts, sentence, strict=True):
                written.append(_wrap(part, speech.count("\n") + 1))
        left, lines, end = iter(written), list[str](), 0
        for cue, speeches in zip(self._cues, self._speeches, strict=True):
            content = "\n".join(islice(left, len(speeches)))
            if content != cue.content:
                first, last = self._lines[cue.first], self._lines[cue.last - 1]
                content = content.replace("\n", first[len(first.rstrip("\r\n")) :])
                lines += self._lines[end : cue.first]
                lines.append(content + last[len(last.rstrip("\r\n")) :])
                end = cue.last
        return self._mark + "".join([*lines, *self._lines[end:]])

    def _read_cues(self) -> Iterator[_Cue]:
        lines = self._lines
        times = {}
        for number, line in enumerate(lines):
            match = _TIMES.fullmatch(line)
            if match:
                times[number] = match
        starts = []
        for number in times:
            is_numbered = number > 0 and _NUMBER.fullmatch(lines[number - 1])
            starts.append(number - bool(is_numbered))
        first = min(starts, default=len(lines))
        wanted = "times such as 00:00:01,000 --> 00:00:02,000"
        wrong = []
        for number, line in enumerate(lines):
            if _LIKE_TIMES.match(line) and number not in times:
                wrong.append(number)
        if not self.header:
            for number, line in enumerate(lines[:first]):
                if line.strip(" \t\r\n0123456789"):
                    wrong.append(number)
        elif lines and lines[0].split()[:1] != [self.header]:
            wrong, wanted = [0], self.header
        if wrong:
            reason = f"line {min(wrong) + 1} is {lines[min(wrong)].strip()!r:.80}"
            raise UserError(
                f"The text must be {self.name} subtitles, but {reason} instead of {wanted}."
            )
        ends = [*starts, len(lines)][1:]
        for (number, match), last in zip(times.items(), ends, strict=True):
            within = range(number + 1, last)
            filled = [line_number for line_number in within if lines[line_number].strip()]
            if self.header:  # a blank line ends a cue
                filled = [
                    line_number
                    for index, line_number in enumerate(filled, number + 1)
                    if line_number == index
                ]
            first = end = number + 1
            if filled:
                first, end = filled[0], filled[-1] + 1
            content = "\n".join(line.rstrip("\r\n") for line in lines[first:end])
            start_time, end_time = _seconds(match[1], match[2]), _seconds(match[3], match[4])
            yield _Cue(start_time, end_time, first, end, content)


class VttDocument(SrtDocument):
    """The speeches of a WebVTT text. Notes, styles, regions and settings stay as they are."""

    name, header = "WebVTT", "WEBVTT"
    escapes = str.maketrans(
        {
            "&": "&amp;",
            "<": "&lt;",
            ">": "&gt;",
            "\xa0": "&nbsp;",
            "\u200e": "&lrm;",
            "\u200f": "&rlm;",
        }
    )


def _seconds(clock: str, fraction: str | None) -> float:
    parts = reversed(re.split("[:：]", clock))
    seconds = sum(60**power * int(part) for power, part in enumerate(parts))
    return seconds + float(f"0.{fraction or 0}")


def _split_speeches(content: str) -> list[str]:
    """Return the speeches of a cue.

    Further ones begin with a dash, and lines without text before it are some, too, and so is the
    name of a speaker on its line.
    """

    def part(gap: re.Match[str]) -> str:
        return gap[0] if gap["dash"] is None else gap[0].replace("\n", "\r")

    # A carriage return ends no line within a cue.
    parted = _SPEAKER_LINE.sub(lambda name: name[0].replace("\n", "\r"), content)
    return _BEFORE_DASH.sub(part, parted).split("\r")


def _end(text: str) -> str:
    """Return the last characters of a text, without white space after them."""
    return text.rstrip()[-_LONGEST_END:]


def _continues(speech: str, following: str, has_stops: bool) -> bool:
    """Tell whether a sentence continues in the speech of the following cue.

    Args:
        has_stops: Whether the sentences of the subtitles end in full stops.
    """
    end, start = _end(speech), following.lstrip()[:1]
    if _APART.search(speech) or _APART.search(following) or not _OPEN_END.search(end):
        return False
    is_within = bool(_COMMA_END.search(end)) or (has_stops and not start.isupper())
    is_name = start.isalnum() and is_within and not _SPEAKER.match(following)
    return start.islower() or is_name


def _divide(text: str, lengths: Sequence[int]) -> list[str]:
    """Return as many parts of a text, of about these relative lengths.

    If it has too few words, the last are empty.
    """
    dash = _DASH.match(text)
    cuts = [cut for cut in find_cuts(text) if dash is None or cut > dash.end()]
    parts, start = list[str](), 0
    for count, length in enumerate(list(accumulate(lengths))[:-1], 1):
        goal = len(text) * length / sum(lengths)
        able = [cut for cut in cuts if cut > start]
        able = able[: max(1, len(able) - (len(lengths) - 1 - count))]
        costs = list[tuple[float, int]]()
        for cut in able:
            clause = text[max(0, cut - _LONGEST_END) : cut].rstrip()
            is_after_clause = bool(_CLAUSE_END.search(clause))
            costs.append((abs(cut - goal) - _CLAUSE * is_after_clause, cut))
        _, end = min(costs, default=(0, len(text)))
        parts.append(text[start:end].rstrip())
        start = end
    return [*parts, text[start:]]


def _build_block(speech: str, read: Callable[[str], str]) -> Block:
    """Return the text of a speech. A tag that has no partner is a mark without text."""
    builder, dash = SpanBuilder(), _DASH.match(speech)
    end = dash.end() if dash else 0
    if dash:
        builder.add_mark([dash[0], ""])
    for tag in _TAG.finditer(speech, end):
        builder.add_text(read(speech[end : tag.start()]))
        end, name = tag.end(), (tag[2] or "").lower()
        span = builder.close(name) if tag[1] else None
        if span is not None:
            span.payload[1] = tag[0]
        elif name and not tag[1]:
            builder.open(name, [tag[0], ""])
        else:
            builder.add_mark([tag[0], ""])
    builder.add_text(read(speech[end:]))
    return builder.finish()


def _wrap(text: str, count: int) -> str:
    """Wrap a text to `count` lines of about the same length without tags, or to fewer if it has too
    few words.
    """
    words = [match[0].replace("\n", " ") for match in _WORD.finditer(text)]
    seen = " ".join("x" * max(1, len(_TAG.sub("", word).strip())) for word in words)
    widths = range(max(1, -(-len(seen) // count)), len(seen) + 1)
    wrap = partial(textwrap.wrap, seen, break_long_words=False)
    least = bisect_left(widths, True, key=lambda width: len(wrap(width)) <= count)
    if least == len(widths):
        return text
    left = iter(words)
    counts = [len(line.split()) for line in wrap(widths[least])]
    return "\n".join(" ".join(islice(left, count)) for count in counts)
