"""Write files and folders whole or not at all."""

import errno
import glob
import logging
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

from safetensors import SafetensorError

from vanilla_transformer.errors import MissingFileError, UserFileError
from vanilla_transformer.files.inputs import (
    COMPRESSIONS,
    compression_of,
)
from vanilla_transformer.files.locks import LOCK, MOMENT, acquire_lock
from vanilla_transformer.files.model_folders import (
    HASHES_FILE,
    MODEL_FILES,
    TOKENIZER_FILES,
    WEIGHTS,
    weight_paths,
)
from vanilla_transformer.files.private_folders import find_problem
from vanilla_transformer.files.temporary import TEMPORARY, create_folder, sync, temporary_name

logger = logging.getLogger(__name__)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # such errors name no file
# Folders in a temporary folder: incomplete files, complete ones, a part of the replaced ones, and
# all of these.
_NEW, _WHOLE, _OLD, _REPLACED = "new", "whole", "old", "replaced"


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
    create_folder(folder.parent)
    recover_folders(folder)
    # A mount point has another file system than its parent, which may also be read-only.
    merge = folder.exists() and not replace
    aside = (folder if merge else folder.parent) / temporary_name(folder)
    aside.mkdir(0o700)  # or another user could add files, which would be moved
    try:
        with _naming(folder), acquire_lock(aside / LOCK, wait=False):
            temporary = aside / _NEW / ("" if merge else folder.absolute().name)
            temporary.mkdir(mode, parents=True)
            yield temporary
            # Libraries create files that only their owner reads.
            permitted = temporary.stat().st_mode & 0o666
            for path in filter(Path.is_file, temporary.rglob("*")):
                with suppress(OSError):  # some file systems have no modes
                    path.chmod(permitted)
            _move_in(aside)
    except SafetensorError as error:
        raise UserFileError(f"Cannot write the weights to {folder}: {error}") from error
    except Exception as error:
        # The tokenizers library raises no other type.
        if type(error) is Exception and "os error" in str(error):
            raise UserFileError(f"Cannot write the tokenizer to {folder}: {error}.") from error
        raise
    finally:
        if any((aside / _WHOLE).glob("*")):
            message = "The rest of %s is in %s. Run the command again, which moves it."
            logger.error(message, folder, aside)
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
            # Threads take a fifth of the time of one after the other.
            with ThreadPoolExecutor(8) as threads:
                list(threads.map(sync, filter(Path.is_file, written)))
                list(threads.map(sync, filter(Path.is_dir, written)))
            # From now on, `recover_folders` completes the moves.
            move(aside / _NEW, aside / _WHOLE)
            sync(aside)
            sync(folder)
        written_names = [path.name for path in (aside / _WHOLE).iterdir()]
        new = sorted(written_names, key=lambda name: (name in WEIGHTS, name))
        if not (aside / _REPLACED).exists():
            (aside / _OLD).mkdir(exist_ok=True)
            replaced = [folder / name for name in new]
            # Otherwise the folder would be a mixture of two models.
            if not {*new}.isdisjoint(WEIGHTS):
                names = (*MODEL_FILES, *TOKENIZER_FILES, HASHES_FILE)
                others = [folder / name for name in names]
                replaced = [*weight_paths(folder), *others, *replaced]
            for path in dict.fromkeys(replaced):
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
        for aside in parent.glob(TEMPORARY.format(glob.escape(name))):
            try:
                _recover_folder(aside, None if parent == output else name)
            except TimeoutError:  # its writer lives
                continue
            except OSError as error:
                message = "%s is left of an interrupted command, and cannot be removed: %s."
                logger.warning(message, aside, error)


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
    if not (aside / LOCK).exists() and time.time() - aside.stat().st_mtime < MOMENT:
        return
    with acquire_lock(aside / LOCK, wait=False):
        logger.info("Removing the unfinished %s.", aside)
        if (aside / _WHOLE).exists():
            _move_in(aside)
        shutil.rmtree(aside, ignore_errors=True)


def has_leftover(output: Path) -> bool:
    """Return whether a process was killed while it moved complete files into a folder."""
    leftovers = TEMPORARY.format(glob.escape(output.absolute().name))
    return any(output.glob(f"{leftovers}/{_WHOLE}"))


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name what cannot be written if the disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        reason = os.strerror(error.errno)
        raise UserFileError(f"Cannot write {path}: {reason}. Make room there.") from error


def refuse_dangling_link(folder: Path) -> None:
    """Refuse a link to a folder that does not exist."""
    if folder.is_symlink() and not folder.exists():
        problem = f"{folder} is a link to {os.readlink(folder)}, which does not exist"
        raise MissingFileError(
            f"The output must be a folder, but {problem}. Create that folder, or choose another."
        )


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
        _naming(path),
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
    create_folder(path.parent)
    temporary = path.with_name(temporary_name(path))
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
