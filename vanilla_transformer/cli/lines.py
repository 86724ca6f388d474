"""Lines as they are typed, piped or stored, and the text that `translate` writes for each one, with
progress.
"""

import json
import logging
import os
import select
import stat
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from vanilla_transformer.errors import UserError
from vanilla_transformer.files.atomic import write_text_atomically
from vanilla_transformer.files.inputs import open_stdin
from vanilla_transformer.files.text_files import (
    LONGEST_LINE,
    decode_text,
    long_line_error,
    read_lines,
    stream_lines,
)
from vanilla_transformer.files.text_folders import stream_texts
from vanilla_transformer.text.changes import DRAFT_BIAS, KEPT, Change, Segment, find_changes

if TYPE_CHECKING:
    from tqdm import tqdm

    from vanilla_transformer import TranslationPipeline
    from vanilla_transformer.decoding.corpus_shards import CorpusShards, Shard
    from vanilla_transformer.decoding.live_translation import LiveTranslation
    from vanilla_transformer.decoding.sentences import Draft

    from .translate import TranslateArguments

logger = logging.getLogger(__name__)


def print_texts(texts: Iterable[str], output: str | None = None, encoding: str = "UTF-8") -> None:
    """Print each text at once, or write all of them to a file once they are complete."""
    if output is not None:
        write_text_atomically(output, texts, encoding=encoding)
        return
    for text in texts:
        if encoding == "UTF-8":
            print(text, end="", flush=True)
        else:
            sys.stdout.buffer.write(text.encode(encoding))


