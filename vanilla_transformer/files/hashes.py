"""Hash files, find damaged ones, and fill caches."""

import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

from vanilla_transformer.errors import UserFileError
from vanilla_transformer.files.atomic import atomic_file, atomic_folder, write_text_atomically
from vanilla_transformer.files.inputs import open_input
from vanilla_transformer.files.json_files import read_json
from vanilla_transformer.files.locks import LOCK, acquire_lock
from vanilla_transformer.files.model_folders import HASHES_FILE

logger = logging.getLogger(__name__)
RECORDS = "hashes"  # the folder of a cache with the hash of each file that it knows
_EDITED = "generation_config.json"


def update_json(path: str | Path, entries: Mapping[str, Any]) -> None:
    """Set entries of the JSON object in a file, and keep the others. A link, as in the Hub's cache,
    becomes a file.

    The hash of the file, if its folder has hashes, is set with it.
    """
    path = Path(path)
    values = json.loads(path.read_text(encoding="utf-8")) | entries
    content = json.dumps(values, indent=2, sort_keys=True) + "\n"
    hashes = path.with_name(HASHES_FILE)
    if not hashes.is_file():
        with atomic_file(path) as file:
            file.write(content.encode())
        return
    with atomic_folder(path.parent) as temporary:
        (temporary / path.name).write_text(content, encoding="utf-8")
        hash_of_file = json.loads(hashes.read_text(encoding="utf-8"))
        hash_of_file[path.name] = hash_file(temporary / path.name)
        _write_hashes(temporary, hash_of_file)


def hash_file(path: Path, cache_dir: Path | None = None) -> str:
    """Return the SHA-256 of a file in hexadecimal, see [`hash_open_file`]."""
    with open_input(path) as file:
        return hash_open_file(file, cache_dir)


def hash_open_file(file: BufferedReader, cache_dir: Path | None = None) -> str:
    """Return the SHA-256 of a file that is open at its start, and leave it there.

    Args:
        cache_dir: A cache that records the hash. Later calls, also in other processes, read the
            record instead of a file with the same name, inode, size and time of change. So a file
            stays known in a folder that is renamed.
    """
    record: Path | None = None
    if cache_dir is not None:
        facts = os.fstat(file.fileno())
        identity = facts.st_ino, facts.st_size, facts.st_mtime_ns
        record = cache_dir / RECORDS / hash_json(os.path.basename(file.name), identity)
        if record.is_file():
            return record.read_text(encoding="utf-8")
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    file.seek(0)
    if record is not None:
        with suppress(OSError):  # of a cache that cannot be written, and so has no records
            write_text_atomically(record, digest)
    return digest


def hash_json(*values: Any) -> str:
    """Return a hash of JSON values; equal values have equal hashes in every process."""
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def files_within(folder: Path) -> list[Path]:
    """Return the files of a folder and its folders, sorted."""
    return sorted(filter(Path.is_file, folder.rglob("*")))


def write_hashes(folder: Path, cache_dir: Path | None = None) -> None:
    """Write the SHA-256 of every file of `folder` to `HASHES_FILE` in it, for `find_damage`."""
    hash_of_file = {}
    for path in files_within(folder):
        hash_of_file[path.relative_to(folder).as_posix()] = hash_file(path, cache_dir)
    _write_hashes(folder, hash_of_file)


def _write_hashes(folder: Path, hash_of_file: Mapping[str, str]) -> None:
    content = json.dumps(hash_of_file, indent=2) + "\n"
    (folder / HASHES_FILE).write_text(content, encoding="utf-8")


def find_damage(folder: Path, cache_dir: Path | None = None) -> str | None:
    """Compare the files of a folder with the hashes that `write_hashes` stored. Return the first
    mismatch, or None.

    A generation config that is JSON is whole: people edit it.

    Args:
        cache_dir: A cache with the hashes of these files, see [`hash_open_file`].
    """
    try:
        for name, value in read_json(folder / HASHES_FILE).items():
            if hash_file(folder / name, cache_dir) == value:
                continue
            with suppress(UserFileError):
                if name == _EDITED and isinstance(read_json(folder / name), dict):
                    continue
            return f"{name} is damaged"
    except FileNotFoundError as error:
        return f"{Path(error.filename).relative_to(folder)} is missing"
    except (UserFileError, AttributeError):
        return f"{HASHES_FILE} is damaged"
    except OSError as error:
        return f"{error.filename} cannot be read: {error.strerror}"
    return None


def refuse_damage(folder: Path) -> None:
    """Refuse the model of a run, a folder with hashes, if it differs from what training wrote."""
    damage = find_damage(folder) if (folder / HASHES_FILE).is_file() else None
    if damage is not None:
        hint = (
            f"Its `train` command makes it again; if the change is yours, delete {HASHES_FILE} "
            "there"
        )
        raise UserFileError(f"In {folder}, {damage}. {hint}.")


def cached_work(
    cache_dir: str | Path, kind: str, content: Sequence[Any], write: Callable[[Path], None]
) -> Path:
    """Return the folder of a cache with what `write` makes of a content. Its name is `kind`, a
    hyphen and the hash of the content. See [`cached_folder`].

    Args:
        content: JSON values, or hashes, by which the files differ.
    """
    name = f"{kind}-{hash_json(*content)}"
    return cached_folder(cache_dir, name, write, has_records=True)


def cached_folder(
    cache_dir: str | Path,
    name: str,
    write: Callable[[Path], None],
    mode: int = 0o777,
    has_records: bool = False,
) -> Path:
    """Return the folder `name` of a cache, filled by `write` if it does not exist yet or is
    damaged.

    If several processes need the same folder, one writes it and the others wait. The folder is
    renamed into place once it is complete, so a killed process leaves no incomplete entry.

    Args:
        mode: Who may use the folder and its files, as far as the umask permits it.
        has_records: Whether the cache records the hashes of its files, see [`hash_open_file`], so
            that each file is read once for all processes. Otherwise each call hashes it.
    """
    folder = Path(cache_dir) / name
    records = Path(cache_dir) if has_records else None
    if folder.is_dir() and find_damage(folder, records) is None:
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserFileError(
            f"`cache_dir` must be a folder that can be written, got {cache_dir}: {error.strerror}. "
            "Choose another."
        ) from error
    with acquire_lock(Path(f"{folder}{LOCK}")):
        if folder.exists():
            damage = find_damage(folder, records) if folder.is_dir() else "it is a file"
            if damage is None:  # written while this process waited
                return folder
            message = "The cache entry %s is damaged (%s). It is built again."
            logger.warning(message, folder, damage)
        with atomic_folder(folder, mode, replace=True) as temporary:
            write(temporary)
            write_hashes(temporary, records)
    return folder
