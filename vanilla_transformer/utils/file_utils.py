"""Atomic and durable writes, and hashes that show damage: a reader sees the old or the new content,
never part of it.

New content is on the disk, not only in the memory of the system, before it replaces any.
"""

import errno
import glob
import hashlib
import json
import logging
import os
import platform
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from safetensors import SafetensorError

from vanilla_transformer.errors import MissingFileError, UserError, UserFileError

from .formats import DOCUMENT_ENDINGS, FORMAT_OF_ENDING
from .input_files import BINARY_ENDINGS, COMPRESSIONS, compression_of, open_input
from .private_folders import find_problem, is_own

if TYPE_CHECKING:
    from filelock import AcquireReturnProxy, BaseFileLock
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

HASHES_FILE = "sha256.json"
# A model folder has one of them: ours, Marian, FSMT, M2M-100.
TOKENIZER_FILES = (
    "tokenizer.json",
    "source.spm",
    "merges.txt",
    "sentencepiece.bpe.model",
    "sentencepiece.model",
)
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")  # as transformers names them
_MODEL_FILES = (*_WEIGHTS, "config.json", "generation_config.json", "tokenizer_config.json")
_EDITED = "generation_config.json"
_LOCK = ".lock"
_UNSUPPORTED = (
    errno.ENOSYS,
    errno.ENOTSUP,
    errno.EOPNOTSUPP,
    errno.EINVAL,
    errno.ENOLCK,
)  # by a file system
_MOMENT = 10.0  # seconds in which a process that lives has locked what it has created
_PATIENCE = 1.0  # seconds before a message about a lock that another process holds
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # such errors name no file
# Folders in a temporary folder: incomplete files, complete ones, a part of the replaced ones, and
# all of these.
_NEW, _WHOLE, _OLD, _REPLACED = "new", "whole", "old", "replaced"
_TEMPORARY = f".{{}}.tmp-{'[0-9a-f]' * 16}"  # pattern of the names of temporary files and folders


@contextmanager
def atomic_folder(folder: str | Path, mode: int = 0o777, replace: bool = False) -> Iterator[Path]:
    """Yield a temporary folder and move its files into `folder` if the block succeeds.

    Files of the same name are replaced, and a model by another one. Other files in `folder` stay.
    All follow the umask. They are on the disk before any is moved, and what they replace is deleted
    last. If the block or a move fails, `folder` is as it was. A process that is killed leaves the
    old files or the new ones or, between two moves, a folder without weights: [`recover_folders`]
    then moves the rest.

    Args:
        mode: Who may use a new folder and its files, as far as the umask permits it.
        replace: Replace the folder as a whole.
    """
    folder = Path(folder)
    refuse_dangling_link(folder)
    created = [parent for parent in folder.absolute().parents if not parent.exists()]
    _create_folder(folder.parent)
    recover_folders(folder)
    # A mount point has another file system than its parent, which may also be read-only.
    merge = folder.exists() and not replace
    aside = (folder if merge else folder.parent) / _new_name(folder)
    aside.mkdir(0o700)  # or another user could add files, which would be moved
    try:
        with _naming(folder), _acquire_lock(aside / _LOCK, wait=False):
            temporary = aside / _NEW / ("" if merge else folder.absolute().name)
            temporary.mkdir(mode, parents=True)
            yield temporary
            permitted = (
                temporary.stat().st_mode & 0o666
            )  # libraries create files that only their owner reads
            for path in filter(Path.is_file, temporary.rglob("*")):
                with suppress(OSError):  # some file systems have no modes
                    path.chmod(permitted)
            _move_in(aside)
    except SafetensorError as error:
        raise UserFileError(f"Cannot write the weights to {folder}: {error}") from error
    except Exception as error:
        if type(error) is Exception and "os error" in str(
            error
        ):  # the tokenizers library raises no other type
            raise UserFileError(f"Cannot write the tokenizer to {folder}: {error}.") from error
        raise
    finally:
        if any((aside / _WHOLE).glob("*")):
            logger.error(
                "The rest of %s is in %s. Run the command again, which moves it.", folder, aside
            )
        else:
            shutil.rmtree(aside, ignore_errors=True)
        for parent in created:
            with suppress(OSError):  # it is empty only if the block failed
                parent.rmdir()


