"""Check the folder of a run, and hold it for one run at a time."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

_LOCK = ".lock"


@contextmanager
def lock_output_dir(output_dir: str | Path) -> Iterator[None]:
    """Hold the folder of a run for this process and those that `torchrun` started with it. A crash releases it.

    Raises:
        ValueError: another process holds it, or the path is a file.
        PermissionError: the folder cannot be written.
    """
    if os.environ.get("RANK", "0") != "0":  # the main process holds it for all
        yield
        return
    check_output_dir(output_dir)
    folder = Path(output_dir)
    created = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / _LOCK)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise ValueError(
            f"Only one run may use {folder} at a time, but another one is. Wait for it, stop it, or choose another "
            "--output_dir."
        ) from None
    try:
        yield
    finally:
        if created and [path.name for path in folder.iterdir()] == [_LOCK]:  # nothing was written
            shutil.rmtree(folder)
        lock.release()


def check_output_dir(output_dir: str | Path) -> None:
    """Refuse a folder that a run cannot use, before anything is read.

    Raises:
        ValueError: the path is a file.
        PermissionError: the folder cannot be written.
    """
    folder = Path(output_dir)
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise ValueError(f"`output_dir` must be a folder, but {existing} is a file.")
    if not os.access(existing, os.W_OK):
        raise PermissionError(
            f"`output_dir` must be a writable folder, but {existing} is not writable. Choose another --output_dir."
        )
