"""Translated files that wait to be downloaded. They are in memory, so that nothing is left where the service ran."""

import asyncio
import re
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import NamedTuple

from .limits import Limits, Refusal

# The formats of files by the endings of their names.
ENDINGS = {
    ".txt": "text",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "xml",
    ".xml": "xml",
    ".md": "markdown",
    ".markdown": "markdown",
    ".srt": "srt",
    ".xlf": "xliff",
    ".xliff": "xliff",
}
_LONGEST_NAME = 100  # characters
_TOKEN_BYTES = 24


class TranslatedFile(NamedTuple):
    """A file that waits to be downloaded, the client that sent it, and the time at which it is deleted."""

    name: str
    content: bytes
    client: str
    deadline: float


class TranslatedFiles:
    """Keep files for some time.

    If there is no room for a file, the oldest ones of the client with the most bytes are deleted, so that a client
    with many files takes room from itself.

    Args:
        limits: `file_seconds` and `max_file_bytes`.
        clock: Returns the time in seconds.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic):
        self._limits, self._clock = limits, clock
        self._files: OrderedDict[str, TranslatedFile] = OrderedDict()

    def __len__(self) -> int:
        return len(self._files)

    def add(self, name: str, content: bytes, client: str) -> str:
        """Add a file, and return the name by which it is downloaded: a token that cannot be guessed, and its own."""
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        deadline = self._clock() + self._limits.file_seconds
        self._files[token] = TranslatedFile(name, content, client, deadline)
        self._make_room()
        asyncio.get_running_loop().call_later(self._limits.file_seconds, self._delete_old)
        return f"{token}.{name}"

    def find(self, name: str) -> TranslatedFile:
        """Return the file of a name that [`add`] returned.

        Raises:
            Refusal: 404; there is none.
        """
        self._delete_old()
        found = self._files.get(name.partition(".")[0])
        if found is None:
            rule = f"Files are deleted after {self._limits.file_seconds} seconds, or earlier if there are many"
            raise Refusal(404, f"There is no such file. {rule}. Send it again.")
        return found

    def _delete_old(self) -> None:
        while self._files and next(iter(self._files.values())).deadline <= self._clock():
            self._files.popitem(last=False)

    def _make_room(self) -> None:
        sizes: Counter[str] = Counter()
        for each in self._files.values():
            sizes[each.client] += len(each.content)
        while sizes.total() > self._limits.max_file_bytes:
            ((client, _),) = sizes.most_common(1)
            oldest = next(token for token, each in self._files.items() if each.client == client)
            sizes[client] -= len(self._files.pop(oldest).content)


def find_format(name: str) -> str:
    """Return the format of a file.

    Raises:
        Refusal: 422; the ending of its name is no known one.
    """
    ending = PurePosixPath(name).suffix.lower()
    if ending not in ENDINGS:
        raise Refusal(422, f"The name of the file must end with one of {', '.join(ENDINGS)}.")
    return ENDINGS[ending]


def name_translation(name: str, language: str) -> str:
    """Return the name of the translation of a file, which has only harmless characters."""
    path = PurePosixPath(name.replace("\\", "/"))
    stem, code = (re.sub(r"[^\w-]+", "_", text)[:_LONGEST_NAME] for text in (path.stem, language))
    return f"{stem}.{code}{path.suffix.lower()}"


__all__ = ["ENDINGS", "TranslatedFile", "TranslatedFiles", "find_format", "name_translation"]