def _move_in(aside: Path) -> None:
    """Move complete files from a temporary folder into the one in which it is, or undo all moves.

    The weights that they replace move aside first, and weights move in last: until then there is no
    model.
    """
    folder, moves = aside.parent, list[tuple[Path, Path]]()

    def move(path: Path, target: Path) -> None:
        os.replace(path, target)
        moves.append((path, target))

    try:
        if not (aside / _WHOLE).exists():
            written = [aside / _NEW, *(aside / _NEW).rglob("*")]
            with ThreadPoolExecutor(8) as threads:  # in a fifth of the time of one after the other
                list(threads.map(sync, filter(Path.is_file, written)))
                list(threads.map(sync, filter(Path.is_dir, written)))
            move(aside / _NEW, aside / _WHOLE)  # from now on, `recover_folders` completes the moves
            sync(aside)
            sync(folder)
        new = sorted(
            (path.name for path in (aside / _WHOLE).iterdir()),
            key=lambda name: (name in _WEIGHTS, name),
        )
        if not (aside / _REPLACED).exists():
            (aside / _OLD).mkdir(exist_ok=True)
            names = (*_MODEL_FILES, *TOKENIZER_FILES, HASHES_FILE)
            other = [*_weight_paths(folder), *(folder / name for name in names)]
            other = (
                [] if {*new}.isdisjoint(_WEIGHTS) else other
            )  # or it would be a mixture of two models
            for path in dict.fromkeys([*other, *(folder / name for name in new)]):
                if os.path.lexists(path):
                    move(path, aside / _OLD / path.name)
            move(aside / _OLD, aside / _REPLACED)
        for name in new:
            move(aside / _WHOLE / name, folder / name)
        sync(folder)
    except BaseException:
        for path, target in reversed(moves):
            os.replace(target, path)
        raise


def recover_folders(output: Path) -> None:
    """Complete what killed processes have left of [`atomic_folder`], or delete it if it is
    incomplete.

    Only folders of this user are touched that no other user can write, and only files of the output
    are moved. A command calls this before it writes the output, never to read it.
    """
    name = output.absolute().name
    for parent in (output, output.parent):
        for aside in parent.glob(_TEMPORARY.format(glob.escape(name))):
            try:
                _recover_folder(aside, None if parent == output else name)
            except TimeoutError:  # its writer lives
                continue
            except OSError as error:
                logger.warning(
                    "%s is left of an interrupted command, and cannot be removed: %s.", aside, error
                )


def _recover_folder(aside: Path, name: str | None) -> None:
    """Move the files of a temporary folder, or only one of this name, if this user alone has made
    it.
    """
    problem = find_problem(aside)
    if problem is not None:
        logger.warning("A leftover of an interrupted command stays: %s.", problem)
        return
    if any(map(Path.is_symlink, aside.iterdir())):  # which only another program makes
        return
    files = (aside / _WHOLE).glob("*")
    if name is not None and not {path.name for path in files} <= {name}:
        return
    if not (aside / _LOCK).exists() and time.time() - aside.stat().st_mtime < _MOMENT:
        return
    with _acquire_lock(aside / _LOCK, wait=False):
        logger.info("Removing the unfinished %s.", aside)
        if (aside / _WHOLE).exists():
            _move_in(aside)
        shutil.rmtree(aside, ignore_errors=True)


def has_leftover(output: Path) -> bool:
    """Return whether a process was killed while it moved complete files into a folder."""
    pattern = f"{_TEMPORARY.format(glob.escape(output.absolute().name))}/{_WHOLE}"
    return any(output.glob(pattern))


def _new_name(path: Path) -> str:
    """Return a name that `_TEMPORARY` matches."""
    return f".{path.absolute().name}.tmp-{secrets.token_hex(8)}"


