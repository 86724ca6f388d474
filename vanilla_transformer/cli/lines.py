"""Read lines as they are typed, piped or stored, and write the translations of each line, with progress."""

import json
import os
import select
import stat
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from vanilla_transformer.utils.file_utils import write_text_atomically
from vanilla_transformer.utils.input_files import open_stdin
from vanilla_transformer.utils.text_files import LONGEST_LINE, decode_line, long_line_error, stream_lines


def print_texts(texts: Iterable[str], output: str | None = None) -> None:
    """Print each text at once, or write all of them to a file once they are complete."""
    if output is not None:
        write_text_atomically(output, texts)
        return
    for text in texts:
        print(text, end="", flush=True)


class BlockProgress:
    """
    Move a bar that counts the lines of a text while a block of them is translated.

    Args:
        lines: Lines of the block. Each has no sentence, one or several.
    """

    def __init__(self, bar: Any, lines: int):
        self._bar, self._lines, self._place = bar, lines, 0

    def __call__(self, done: int, total: int) -> None:
        """Show that so many of all sentences of the block are done."""
        place = self._lines * done // total
        self._bar.update(place - self._place)
        self._place = place

    def finish(self) -> None:
        """Show that the whole block is done, also one without a sentence."""
        self(1, 1)


def silence_libraries() -> None:
    """Turn off warnings, also of this package, and the progress bars of the libraries."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.get_logger("vanilla_transformer").setLevel(logging.ERROR)
    logging.disable_progress_bar()


PAUSE = 0.2  # seconds without a new line after which the lines of a pipe are translated
_BATCHES = 64  # that are translated at once if the lines are there, sorted by length
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


def given_source(sentences: Sequence[str], batch_size: int) -> Source:
    """Return the sentences of a command line."""
    return Source(_split_blocks(sentences, batch_size), len(sentences))


def file_source(path: str | Path, batch_size: int) -> Source:
    """Return the lines of a UTF-8 file, decompressed as its name requires."""
    total = sum(1 for _ in stream_lines(path, may_be_blank=True))  # finds damage before an hour of work
    return Source(_split_blocks(stream_lines(path, may_be_blank=True), batch_size), total)


def shard_lines(batch_size: int) -> int:
    """Return how many lines of a file are translated at once."""
    return batch_size * _BATCHES


def is_interactive() -> bool:
    """Tell whether standard input is a terminal."""
    return hasattr(sys.stdin, "isatty") and sys.stdin.isatty()


def stdin_source(batch_size: int) -> Source:
    """Return the lines of standard input."""
    stdin = open_stdin()
    try:
        descriptor = stdin.fileno()
    except (AttributeError, OSError):  # replaced by an object of Python
        return Source(_split_blocks((line.rstrip("\n") for line in stdin), batch_size), None)
    return Source(_decode(read_blocks(descriptor, batch_size, shard_lines(batch_size))), _count_lines(descriptor))


def read_blocks(descriptor: int, least: int, most: int) -> Iterator[list[bytes]]:
    """
    Yield the lines of an open file in order, without line feeds, in blocks of at most `most`.

    A block ends if no more can be read without waiting and it has `least` lines, or after a pause of `PAUSE` seconds.
    """
    lines, begun = deque[bytes](), list[bytes]()  # whole lines, and the parts of the line that has not ended
    number, size = 1, 0  # of that line
    while True:
        wait = None if not lines else 0 if len(lines) >= least else PAUSE
        if len(lines) >= most or not select.select([descriptor], [], [], wait)[0]:
            yield _take(lines, most)
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
        yield _take(lines, most)


def typed_lines(prompt: str) -> Iterator[str]:
    """Yield the lines that are typed in a terminal until Ctrl-D. Arrow keys edit them and bring back earlier ones."""
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


def _take(lines: deque[bytes], most: int) -> list[bytes]:
    return [lines.popleft() for _ in range(min(most, len(lines)))]


def _split_blocks(lines: Iterable[str], batch_size: int) -> Iterator[list[str]]:
    rest = iter(lines)
    return iter(lambda: list(islice(rest, shard_lines(batch_size))), [])


def _decode(blocks: Iterable[list[bytes]]) -> Iterator[list[str]]:
    first = 1
    for block in blocks:
        yield [decode_line(line, number, "Standard input") for number, line in enumerate(block, start=first)]
        first += len(block)


def _count_lines(descriptor: int) -> int | None:
    """Return the number of lines that are left in a file, or None for a pipe."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return None
    position = os.lseek(descriptor, 0, os.SEEK_CUR)
    total, last = 0, b"\n"
    while piece := os.pread(descriptor, _PIECE, position):
        total, last, position = total + piece.count(b"\n"), piece[-1:], position + len(piece)
    return total + (last != b"\n")


def answer_lines(
    translate: Any,
    lines: Sequence[str],
    options: Any,
    settings: Mapping[str, Any],
    warned: dict[int, list[str]] | None = None,
) -> list[str]:
    """Return the text to write for each of some lines.

    Args:
        warned: Gets the warnings about the best translation of each line that has some, by its index.
    """
    sources, constraints = list(lines), dict[str, Any]()
    if options.tab_constraints:  # each line has its own after the sentence
        cells, shared = [line.split("\t") for line in lines], options.constraint or []
        sources = [sentence for sentence, *_ in cells]
        constraints["constraints"] = [[*words, *(shared if sentence.strip() else [])] for sentence, *words in cells]
    answers = translate(sources, options.batch_size, False, **{**settings, **constraints})
    rows = [answer if isinstance(answer, list) else [answer] for answer in answers]
    if warned is not None:
        from vanilla_transformer.text.translation_warnings import WarningLimits, find_warnings

        limits = WarningLimits.from_config(getattr(translate.model, "config", None))
        for index, (source, row) in enumerate(zip(sources, rows, strict=True)):
            if names := find_warnings(source, row[0]["translation_text"], limits):
                warned[index] = names
    if not options.as_json:
        return [_as_text(source, row) for source, row in zip(sources, rows, strict=True)]
    from vanilla_transformer.decoding.answers import rename_text

    answers_of = zip(sources, ([rename_text(answer) for answer in row] for row in rows), strict=True)
    return [json.dumps({"source": source, "translations": row}, ensure_ascii=False) for source, row in answers_of]


def _as_text(source: str, answers: Sequence[Mapping[str, Any]]) -> str:
    """Return the translations, one a line, after their scores and before their alignments if these were requested."""
    lines = []
    for answer in answers:
        text = answer["translation_text"]
        score = f"{answer['score']:.4f}\t" if "score" in answer else ""
        pairs = ""
        if "alignment" in answer:
            from vanilla_transformer.extensions.alignments.unit_links import moses_pairs

            pairs = f" ||| {moses_pairs(source, text, answer['alignment'])}"
        lines.append(f"{score}{text}{pairs}")
    return "\n".join(lines)
