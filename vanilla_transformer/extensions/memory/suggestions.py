"""
Corrections that clients send to a service: a log for each API key, in which each one is on the disk
before the service answers.

A log is a file of JSON lines, named by a hash of its key. A line is a suggestion, or takes back the
one with its `id`. A part of a line that a killed process has left is cut off.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import regex

from vanilla_transformer.errors import UserError
from vanilla_transformer.files.temporary import sync
from vanilla_transformer.text.languages import Direction
from vanilla_transformer.text.translation_warnings import WarningLimits, find_warnings
from vanilla_transformer.text.values import is_faithful

from .memory import TranslationMemory

# A suggestion as the service lists it: `id`, the texts `q` and `s`, the languages `source` and
# `target`, and the `warnings` for which it is kept aside.
Entry = dict[str, Any]
_BAD = ("copy", "repetition", "numbers", "script", "characters")
_LOST = "placeholders"
_NOT_IN_XML = regex.compile(r"[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]")


def find_faults(source: str, target: str, limits: WarningLimits) -> list[str]:
    """Return the warnings for which a suggestion is not used."""
    names = [name for name in find_warnings(source, target, limits) if name in _BAD]
    if "numbers" not in names and not is_faithful(source, target):
        names.append(_LOST)
    return names


class SuggestionLog:
    """
    The suggestions of an API key.

    Args:
        path: File of the log.

    Attributes:
        entries: The suggestions by their `id`.
    """

    def __init__(self, path: Path):
        self._path, self._lock = path, Lock()
        self.entries = dict[int, Entry]()
        self._memories = dict[Direction, TranslationMemory]()
        self._last = 0
        content = path.read_bytes() if path.exists() else b""
        self._size = content.rfind(b"\n") + 1  # of whole lines
        for number, line in enumerate(content[: self._size].splitlines(), start=1):
            try:
                self._apply(json.loads(line))
            except (ValueError, LookupError, TypeError) as error:
                raise UserError(
                    f"Line {number} of {path} must be a suggestion, but it is damaged: {error}. "
                    "Remove it."
                ) from error

    def _apply(self, entry: Entry) -> None:
        """Add a suggestion, or remove the one that an entry takes back."""
        self._last = max(self._last, entry["id"])
        if "q" not in entry:
            removed = self.entries.pop(entry["id"])
            self._memories.pop(_direction_of(removed), None)
            return
        self.entries[entry["id"]] = entry
        memory = self._memories.get(_direction_of(entry))
        if memory is not None and not entry["warnings"]:
            memory.add(entry["q"], entry["s"])

    def _write(self, entry: Entry) -> None:
        """Write an entry, wait until it is on the disk, and apply it."""
        line = f"{json.dumps(entry, ensure_ascii=False)}\n".encode()
        with open(self._path, "ab") as file:
            file.truncate(self._size)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        sync(self._path.parent)
        self._size += len(line)
        self._apply(entry)

    def add(
        self, source: str, target: str, direction: Direction, warnings: Sequence[str] = ()
    ) -> Entry:
        """Store a suggestion, and return it."""
        with self._lock:
            entry = {"id": self._last + 1, "q": source, "s": target}
            entry |= {**direction._asdict(), "warnings": [*warnings]}
            self._write(entry)
            return entry

    def remove(self, number: int) -> bool:
        """Take back a suggestion, and return whether there was one."""
        with self._lock:
            if number not in self.entries:
                return False
            self._write({"id": number})
            return True

    def memory(
        self, direction: Direction, base: TranslationMemory | None
    ) -> TranslationMemory | None:
        """Return the memory of the suggestions that are used, over another one."""
        with self._lock:
            if direction not in self._memories:
                entries = used_entries(self.entries.values(), direction)
                targets = {entry["q"]: entry["s"] for entry in entries}
                if not targets:
                    return base
                self._memories[direction] = TranslationMemory(targets.items(), base)
            return self._memories[direction]


class Suggestions:
    """The suggestions of all API keys, in a folder."""

    def __init__(self, folder: str | Path):
        self._folder = Path(folder)
        self._logs = dict[str, SuggestionLog]()

    def log(self, key: str) -> SuggestionLog:
        """Return the log of a key, which is read when it is first needed."""
        name = hashlib.sha256(key.encode(errors="surrogateescape")).hexdigest()
        if name not in self._logs:
            self._logs[name] = SuggestionLog(self._folder / f"{name}.jsonl")
        return self._logs[name]


def read_suggestions(folder: str | Path) -> Iterator[Entry]:
    """Yield the suggestions of all keys of a folder."""
    paths = sorted(Path(folder).glob("*.jsonl"))
    if not paths:
        raise UserError(f"{folder} must be the folder of `serve --suggestions`, got no logs there.")
    for path in paths:
        yield from SuggestionLog(path).entries.values()


def used_entries(entries: Iterable[Entry], direction: Direction | None = None) -> Iterator[Entry]:
    """Yield the suggestions that are used, of one direction or of all."""
    for entry in entries:
        if not entry["warnings"] and direction in (None, _direction_of(entry)):
            yield entry


def _direction_of(entry: Mapping[str, Any]) -> Direction:
    return Direction(entry["source"], entry["target"])


def write_tmx(entries: Iterable[Entry]) -> Iterator[str]:
    """Yield the lines of a file in TMX 1.4, of the suggestions that are used."""
    yield '<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4">\n<header'
    yield ' creationtool="vanilla-transformer" creationtoolversion="1" segtype="block"'
    yield ' o-tmf="suggestions" adminlang="en" srclang="*all*" datatype="plaintext"/>\n<body>\n'
    for entry in used_entries(entries):
        yield "<tu>"
        for code, text in ((entry["source"], entry["q"]), (entry["target"], entry["s"])):
            shown = escape(_NOT_IN_XML.sub(" ", text))
            yield f"<tuv xml:lang={quoteattr(code)}><seg>{shown}</seg></tuv>"
        yield "</tu>\n"
    yield "</body>\n</tmx>\n"
