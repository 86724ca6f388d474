"""A cache on disk whose entries are named by what they are made of, so that none is ever out of date."""

import json
import logging
import shutil
from collections.abc import Callable, Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Any

from filelock import FileLock

from vanilla_transformer.file_utils import atomic_folder

logger = logging.getLogger(__name__)

_BYTES_AT_ONCE = 1 << 20


def cached(cache_dir: str | Path, name: str, write: Callable[[Path], None]) -> Path:
    """
    The folder of an entry, which `write` fills where it is not there yet.

    Of several processes that want the same entry one writes and the others wait. A folder is renamed into place once
    it is whole, so that what a killed process leaves behind is never taken for an entry.

    Raises:
        OSError: `cache_dir` cannot be written.
    """
    folder = Path(cache_dir) / name
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(
            f"`cache_dir` must be a folder that can be written, got {cache_dir}: {error.strerror}. Choose another."
        ) from error
    with FileLock(f"{folder}.lock"):
        for leftover in folder.parent.glob(f".{name}.*"):  # its writer is dead, or it would have the lock
            logger.info(f"Removing the unfinished {leftover}.")
            shutil.rmtree(leftover, ignore_errors=True)
        if not folder.is_dir():
            with atomic_folder(folder) as aside:
                write(aside)
    return folder


def digest(*values: Any) -> str:
    """A name for values that JSON can hold: equal values have equal names."""
    return blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=16).hexdigest()


def file_digest(path: str | Path) -> str:
    """A name for the content of a file, wherever it lies and whenever it was written."""
    content = blake2b(digest_size=16)
    with Path(path).open("rb") as file:
        while block := file.read(_BYTES_AT_ONCE):
            content.update(block)
    return content.hexdigest()


def file_digests(paths: Iterable[str | Path]) -> list[str]:
    """Names for the contents of several files, in their order."""
    return [file_digest(path) for path in paths]