def sync(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on the disk, if the file
    system can tell.
    """
    with suppress(
        PermissionError
    ):  # Windows opens no folders, and a user none that only others may list
        descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise OSError(error.errno, error.strerror, str(path)) from error
        finally:
            os.close(descriptor)


def _create_folder(folder: Path) -> None:
    """Create a folder, and those above it that are missing, and sync their names."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in reversed(missing):
        sync(path.parent)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name what cannot be written if the disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        raise UserFileError(
            f"Cannot write {path}: {os.strerror(error.errno)}. Make room there."
        ) from error


def read_json(path: Path) -> Any:
    """Return the content of a JSON file."""
    content = path.read_bytes()
    try:
        return json.loads(content.decode("utf-8"))
    except RecursionError as error:
        raise UserFileError(f"{path} must be JSON, but it is nested too deeply.") from error
    except (
        ValueError
    ) as error:  # also for bytes that are not UTF-8, and for integers of more than 4,300 digits
        raise UserFileError(f"{path} must be JSON: {error}") from error


def walk_json(content: Any) -> Iterator[tuple[str, Any]]:
    """Yield each key of a JSON value and of all values in it, with its value."""
    left = [content]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            yield from value.items()
            left += value.values()
        elif isinstance(value, list):
            left += value


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Return the entries of the metrics of a run, a JSON object in each line, and warn of damaged
    lines.

    Each has a `step` and `minutes`. A truncated last line is left out.
    """
    entries, damaged = [], []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            entry = json.loads(line.decode("utf-8"))
            _ = entry["step"], entry["minutes"]
            entries.append(entry)
        except (ValueError, TypeError, LookupError):
            damaged.append(str(number))
    if damaged:
        logger.warning("%s is damaged and read without line %s.", path, ", ".join(damaged))
    return entries


def refuse_dangling_link(folder: Path) -> None:
    """Refuse a link to a folder that does not exist."""
    if folder.is_symlink() and not folder.exists():
        problem = f"{folder} is a link to {os.readlink(folder)}, which does not exist"
        raise MissingFileError(
            f"The output must be a folder, but {problem}. Create that folder, or choose another."
        )


def check_output_dir_is_empty(output_dir: str | Path) -> None:
    """Check that `output_dir` does not exist or is an empty folder."""
    output_dir = Path(output_dir)
    refuse_dangling_link(output_dir)
    recover_folders(output_dir)
    if output_dir.exists() and (not output_dir.is_dir() or any(output_dir.iterdir())):
        problem = f"{output_dir} is not empty" if output_dir.is_dir() else f"{output_dir} is a file"
        raise UserFileError(
            f"The output must be a new or an empty folder, but {problem}. Choose another folder."
        )


def check_output_dir(
    output_dir: str | Path, own: Sequence[str] = (), replaced: Sequence[str] = ()
) -> None:
    """Refuse a folder with files of others, before a command writes into it.

    Hidden files, and folders of other names than the command writes, are left alone.

    Args:
        own: Names of files that only this command writes together: where all are, the folder is its
            own.
        replaced: Patterns of the folders that the command would replace.
    """
    folder = Path(output_dir)
    refuse_dangling_link(folder)
    if not folder.exists() or (own and all((folder / name).is_file() for name in own)):
        return
    requirement = "The output must be a new folder, an empty one, or one that this command wrote"
    if not folder.is_dir():
        raise UserFileError(f"{requirement}, but {folder} is a file. Choose another folder.")
    for path in sorted(folder.iterdir()):
        is_kept = path.name.startswith(".") or (
            path.is_dir() and not any(map(path.match, replaced))
        )
        if not is_kept:
            raise UserFileError(
                f"{requirement}, but {folder} has {path.name}. Choose another folder."
            )


def check_outputs(outputs: Iterable[str | Path], inputs: Iterable[str | Path | int]) -> None:
    """
    Refuse an output file that is a folder, one of the inputs, also by another name or a link, or
    another output.

    Args:
        inputs: Files and folders, of which some need not exist; or numbers of open files.
    """
    written: list[Path] = []
    inputs = [*inputs]
    existing = [source for source in inputs if os.path.exists(source)]
    for output in map(Path, outputs):
        if output.is_dir():
            raise UserError(f"The output must be a file, but {output} is a folder. Name a file.")
        ending = output.suffix.lower()
        is_document = ending in DOCUMENT_ENDINGS and any(
            str(source).lower().endswith(ending) for source in inputs
        )
        is_binary = ending in FORMAT_OF_ENDING and not FORMAT_OF_ENDING[ending].is_text
        if (is_binary or ending in BINARY_ENDINGS) and not is_document:
            requirement = f"An output is text, also compressed as {', '.join(COMPRESSIONS)}"
            raise UserError(
                f"{requirement}, but the name {output} is one of another format. Choose "
                "another ending."
            )
        is_of_model = output.suffix == ".safetensors" or output.name in (
            *_MODEL_FILES,
            *TOKENIZER_FILES,
        )
        replaced = (
            [output.parent, output] if is_of_model else [output]
        )  # a model is a folder among the inputs
        same = None
        if output.is_file():  # a terminal is both input and output
            for name in existing:
                if any(os.path.samefile(path, name) for path in replaced):
                    same = name
                    break
        if same is not None:
            name = "standard input" if same == 0 else same
            requirement = "The output must be another file than the inputs"
            raise UserError(f"{requirement}, but {output} is the same as {name}. Choose another.")
        if output.resolve() in written and not output.is_char_device():
            raise UserError(
                f"Each output must be another file, got {output} twice. Choose another."
            )
        written.append(output.resolve())


@contextmanager
def lock_folder(folder: str | Path) -> Iterator[None]:
    """Hold a folder for this process, and create it if it is missing. A crash releases it.

    In the end it is deleted if it is empty and was not when the process took it.
    """
    folder = Path(folder)
    was_empty = folder.is_dir() and not any(folder.iterdir())
    _create_folder(folder)
    try:
        lock = _acquire_lock(folder / _LOCK, wait=False).lock
    except TimeoutError:
        problem = f"Only one run may use {folder} at a time, but {_find_holder(folder / _LOCK)} is"
        raise UserError(f"{problem}. Wait for it, stop it, or choose another output.") from None
    try:
        leftovers = [*folder.glob(_TEMPORARY.format("*"))]
        outputs = {path.with_name(path.name[1:].rpartition(".")[0]) for path in leftovers}
        for output in (folder, *{*folder.iterdir(), *outputs}):
            recover_folders(output)
        for leftover in leftovers:  # its writer is dead
            if leftover.is_file() and is_own(leftover):
                leftover.unlink()
        yield
    finally:
        is_unused = not was_empty and {path.name for path in folder.glob("*")} <= {
            _LOCK,
            _marker_of(Path(_LOCK)).name,
        }
        if is_unused:
            with suppress(PermissionError):  # Windows, where releasing deletes it
                (folder / _LOCK).unlink(missing_ok=True)
        lock.release()
        if is_unused:
            with suppress(OSError):  # another process has come
                folder.rmdir()


def _marker_of(path: Path) -> Path:
    """Return the file that stands for a lock where the file system has none.

    It is another one than the lock, which a copied folder may have from elsewhere.
    """
    return path.with_name(f"{path.name}.pid")


def _acquire_lock(path: Path, wait: bool = True) -> "AcquireReturnProxy[BaseFileLock]":
    """Acquire a lock, which a `with` block releases.

    Raises:
        TimeoutError: If another process holds it, unless `wait`.
    """
    from filelock import FileLock, SoftFileLock  # which imports asyncio

    def sign(descriptor: int) -> None:
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n{platform.node()}\n".encode())

    lock: BaseFileLock = FileLock(path, on_acquired=sign)
    marker, is_silent = _marker_of(path), True
    while True:
        try:
            return lock.acquire(timeout=_PATIENCE if wait else 0)
        except TimeoutError:
            if isinstance(lock, SoftFileLock) and _is_abandoned(marker):
                marker.unlink(missing_ok=True)
            elif not wait:
                raise
            elif is_silent:
                logger.warning(
                    "Waiting for %s, which %s holds.", lock.lock_file, _find_holder(path)
                )
                is_silent = False
        except OSError as error:
            if error.errno not in _UNSUPPORTED or isinstance(lock, SoftFileLock):
                raise
            lock = SoftFileLock(marker)  # filelock knows if its process is dead


def _is_abandoned(marker: Path) -> bool:
    """Return whether the process that created a marker was killed before it wrote its number."""
    with suppress(OSError):
        status = marker.stat()
        return status.st_size == 0 and time.time() - status.st_mtime > _MOMENT
    return False


def _find_holder(path: Path) -> str:
    """Return who holds a lock, as far as its file says it."""
    for file in (_marker_of(path), path):
        with suppress(OSError, ValueError):
            process, host, *_ = file.read_text(encoding="utf-8").splitlines()
            return f"process {process} on {host}"
    return "another process"


def has_weights(folder: Path) -> bool:
    """Return whether `folder` holds a model that transformers can load."""
    return any((folder / name).exists() for name in _WEIGHTS)


def delete_weights(folder: Path) -> None:
    """Delete the weights of the model in `folder`."""
    for path in _weight_paths(folder):
        path.unlink(missing_ok=True)


def _weight_paths(folder: Path) -> list[Path]:
    """Return where a model has weights, the files that make a folder a model first."""
    return [*(folder / name for name in _WEIGHTS), *folder.glob("model-*-of-*.safetensors")]


def save_model_folder(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    folder: str | Path,
    hashed: bool = False,
    **texts: str,
) -> Path:
    """Write weights (safetensors), configurations and tokenizer as one model folder of
    transformers, atomically.

    Args:
        hashed: Add the hashes for `find_damage`.
        texts: More files of the folder: JSON text by name, without the suffix `.json`.
    """
    with atomic_folder(folder) as temporary:
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        for name, text in texts.items():
            (temporary / f"{name}.json").write_text(text, encoding="utf-8")
        if hashed:
            write_hashes(temporary)
    return Path(folder)


def write_text_atomically(
    path: str | Path, text: str | Iterable[str], mode: int = 0o666, encoding: str = "UTF-8"
) -> Path:
    r"""Write `text` (lines end with `\n`) to a temporary file beside `path`, then rename it to
    `path`.

    Missing parent folders are created. Of a link, the file to which it leads is replaced. A pipe or
    a device cannot be replaced and is written directly. A file whose name ends in `.gz`, `.xz`,
    `.bz2` or `.zst` is compressed.

    Args:
        text: The content, in one piece or in several, which need not fit into memory together.
        mode: Who may use the file, as far as the umask permits it.
    """
    path = Path(path)
    pieces = [text] if isinstance(text, str) else text
    is_replaced = path.is_file() or not path.exists()
    compress = COMPRESSIONS.get(compression_of(path), lambda file, mode: nullcontext(file))
    with (
        atomic_file(path.resolve(), mode) if is_replaced else open(path, "wb") as file,
        compress(file, "wb") as stream,
    ):
        for piece in pieces:
            stream.write(piece.encode(encoding))
    return path


@contextmanager
def atomic_file(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Yield a temporary file beside `path`, and rename it to `path` if the block succeeds. It is on
    the disk before.

    Missing parent folders are created.
    """
    _create_folder(path.parent)
    temporary = path.with_name(_new_name(path))
    try:
        with _naming(path):
            # "x" follows no link and opens no file that exists.
            with open(temporary, "xb", opener=partial(os.open, mode=mode)) as file:
                yield file
            sync(temporary)
            os.replace(temporary, path)
            sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def mapping(path: str | Path) -> Iterator[None]:
    """Name a file that the block maps into memory, if its file system cannot do that.

    Libraries do not name it.
    """
    try:
        yield
    except OSError as error:
        if os.strerror(errno.ENODEV) not in str(error):
            raise
        requirement = (
            f"{path} must be on a disk that can map files into memory, but its disk cannot"
        )
        raise UserFileError(f"{requirement} ({error}). Copy it to another disk.") from error


def update_json(path: str | Path, entries: Mapping[str, Any]) -> None:
    """Set entries of the JSON object in a file, and keep the others. A link, as in the Hub's cache,
    becomes a file.

    The hash of the file, if its folder has hashes, is set with it.
    """
    path = Path(path)
    content = (
        json.dumps(json.loads(path.read_text(encoding="utf-8")) | entries, indent=2, sort_keys=True)
        + "\n"
    )
    hashes = path.with_name(HASHES_FILE)
    if not hashes.is_file():
        with atomic_file(path) as file:
            file.write(content.encode())
        return
    with atomic_folder(path.parent) as temporary:
        (temporary / path.name).write_text(content, encoding="utf-8")
        of_files = json.loads(hashes.read_text(encoding="utf-8")) | {
            path.name: hash_file(temporary / path.name)
        }
        (temporary / HASHES_FILE).write_text(
            json.dumps(of_files, indent=2) + "\n", encoding="utf-8"
        )


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with open_input(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_hashes(folder: Path) -> None:
    """Write the SHA-256 of every file of `folder` to `HASHES_FILE` in it, for `find_damage`."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    hashes = {path.relative_to(folder).as_posix(): hash_file(path) for path in paths}
    (folder / HASHES_FILE).write_text(json.dumps(hashes, indent=2) + "\n", encoding="utf-8")


def find_damage(folder: Path) -> str | None:
    """Compare the files of a folder with the hashes that `write_hashes` stored. Return the first
    mismatch, or None.

    A generation config that is JSON is whole: people edit it.
    """
    try:
        for name, value in read_json(folder / HASHES_FILE).items():
            if hash_file(folder / name) == value:
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


def cached_folder(
    cache_dir: str | Path, name: str, write: Callable[[Path], None], mode: int = 0o777
) -> Path:
    """Return the folder `name` of a cache, filled by `write` if it does not exist yet or is
    damaged.

    If several processes need the same folder, one writes it and the others wait. The folder is
    renamed into place once it is complete, so a killed process leaves no incomplete entry.
    """
    folder = Path(cache_dir) / name
    if folder.is_dir() and find_damage(folder) is None:
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserFileError(
            f"`cache_dir` must be a folder that can be written, got {cache_dir}: {error.strerror}. "
            "Choose another."
        ) from error
    with _acquire_lock(Path(f"{folder}{_LOCK}")):
        if folder.exists():
            damage = find_damage(folder) if folder.is_dir() else "it is a file"
            if damage is None:  # written while this process waited
                return folder
            logger.warning("The cache entry %s is damaged (%s). It is built again.", folder, damage)
        with atomic_folder(folder, mode, replace=True) as temporary:
            write(temporary)
            write_hashes(temporary)
    return folder
