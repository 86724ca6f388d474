"""
Work on the lines of a corpus shard by shard, so that a run that was killed continues after its last whole shard.

    >>> shards = CorpusShards("out.partial", {"input": hash_file(path), "model": hash_model(name), "options": options})
    >>> with shards.held(resume=True):
    ...     shards.complete(stream_lines(path), lambda shard: translate(shard.lines))  # one result for each line
    ...     write_text_atomically("out", shards.results(total))
    ...     shards.delete()

Shards may be written in any order, see [`CorpusShards.unfinished`] and [`CorpusShards.write`].
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from transformers.utils import logging

from vanilla_transformer.errors import UserError, UserFileError
from vanilla_transformer.utils.file_utils import hash_file, lock_folder, read_json, write_text_atomically

logger = logging.get_logger(__name__)

SHARD_LINES = 2048  # enough for batches of similar lengths; a killed run loses at most the work on so many lines
_MANIFEST = "manifest.json"
# Of results and records, and of files of writers that were killed.
_OWN_NAME = re.compile(r"\d{6,}\.(json|txt)|\.(\d{6,}\.(json|txt)|manifest\.json)\..*")
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


class CorpusShards:
    """
    The results of each shard of a corpus, in a folder with a manifest of their origin.

    A result and its record are written aside and renamed. The record, written last, has the number and the hash of the
    lines of the shard, and the hash of its result.

    Args:
        folder: It holds one run at a time; see [`held`].
        origin: The identity of the input, the model and the options, as JSON. A run continues shards with the same
            origin only. A mapping in it tells which of its entries differs.
        shard_lines: Lines of a shard, except the last one. A run that continues keeps the size that it began with.
    """

    def __init__(self, folder: str | Path, origin: Mapping[str, Any], shard_lines: int = SHARD_LINES):
        self.folder, self.shard_lines = Path(folder), shard_lines
        self.origin: dict[str, Any] = json.loads(json.dumps(origin))  # as it will be read
        self.finished_lines = 0

    @classmethod
    def beside(cls, output: Path, origin: Mapping[str, Any], shard_lines: int = SHARD_LINES) -> "CorpusShards":
        """Return the shards of a file that is not complete yet, in a folder `NAME.partial` beside it."""
        return cls(output.with_name(f"{output.name}.partial"), origin, shard_lines)

    @contextmanager
    def held(self, resume: bool) -> Iterator[None]:
        """Hold the folder for this process and open it. In the end it is deleted if no shard is finished."""
        with lock_folder(self.folder):
            self.open(resume)
            try:
                yield
            finally:
                if not self.finished_lines:
                    self.delete()

    def open(self, resume: bool) -> None:
        """Create the folder, or read how many lines are finished in it."""
        if self.folder.is_dir() and (self.folder / _MANIFEST).exists():
            manifest = _read_object(self.folder / _MANIFEST, {"origin": dict, "shard_lines": int})
            if manifest is None:
                rule = f"{self.folder / _MANIFEST} must describe {self.folder}"
                raise UserError(f"{rule}, but it is damaged. {self._again}")
            records = [self._read_record(path) for path in self.folder.glob("[0-9]*.json") if path.stem.isdigit()]
            self.finished_lines = sum(record["lines"] for record in records if record is not None)
            if self.finished_lines:
                if not resume:
                    found = f"{self.folder} has {self.finished_lines:,} sentences of an interrupted run"
                    raise UserError(f"{found}. Add --resume to continue it. {self._again}")
                for name, value in self.origin.items():
                    if manifest["origin"].get(name) != value:
                        rule = f"An interrupted run must continue with the same {name} as {self.folder}"
                        difference = _difference(name, manifest["origin"].get(name), value)
                        raise UserError(f"{rule}, but {difference}. {self._again}")
                self.shard_lines = manifest["shard_lines"]
                return
        elif self.folder.is_dir():
            foreign = next((path.name for path in self.folder.iterdir() if not path.name.startswith(".")), None)
            if foreign is not None:
                rule = f"{self.folder} must be a folder that an interrupted run left"
                raise UserError(f"{rule}, but it has {foreign} and no {_MANIFEST}. Move it, or choose another output.")
        self.delete()
        manifest = {"origin": self.origin, "shard_lines": self.shard_lines}
        write_text_atomically(self.folder / _MANIFEST, json.dumps(manifest, indent=2) + "\n")

    def complete(
        self, lines: Iterable[str], work: Callable[[Shard], Sequence[str]], total: int | None = None, desc: str = ""
    ) -> None:
        """
        Write the result of each shard of a corpus that has none yet, with a progress bar on a terminal.

        Args:
            work: Returns the result of each line of a shard.
            total: The number of lines, if it is known.
            desc: The title of the progress bar.
        """
        with logging.tqdm(total=total, initial=self.finished_lines, unit="line", desc=desc, disable=None) as bar:
            for shard in self.unfinished(lines):
                self.write(shard, work(shard))
                bar.update(len(shard.lines))

    def unfinished(self, lines: Iterable[str]) -> Iterator[Shard]:
        """Yield the shards of a corpus that have no result yet."""
        for shard in split_shards(lines, self.shard_lines):
            record = self._read_record(self._place(shard.number, "json"))
            if record is None:
                yield shard
            elif (record["lines"], record["source"]) != (len(shard.lines), _hash_lines(shard.lines)):
                rule = f"{_describe(shard)} must be the ones from which {self.folder} was made"
                raise UserError(f"{rule}, but they differ. {self._again}")
            elif not self._is_whole(shard.number, record):
                self.finished_lines -= record["lines"]
                logger.warning("The result of shard %d in %s is damaged. It is made again.", shard.number, self.folder)
                yield shard

    def write(self, shard: Shard, results: Sequence[str]) -> None:
        """Store the result of each line of a shard, a text of one or several lines without the last line feed."""
        if len(results) != len(shard.lines):
            raise UserError(f"{_describe(shard)} must have one result each, got {len(results):,}.")
        path = write_text_atomically(self._place(shard.number, "txt"), (f"{result}\n" for result in results))
        record = {"lines": len(shard.lines), "source": _hash_lines(shard.lines), "result": hash_file(path)}
        write_text_atomically(self._place(shard.number, "json"), json.dumps(record) + "\n")
        self.finished_lines += len(shard.lines)

    def results(self, total: int) -> Iterator[str]:
        """
        Yield the result of each shard in order.

        Args:
            total: The number of lines of the corpus.
        """
        for number, start in enumerate(range(0, total, self.shard_lines)):
            record = self._read_record(self._place(number, "json"))
            expected = min(self.shard_lines, total - start)
            if record is None or record["lines"] != expected or not self._is_whole(number, record):
                rule = f"{self.folder} must have the results of {expected:,} lines as shard {number}"
                raise UserError(f"{rule}, but they are missing or damaged. {self._again}")
            yield self._place(number, "txt").read_bytes().decode()

    def result_lines(self, total: int) -> Iterator[str]:
        """Yield the lines of the results in order, see [`results`]."""
        for text in self.results(total):
            yield from text.removesuffix("\n").split("\n")

    def delete(self) -> None:
        """Delete the files of shards, the manifest last, by which the folder is known, and the folder."""
        for path in sorted(self.folder.glob("*"), key=lambda path: path.suffix != ".json"):
            if _OWN_NAME.fullmatch(path.name):
                path.unlink()
        (self.folder / _MANIFEST).unlink(missing_ok=True)
        self.finished_lines = 0
        with suppress(OSError):  # it does not exist, is held, or has files of others
            self.folder.rmdir()

    @property
    def _again(self) -> str:
        return f"Delete {self.folder} to start again."

    def _place(self, number: int, suffix: str) -> Path:
        return self.folder / f"{number:06}.{suffix}"

    def _is_whole(self, number: int, record: Mapping[str, Any]) -> bool:
        path = self._place(number, "txt")
        return path.exists() and hash_file(path) == record["result"]

    def _read_record(self, path: Path) -> dict[str, Any] | None:
        if not path.exists():
            return None
        record = _read_object(path, {"lines": int, "source": str, "result": str})
        if record is None:
            raise UserError(f"{path} must describe a shard, but it is damaged. {self._again}")
        return record


Work = Callable[[Iterator[Shard], int], Iterable[tuple[Shard, list[str]]]]


def write_shards(
    output: Path,
    lines: Iterable[str],
    total: int,
    origin: Mapping[str, Any],
    shard_lines: int,
    resume: bool,
    work: Work,
) -> None:
    """
    Write a file with the result of each line, and keep finished shards beside it until it is complete.

    Args:
        total: The number of lines.
        resume: Continue a run that was killed.
        work: Yields shards with their results, given those without, and how many lines are finished.
    """
    shards = CorpusShards.beside(output, origin, shard_lines)
    with shards.held(resume):
        try:
            for shard, results in work(shards.unfinished(lines), shards.finished_lines):
                shards.write(shard, results)
        except KeyboardInterrupt as interruption:
            done = shards.finished_lines
            hint = f" after {done:,} sentences. Add --resume to continue." if done else "."
            raise KeyboardInterrupt(f"Interrupted{hint}") from interruption
        if shards.finished_lines != total:
            found = f"{shards.finished_lines:,} of {total:,} lines"
            raise UserError(f"The input must not change while it is read, but it did: {found} have results.")
        write_text_atomically(output, shards.results(total))
        shards.delete()


def progress_bar(total: int | None, done: int, hidden: bool) -> Any:
    """Return a progress bar on standard error that counts sentences, shown on a terminal if work takes seconds."""
    options = {"unit": "sentence", "desc": "Translating", "delay": _PATIENCE, "dynamic_ncols": True}
    return logging.tqdm(total=total, initial=done, disable=True if hidden else None, **options)


def split_shards(lines: Iterable[str], shard_lines: int) -> Iterator[Shard]:
    """Yield the shards of a corpus."""
    rest = iter(lines)
    return number_shards(iter(lambda: list(islice(rest, shard_lines)), []))


def number_shards(blocks: Iterable[list[str]]) -> Iterator[Shard]:
    """Yield blocks of lines as shards."""
    start = 0
    for number, lines in enumerate(blocks):
        yield Shard(number, start, lines)
        start += len(lines)


def _difference(name: str, before: Any, now: Any) -> str:
    """Describe a difference of origins; of a mapping of options, the first one with its values."""
    if name != "options" or not isinstance(before, dict):
        return f"the {name} is another one"
    option = next(each for each in {**before, **now} if before.get(each) != now.get(each))
    return f"`{option}` was {before.get(option)!r} and is {now.get(option)!r}"


def _describe(shard: Shard) -> str:
    return f"Lines {shard.start + 1:,} to {shard.start + len(shard.lines):,}"


def _hash_lines(lines: Iterable[str]) -> str:
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


def _read_object(path: Path, kinds: Mapping[str, type]) -> dict[str, Any] | None:
    """Return a JSON object with entries of these types, or None if the file is damaged."""
    try:
        content = read_json(path)
    except UserFileError:
        return None
    if not isinstance(content, dict) or not all(isinstance(content.get(name), kind) for name, kind in kinds.items()):
        return None
    return content
