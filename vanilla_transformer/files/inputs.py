"""Files that a user names: a pipe is read once, however often its text is, and endings name
compressions.
"""

import bz2
import gzip
import lzma
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from io import BufferedReader
from pathlib import Path
from typing import Any, TextIO

from vanilla_transformer.errors import UserError, UserFileError

STDIN = "-"
_NAMES_OF_STDIN = (STDIN, "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


def is_pipe(path: str | Path) -> bool:
    """Tell whether a file can be read only once: it is `-`, which is standard input, or a pipe or a
    socket.
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        mode = 0
    return str(path) == STDIN or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def open_input(path: str | Path) -> BufferedReader:
    """Open a file at its start. A pipe is read once, into a temporary file."""
    if not is_pipe(path):
        return Path(path).open("rb")
    name = "standard input" if str(path) == STDIN else str(path)
    file = _spool(str(path))
    return open(name, "rb", opener=lambda _, flags: os.open(_place(file), flags))


def read_input(path: str | Path) -> bytes:
    """Return the content of a file or a pipe, see [`open_input`]."""
    with open_input(path) as file:
        return file.read()


def forget_pipes() -> None:
    """Read pipes again that another command of this process has read."""
    _spool.cache_clear()


@cache
def _spool(path: str) -> Any:
    """Return a temporary file with the text of a pipe; on Linux it has no name that a killed
    process could leave.
    """
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if processes > 1:
        raise UserError(
            f"A pipe has one reader, but {path} would have {processes}. Write its text to a file."
        )
    create: Any = tempfile.NamedTemporaryFile
    if sys.platform == "linux":
        create = tempfile.TemporaryFile
    file = create()
    if path in _NAMES_OF_STDIN:
        shutil.copyfileobj(open_stdin().buffer, file)
    else:
        with open(path, "rb") as pipe:
            shutil.copyfileobj(pipe, file)
    file.flush()
    return file


def _place(file: Any) -> str:
    return f"/proc/self/fd/{file.fileno()}" if sys.platform == "linux" else file.name


def check_pipes(names: Iterable[str | Path | int]) -> None:
    """Refuse a pipe that is named twice. The number 0 is standard input, as `-` is."""
    pipes = []
    for name in names:
        path = STDIN if name == 0 else str(name)
        if is_pipe(path):
            pipes.append(path)
    if len(pipes) < 2:
        return
    identities: list[tuple[int, int]] = []
    for number, path in enumerate(pipes):
        facts = os.stat(open_stdin().fileno() if path == STDIN else path)
        identities.append((facts.st_dev, facts.st_ino))
        first = identities.index(identities[-1])
        if first < number:
            names_of_pipe = f"{pipes[first]} and {path}"
            raise UserError(
                f"A pipe is one input, since it is read once, got {names_of_pipe}. Write its "
                "text to a file."
            )


def open_stdin() -> TextIO:
    """Return standard input."""
    if sys.stdin is None:
        raise UserFileError(
            "Standard input must be open, but it is closed. Give a file by --input."
        )
    return sys.stdin


def compression_of(path: str | Path) -> str:
    """Return the ending of a name that says how the file is compressed, in lower case, or
    nothing.
    """
    ending = Path(path).suffix.lower()
    return ending if ending in COMPRESSIONS else ""


def _open_zst(file: Any, mode: str) -> Any:
    import pyarrow as pa

    if mode == "rb":
        stream = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")
        return BufferedReader(stream)
    kept_open = open(file.fileno(), "wb", closefd=False)  # noqa: SIM115 (pyarrow closes it)
    return pa.CompressedOutputStream(pa.PythonFile(kept_open, mode="w"), "zstd")


# How text is read from a binary file or written to it, by the ending of the name.
COMPRESSIONS: dict[str, Callable[[Any, Any], Any]] = {
    # The same text has the same bytes.
    ".gz": lambda file, mode: gzip.GzipFile("", mode, fileobj=file, mtime=0),
    ".xz": lzma.LZMAFile,
    ".bz2": bz2.BZ2File,
    ".zst": _open_zst,
}
# Endings of other files that are not text, which no command reads or writes.
BINARY_ENDINGS = {
    ".7z",
    ".rar",
    ".tar",
    ".tgz",
    ".tbz2",
    ".txz",
    ".lz",
    ".lz4",
    ".lzma",
    ".br",
    ".z",
    ".xlsx",
    ".pdf",
}