def silence_libraries() -> None:
    """Turn off warnings, also of this package, and the progress bars of the libraries."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.get_logger("vanilla_transformer").setLevel(logging.ERROR)
    logging.disable_progress_bar()


PAUSE = 0.2  # seconds without a new line after which the lines of a pipe are translated
BATCHES = 64  # that are translated at once if the lines are there, sorted by length
_PIECE = 1 << 16  # bytes, the size of a pipe's buffer on Linux


class Source(NamedTuple):
    """
    Text to translate.

    Attributes:
        blocks: Lists of lines, without line feeds.
        total: The number of lines, or None if it is not known.
    """

    blocks: Iterator[list[str]]
    total: int | None


def split_lines(lines: Iterable[str], total: int | None, batch_size: int) -> Source:
    """Return lines in blocks."""
    rest, size = iter(lines), batch_size * BATCHES
    return Source(iter(lambda: list(islice(rest, size)), []), total)


def stdin_source(batch_size: int) -> Source:
    """Return the lines of standard input, and the number of those that are left of a file."""
    stdin, total = open_stdin(), None
    try:
        descriptor = stdin.fileno()
    except (AttributeError, OSError):  # replaced by an object of Python
        return split_lines((line.rstrip("\n") for line in stdin), None, batch_size)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        position, end, total = os.lseek(descriptor, 0, os.SEEK_CUR), b"\n", 0
        while piece := os.pread(descriptor, _PIECE, position):
            total = total + piece.count(b"\n")
            end = piece[-1:]
            position = position + len(piece)
        total += end != b"\n"

    def decoded() -> Iterator[list[str]]:
        first = 1
        for block in read_blocks(descriptor, batch_size, batch_size * BATCHES):
            text = decode_text(b"\n".join(block), "Standard input", first)
            yield [line.rstrip("\r") for line in text.split("\n")]
            first += len(block)

    return Source(decoded(), total)


def read_blocks(descriptor: int, least: int, most: int) -> Iterator[list[bytes]]:
    """
    Yield the lines of an open file in order, without line feeds, in blocks of at most `most`.

    A block ends if no more can be read without waiting and it has `least` lines, or after a pause
    of `PAUSE` seconds.
    """
    lines = deque[bytes]()  # whole lines
    begun = list[bytes]()  # the parts of the line that has not ended
    number, size = 1, 0  # of that line
    while True:
        wait = None if not lines else 0 if len(lines) >= least else PAUSE
        if len(lines) >= most or not select.select([descriptor], [], [], wait)[0]:
            yield [lines.popleft() for _ in range(min(most, len(lines)))]
            continue
        piece = os.read(descriptor, _PIECE)
        if not piece:
            break
        first, *others = piece.split(b"\n")
        begun.append(first)
        size += len(first)
        for start in others:
            lines.append(b"".join(begun))
            begun, size = [start], len(start)
        number += len(others)
        if size > LONGEST_LINE:
            raise long_line_error(number, "standard input")
    if any(begun):  # the last line has no line feed
        lines.append(b"".join(begun))
    while lines:
        yield [lines.popleft() for _ in range(min(most, len(lines)))]


def typed_lines(prompt: str) -> Iterator[str]:
    """Yield the lines that are typed in a terminal until Ctrl-D. Arrow keys edit them and bring
    back earlier ones.
    """
    with suppress(ImportError):  # not every build of Python has it
        import readline  # noqa: F401 (changes `input`)
    while True:
        try:
            yield input(prompt)
        except EOFError:
            if prompt:
                print()
            return
        except UnicodeDecodeError as error:
            print(f"error: A line must be UTF-8: {error}.", file=sys.stderr)


class LineTranslator:
    """
    Translate lines as the flags of `translate` say, into the text to write for each one.

    Args:
        total: The number of all lines, if it is known.
    """

    def __init__(
        self, translate: "TranslationPipeline", options: "TranslateArguments", total: int | None
    ):
        from vanilla_transformer.decoding.answers import warning_finder
        from vanilla_transformer.decoding.engine.requests import share_seed

        self.pipeline = translate
        self.options = options
        self.total = total
        model = translate.model
        self.is_scored = translate.uses_engine  # another architecture gives texts only
        if options.n_best is not None and not self.is_scored:
            requirement = "`n_best` needs a model that the engine decodes, since it lists scores"
            raise UserError(
                f"{requirement}, got {type(model).__name__}. Give --num_return_sequences instead."
            )
        if options.as_json and not (self.is_scored or options.quiet):
            kind = type(model).__name__
            logger.warning(
                "%s has no scores, tokens or warnings, so the objects have texts only.", kind
            )
        has_heads = bool(getattr(model.config, "alignment_heads", 0))
        is_calibrated = bool(getattr(model.config, "confidence", 0))
        as_objects = options.as_json and self.is_scored
        settings = {
            "num_return_sequences": options.n_best,
            "seed": share_seed(translate.default_options).get("seed"),
            "return_scores": as_objects or options.n_best is not None,
            "return_tokens": as_objects,
            "return_alignments": options.alignments or (as_objects and has_heads),
            "return_confidence": as_objects and is_calibrated,
            "return_warnings": as_objects,
        }
        self.settings = {name: value for name, value in settings.items() if value}
        # Options with a value for each line
        self.columns: dict[str, Sequence[str | Draft]] = {}
        files = {"target_prefix": options.target_prefixes, "draft": options.draft}
        for name, path in files.items():
            if path is None:
                continue
            self.columns[name] = read_lines(path)
            count = len(self.columns[name])
            if total is not None and count != total:
                requirement = f"There must be a {name.replace('_', ' ')} for each of"
                raise UserError(f"{requirement} {total} sentences, got {count} in {path}.")
        self.changes = list[Change]()
        self.kept = dict[int, str]()  # translations of an earlier version, by the number of a line
        if options.previous is not None:
            self._read_previous(options.previous)
        # Whether somebody reads the translations in a terminal; `--json` has the warnings in its
        # objects.
        shows_warnings = sys.stdout.isatty() and not (
            options.quiet or options.as_json or options.output
        )
        # Warnings by the number of the line, and those that were not printed yet
        self.warned: dict[int, list[str]] = {}
        self._unprinted: dict[int, list[str]] = {}
        self.find_warnings = None
        if shows_warnings or options.fail_on_warnings:
            self.find_warnings = warning_finder(
                translate.tokenizer, model.config, translate.default_options
            )
            self.settings["return_alignments"] = has_heads and self.is_scored
        self._shows_warnings = shows_warnings

    def _read_previous(self, paths: Sequence[str]) -> None:
        """Find what changed since an earlier version of the lines, whose translations are kept or
        become drafts.
        """
        from vanilla_transformer.decoding.sentences import Draft

        source_path, translation_path = paths
        earlier = list(stream_lines(source_path, may_be_blank=True))
        translations = list(stream_lines(translation_path, may_be_blank=True))
        if len(earlier) != len(translations):
            raise UserError(
                "--previous must be two files with as many lines, a text and its translation, got "
                f"{len(earlier)} and {len(translations)}."
            )
        assert self.options.input is not None
        lines = stream_texts(self.options.input, may_be_blank=True, may_be_markup=True)
        segments = [Segment(line, line) for line in lines]
        versions = [Segment(line, line) for line in earlier]
        self.changes = find_changes(segments, versions)
        drafts = [Draft("")] * len(self.changes)
        for number, change in enumerate(self.changes):
            if change.earlier is not None:
                draft = translations[change.earlier]
                drafts[number] = Draft(draft, source=earlier[change.earlier])
            if change.kind == KEPT:
                self.kept[number] = drafts[number].text
        if len(self.kept) < len(drafts) and self.options.num_beams in (None, 1):
            self.columns["draft"] = drafts
            self.settings["draft_bias"] = DRAFT_BIAS

    def answer(self, shard: "Shard", **settings: Any) -> list[str]:
        """Return the text to write for each line of a shard."""
        from vanilla_transformer.decoding.answers import rename_text

        options, all_numbers = self.options, range(shard.start, shard.start + len(shard.lines))
        numbers, sources = list[int](), list[str]()
        for number, line in zip(all_numbers, shard.lines, strict=True):
            if number not in self.kept:
                numbers.append(number)
                sources.append(line)
        for name, values in self.columns.items():
            settings[name] = [values[number] for number in numbers]
        if options.tab_constraints:  # each line has its own after the sentence
            cells = [line.split("\t") for line in sources]
            shared = options.constraint or []
            sources = [sentence for sentence, *_ in cells]
            settings["constraints"] = [
                [*words, *(shared if sentence.strip() else [])] for sentence, *words in cells
            ]
        answers = self.pipeline(
            list(sources), options.batch_size, False, **{**self.settings, **settings}
        )
        rows = [answer if isinstance(answer, list) else [answer] for answer in answers]
        if self.find_warnings is not None:
            for number, source, row in zip(numbers, sources, rows, strict=True):
                text, links = row[0]["translation_text"], row[0].get("alignment", ())
                if names := self.find_warnings(source, text, links):
                    self.warned[number] = self._unprinted[number] = names
        if self.kept:
            row_of = dict(zip(numbers, rows, strict=True))
            for number in all_numbers:
                row_of.setdefault(number, [{"translation_text": self.kept.get(number)}])
            sources, rows = shard.lines, [row_of[number] for number in all_numbers]
        if options.as_json:
            lines = []
            for number, source, row in zip(all_numbers, sources, rows, strict=True):
                translations = [rename_text(answer) for answer in row]
                entry = {"source": source, "translations": translations}
                if self.changes:
                    entry["previous"] = self.changes[number].kind
                lines.append(json.dumps(entry, ensure_ascii=False))
            return lines
        texts = []
        for source, row in zip(sources, rows, strict=True):
            texts.append("\n".join(_as_text(source, answer, options.alignments) for answer in row))
        return texts

    def work(
        self, shards: Iterable["Shard"], store: "CorpusShards | None" = None
    ) -> Iterator[tuple["Shard", list[str]]]:
        """Yield each shard with its texts, and show how many of all lines are done.

        Args:
            store: The shards of the file that is written, if there is one.
        """
        from vanilla_transformer.decoding.corpus_shards import progress_bar

        done = 0 if store is None else store.finished_lines
        unit_lines = self.options.batch_size * BATCHES
        with progress_bar(self.total, done, hidden=self.options.quiet) as bar:
            for shard in shards:
                texts = list[str]()
                for unit in shard.units(unit_lines):
                    show = _line_counter(bar, len(unit.lines))
                    texts += self.answer(unit, progress=show)
                    show(1, 1)  # also a block without a sentence
                bar.clear()  # from the terminal to which the text may go
                yield shard, texts

    def texts(self, blocks: Iterable[list[str]]) -> Iterator[str]:
        """Yield the text to write for each block of lines, and print the warnings about it."""
        from vanilla_transformer.decoding.corpus_shards import number_shards

        for _, texts in self.work(number_shards(blocks)):
            yield "".join(f"{text}\n" for text in texts)
            self._print_warnings(is_alone=self.total == 1)

    def converse(self) -> None:
        """Translate the lines that are typed in a terminal, one by one."""
        from vanilla_transformer.decoding.corpus_shards import Shard

        shows_scores = (self.options.num_return_sequences or 1) > 1 and self.is_scored
        settings = {"return_scores": True} if shows_scores else {}
        prompted = sys.stdout.isatty() and not self.options.quiet
        if prompted:
            print("Type a sentence and press Enter. Ctrl-D ends.", file=sys.stderr)
        for number, line in enumerate(typed_lines("> " if prompted else "")):
            print(*self.answer(Shard(number, number, [line]), **settings), flush=True)
            self._print_warnings(is_alone=True)

    def _print_warnings(self, is_alone: bool) -> None:
        """Print the warnings that were not printed yet."""
        from vanilla_transformer.text.translation_warnings import describe_warnings

        for number, names in self._unprinted.items() if self._shows_warnings else ():
            location = "" if is_alone else f"line {number + 1}: "
            print(f"warning: {location}{describe_warnings(names)}.", file=sys.stderr, flush=True)
        self._unprinted.clear()


def live_lines(
    live: "LiveTranslation", blocks: Iterable[list[str]], as_json: bool
) -> Iterator[str]:
    """Yield the text to write for each line, which is a growing text as it is at the moment; a
    blank one ends it.
    """
    has_text = False
    for line in chain(chain.from_iterable(blocks), [""]):
        if not (line.strip() or has_text):
            continue
        has_text = bool(line.strip())
        update = live.update(line) if has_text else live.finish()
        text = update.text[: update.stable].rstrip()
        if as_json:
            text = json.dumps({**update._asdict(), "final": not has_text}, ensure_ascii=False)
        yield f"{text}\n"


_MOST_DOUBTS = 5  # that a line lists


def report_doubts(
    positions: Iterable[str], doubts: Mapping[int, Sequence[str]], total: object, fails: bool
) -> None:
    """Print how many of the translations that were written have warnings, and the first ones, or
    refuse them.

    Args:
        positions: Names of the doubtful ones.
    """
    examples = []
    for position, names in islice(zip(positions, doubts.values(), strict=True), _MOST_DOUBTS):
        examples.append(f"{position} ({', '.join(names)})")
    summary = f"{len(doubts)} of {total} translations have warnings: {', '.join(examples)}"
    if doubts and fails:
        raise UserError(
            f"With --fail_on_warnings none may have one, but {summary}. The output is written. "
            "Check them."
        )
    if doubts:
        print(f"warning: {summary}.", file=sys.stderr)


def _line_counter(bar: "tqdm", lines: int) -> Callable[[int, int], None]:
    """Return a function that moves a bar by the lines of a block, which have no sentence, one or
    several.

    It is called with the number of sentences that are done, and of all.
    """
    shown = 0

    def show(done: int, total: int) -> None:
        nonlocal shown
        bar.update(lines * done // total - shown)
        shown = lines * done // total

    return show


def _as_text(source: str, answer: Mapping[str, Any], has_alignment: bool) -> str:
    """Return a translation, after its score and before its alignment if these were requested."""
    text = answer["translation_text"]
    score = f"{answer['score']:.4f}\t" if "score" in answer else ""
    if not has_alignment:
        return f"{score}{text}"
    from vanilla_transformer.decoding.unit_links import moses_pairs

    return f"{score}{text} ||| {moses_pairs(source, text, answer['alignment'])}"
