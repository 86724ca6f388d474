"""
Work on the lines of a corpus shard by shard, so that a run that was killed continues after its last
whole shard.

    >>> key = {"input": hash_file(path), "model": hash_model(name), "options": options}
    >>> shards = CorpusShards("out.partial", key)
    >>> with shards.held(resume=True):
    ...     # One result for each line
    ...     shards.complete(stream_lines(path), partial(work_in_turn, work=translate))
    ...     write_text_atomically("out", shards.results(total))
    ...     shards.delete()

Shards may be written in any order, see [`CorpusShards.unfinished`] and [`CorpusShards.write`].
"""

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count, islice, takewhile
from pathlib import Path
from typing import Any, NamedTuple

from transformers.utils import logging

from vanilla_transformer.errors import UserError
from vanilla_transformer.files.atomic import write_text_atomically
from vanilla_transformer.files.inputs import open_input
from vanilla_transformer.files.json_files import read_json
from vanilla_transformer.files.outputs import lock_folder
from vanilla_transformer.files.temporary import sync

logger = logging.get_logger(__name__)

# Enough for batches of similar lengths
SHARD_LINES = 2048
# A corpus has as many files, each of the lines that are worked on at once, until they have the most
# lines. So a killed process loses a thousandth of the work, and a folder of a billion lines has ten
# thousand files.
_FILES, _MOST_LINES = 1000, 100_000
_MANIFEST = "manifest.json"
_ENDING = ".partial"  # of the folder, after the name of the output
# Names of results, and of the files of killed writers
_OWN_NAME = re.compile(r"\d{6}\.(?:txt|json)|\.(\d{6}\.txt|manifest\.json)\..*")
# The lines of a shard, their hash and the hash of the results
_FILE = re.compile(r"(\d+) (\w{64}) (\w{64})\n(.*)", re.DOTALL)
_PATIENCE = 2  # seconds of work before a progress bar is shown


