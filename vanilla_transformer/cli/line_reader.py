"""Read the text to translate: typed lines one by one, lines of a pipe as they arrive, lines of a file many at once."""

import os
import select
import stat
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple

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
    return Source(_split(sentences, batch_size), len(sentences))


def file_source(path: str | Path, batch_size: int) -> Source:
    """
    Return the lines of a UTF-8 file. Its name may end in `.gz` or `.xz`.

    Raises:
        OSError: There is no such file.
        ValueError: It is empty, corrupt or not UTF-8 (with the line).
    """
    from vanilla_transformer.data.readers import stream_lines

    total = sum(1 for _ in stream_lines(path))  # finds damage before an hour of work
    return Source(_split(stream_lines(path), batch_size), total)


def shard_lines(batch_size: int) -> int:
    """Return how many lines of a file are translated at once."""
    return batch_size * _BATCHES


def is_interactive() -> bool:
    """Tell whether standard input is a terminal."""
    return hasattr(sys.stdin, "isatty") and sys.stdin.isatty()


def stdin_source(batch_size: int) -> Source:
    """
    Return the lines of standard input, which need not be a terminal.

    Raises:
        OSError: Standard input is closed.
        ValueError: In iteration, a line is not UTF-8.
    """
    if sys.stdin is None:
        raise OSError("Standard input must be open, but it is closed. Give sentences, or a file by --input.")
    try:
        descriptor = sys.stdin.fileno()
    except (AttributeError, OSError):  # replaced by an object of Python
        return Source(_split((line.rstrip("\n") for line in sys.stdin), batch_size), None)
    blocks = read_blocks(descriptor, batch_size, shard_lines(batch_size))
    return Source(_decoded(blocks), _count_lines(descriptor))


def read_blocks(descriptor: int, least: int, most: int) -> Iterator[list[bytes]]:
    """
    Yield the lines of an open file in order, without line feeds, in blocks of at most `most`.

    A block ends if no more can be read without waiting and it has `least` lines, or after a pause of `PAUSE` seconds.

    Raises:
        ValueError: A line is too long.
    """
    from vanilla_transformer.data.readers.lines import LONGEST_LINE, long_line_error

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


def _split(lines: Iterable[str], batch_size: int) -> Iterator[list[str]]:
    rest = iter(lines)
    return iter(lambda: list(islice(rest, shard_lines(batch_size))), [])


def _decoded(blocks: Iterable[list[bytes]]) -> Iterator[list[str]]:
    numbers = count(1)
    for block in blocks:
        yield [_decode(number, line) for line, number in zip(block, numbers, strict=False)]


def _decode(number: int, line: bytes) -> str:
    try:
        return line.removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        found = f"line {number} has the byte 0x{line[error.start]:02x} where none can be"
        hint = "Convert it, for example with `iconv -f latin1 -t utf-8`."
        raise ValueError(f"Standard input must be UTF-8, but {found}. {hint}") from error


def _count_lines(descriptor: int) -> int | None:
    """Return the number of lines that are left in a file, or None for a pipe."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return None
    position = os.lseek(descriptor, 0, os.SEEK_CUR)
    total, last = 0, b"\n"
    while piece := os.pread(descriptor, _PIECE, position):
        total, last, position = total + piece.count(b"\n"), piece[-1:], position + len(piece)
    return total + (last != b"\n")