class Shard(NamedTuple):
    """
    Lines of a corpus that are translated together.

    Attributes:
        number: Number of the shard, from 0.
        start: The number of lines before it.
        lines: Without line feeds.
    """

    number: int
    start: int
    lines: list[str]

    def __str__(self) -> str:
        return f"Lines {self.start + 1:,} to {self.start + len(self.lines):,}"

    def units(self, lines: int) -> Iterator["Shard"]:
        """Yield parts of so many lines, numbered over the corpus: results do not depend on the size
        of the files.
        """
        for first in range(0, len(self.lines), lines):
            start = self.start + first
            yield Shard(start // lines, start, self.lines[first : first + lines])


class _Finished(NamedTuple):
    lines: int
    source: str  # hash of the lines
    results: str


ShardWork = Callable[[Shard], Sequence[str]]  # returns one result for each line
# Yields shards with their results, or with None if a worker has written them.
Work = Callable[[Iterator[Shard], "CorpusShards"], Iterable[tuple[Shard, Sequence[str] | None]]]


class CorpusShards:
    """
    The results of each shard of a corpus, a file for each, in a folder with a manifest of their
    origin.

    Args:
        folder: It holds one run at a time; see [`held`].
        origin: The identity of the input, the model and the options, as JSON. A run continues
            shards with the same origin only. A mapping in it tells which of its entries differs.
        unit_lines: Lines that are worked on at once.
        total: The number of lines, if it is known. A shard has one unit or, of a large corpus,
            several. A run that continues keeps the size that it began with.
    """

    def __init__(
        self,
        folder: str | Path,
        origin: Mapping[str, Any],
        unit_lines: int = SHARD_LINES,
        total: int = 0,
    ):
        self.folder, self.unit_lines, self.total = Path(folder), unit_lines, total
        share = min(total // _FILES, _MOST_LINES)
        self.shard_lines = unit_lines * max(1, math.ceil(share / unit_lines))
        self.origin: dict[str, Any] = json.loads(json.dumps(origin))  # as it will be read
        self.finished_lines = 0
        # The lines and their hash in each file, or None if it is damaged, when the folder is opened
        self._before = dict[int, tuple[int, str] | None]()
        self._again = f"Delete {folder} to start again."

    @classmethod
    def beside(
        cls,
        output: Path,
        origin: Mapping[str, Any],
        unit_lines: int = SHARD_LINES,
        total: int = 0,
    ) -> "CorpusShards":
        """Return the shards of a file that is not complete yet, in a folder `NAME.partial` beside
        it.
        """
        return cls(output.with_name(f"{output.name}{_ENDING}"), origin, unit_lines, total)

    @contextmanager
    def held(self, resume: bool) -> Iterator[None]:
        """Hold the folder for this process and open it.

        In the end it is deleted if no shard is finished.
        """
        with lock_folder(self.folder):
            self.open(resume)
            try:
                yield
            finally:
                if not self.finished_lines:
                    self.delete()

    def open(self, resume: bool) -> None:
        """Create the folder, or read how many lines are finished in it."""
        path = self.folder / _MANIFEST
        if path.exists():
            try:
                manifest = read_json(path)
                origin = dict(manifest["origin"])
                shard_lines = int(manifest["shard_lines"])
            except (ValueError, TypeError, LookupError) as error:
                requirement = f"{path} must describe {self.folder}"
                raise UserError(f"{requirement}, but it is damaged. {self._again}") from error
            for file in self.folder.glob("[0-9]*.txt"):
                if _OWN_NAME.fullmatch(file.name):
                    finished = self._read(int(file.stem))
                    self._before[int(file.stem)] = finished and finished[:2]
            self.finished_lines = sum(row[0] for row in self._before.values() if row)
            if self.finished_lines and (resume or not self._are_written()):
                if not resume:
                    leftover = (
                        f"{self.folder} has {self.finished_lines:,} sentences of an interrupted run"
                    )
                    raise UserError(f"{leftover}. Add --resume to continue it. {self._again}")
                self._check_origin(origin)
                self.shard_lines = shard_lines
                return
        elif self.folder.is_dir():
            all_names = [path.name for path in self.folder.iterdir()]
            foreign = next((name for name in all_names if not name.startswith(".")), None)
            if foreign is not None:
                requirement = f"{self.folder} must be a folder that an interrupted run left"
                raise UserError(
                    f"{requirement}, but it has {foreign} and no {_MANIFEST}. Move it, or choose "
                    "another output."
                )
        self.delete()
        manifest = {"origin": self.origin, "shard_lines": self.shard_lines}
        write_text_atomically(path, json.dumps(manifest, indent=2) + "\n")

    def _are_written(self) -> bool:
        """Return whether the output has these results and no others: a crash has left them beside
        it.
        """
        output = self.folder.with_name(self.folder.name.removesuffix(_ENDING))
        if not output.is_file():
            return False
        shards = takewhile(bool, map(self._read, count()))
        texts = (shard.results.encode() for shard in shards if shard is not None)
        with open_input(output) as file:
            has_results = all(file.read(len(text)) == text for text in texts)
            return has_results and not file.read(1)

    def _check_origin(self, before: Mapping[str, Any]) -> None:
        changed = [name for name, value in self.origin.items() if before.get(name) != value]
        name = changed[0] if changed else None
        if name is None:
            return
        difference = f"the {name} is another one"
        old = before.get(name)
        new = self.origin[name]
        if name == "options" and isinstance(old, dict):
            option = next(key for key in {**old, **new} if old.get(key) != new.get(key))
            before_value, value = old.get(option), new.get(option)
            difference = f"`{option}` was {before_value!r} and is {value!r}"
        requirement = f"An interrupted run must continue with the same {name} as {self.folder}"
        raise UserError(f"{requirement}, but {difference}. {self._again}")

    def identity(self) -> tuple[int, int]:
        """Return what tells this folder from one of the same name on another machine."""
        status = (self.folder / _MANIFEST).stat()
        return status.st_ino, status.st_mtime_ns

    def complete(self, lines: Iterable[str], work: Work) -> None:
        """Write the result of each shard of a corpus that has none yet."""
        for shard, results in work(self.unfinished(lines), self):
            if results is None:
                self.finished_lines += len(shard.lines)
            else:
                self.write(shard, results)

    def unfinished(self, lines: Iterable[str]) -> Iterator[Shard]:
        """Yield the shards of a corpus that have no result yet."""
        rest = iter(lines)
        blocks = iter(lambda: list(islice(rest, self.shard_lines)), [])
        for shard in number_shards(blocks):
            finished = self._before.get(shard.number)
            if finished is None:
                if shard.number in self._before:
                    message = "The result of shard %d in %s is damaged. It is made again."
                    logger.warning(message, shard.number, self.folder)
                yield shard
            elif finished != (len(shard.lines), _hash(_join(shard.lines))):
                requirement = f"{shard} must be the ones from which {self.folder} was made"
                raise UserError(f"{requirement}, but they differ. {self._again}")

    def write(self, shard: Shard, results: Sequence[str]) -> None:
        """Store the result of each line of a shard, a text of one or several lines without the last
        line feed.
        """
        if len(results) != len(shard.lines):
            raise UserError(f"{shard} must have one result each, got {len(results):,}.")
        text = _join(results)
        hash_of_lines = _hash(_join(shard.lines))
        record = f"{len(shard.lines)} {hash_of_lines} {_hash(text)}\n"
        write_text_atomically(self._place(shard.number), [record, text])
        self.finished_lines += len(shard.lines)

    def results(self, total: int) -> Iterator[str]:
        """
        Yield the result of each shard in order.

        Args:
            total: The number of lines of the corpus.
        """
        for number, start in enumerate(range(0, total, self.shard_lines)):
            finished = self._read(number)
            expected = min(self.shard_lines, total - start)
            if finished is None or finished.lines != expected:
                requirement = (
                    f"{self.folder} must have the results of {expected:,} lines as shard {number}"
                )
                raise UserError(f"{requirement}, but they are missing or damaged. {self._again}")
            yield finished.results

    def result_lines(self, total: int) -> Iterator[str]:
        """Yield the lines of the results in order, see [`results`]."""
        for text in self.results(total):
            yield from text.removesuffix("\n").split("\n")

    def delete(self) -> None:
        """Delete the files of shards, the manifest last, by which the folder is known, and the
        folder.
        """
        for path in self.folder.glob("*"):
            if _OWN_NAME.fullmatch(path.name):
                path.unlink()
        (self.folder / _MANIFEST).unlink(missing_ok=True)
        if self.folder.is_dir():
            sync(self.folder)  # or the files are there again after a power loss
        self.finished_lines = 0
        self._before.clear()
        with suppress(OSError):  # it does not exist, is held, or has files of others
            self.folder.rmdir()

    def _place(self, number: int) -> Path:
        return self.folder / f"{number:06}.txt"

    def _read(self, number: int) -> _Finished | None:
        """Return the results of a shard, or None if they are missing or damaged."""
        path = self._place(number)
        if not path.exists():
            return None
        content = path.read_bytes().decode(errors="replace")
        match = _FILE.fullmatch(content)
        if match is None or _hash(match[4]) != match[3]:
            return None
        return _Finished(int(match[1]), match[2], match[4])


def write_shards(
    output: Path,
    lines: Iterable[str],
    total: int,
    origin: Mapping[str, Any],
    unit_lines: int,
    resume: bool,
    work: Work,
) -> None:
    """
    Write a file with the result of each line, and keep finished shards beside it until it is
    complete.

    Args:
        total: The number of lines.
        resume: Continue a run that was killed.
    """
    shards = CorpusShards.beside(output, origin, unit_lines, total)
    with shards.held(resume):
        try:
            shards.complete(lines, work)
        except KeyboardInterrupt as interruption:
            done = shards.finished_lines
            hint = "."
            if done:
                hint = f" after {done:,} sentences. Add --resume to continue."
            raise KeyboardInterrupt(f"Interrupted{hint}") from interruption
        if shards.finished_lines != total:
            progress = f"{shards.finished_lines:,} of {total:,} lines"
            requirement = "The input must not change while it is read"
            raise UserError(f"{requirement}, but it did: {progress} have results.")
        write_text_atomically(output, shards.results(total))
        shards.delete()


def work_in_turn(
    shards: Iterable[Shard], store: CorpusShards, work: ShardWork
) -> Iterator[tuple[Shard, list[str]]]:
    """Yield each shard with its results, and show progress on a terminal."""
    with progress_bar(store.total or None, store.finished_lines, hidden=False) as bar:
        for shard in shards:
            results = list[str]()
            for unit in shard.units(store.unit_lines):
                results += work(unit)
                bar.update(len(unit.lines))
            yield shard, results


def progress_bar(total: int | None, done: int, hidden: bool) -> Any:
    """Return a progress bar on standard error that counts sentences, shown on a terminal if work
    takes seconds.
    """
    options = {"unit": "sentence", "desc": "Translating", "delay": _PATIENCE, "dynamic_ncols": True}
    # None hides it where standard error is no terminal.
    disable = True if hidden else None
    return logging.tqdm(total=total, initial=done, disable=disable, **options)


def number_shards(blocks: Iterable[list[str]]) -> Iterator[Shard]:
    start = 0
    for number, lines in enumerate(blocks):
        yield Shard(number, start, lines)
        start += len(lines)


def _join(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
