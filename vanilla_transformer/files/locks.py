"""Locks of files, also on file systems without locks."""

import logging
import os
import platform
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from filelock import AcquireReturnProxy, BaseFileLock

from vanilla_transformer.files.temporary import UNSUPPORTED

logger = logging.getLogger(__name__)
LOCK = ".lock"
MOMENT = 10.0  # seconds in which a process that lives has locked what it has created
_PATIENCE = 1.0  # seconds before a message about a lock that another process holds


def marker_of(path: Path) -> Path:
    """Return the file that stands for a lock where the file system has none.

    It is another one than the lock, which a copied folder may have from elsewhere.
    """
    return path.with_name(f"{path.name}.pid")


def acquire_lock(path: Path, wait: bool = True) -> "AcquireReturnProxy[BaseFileLock]":
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
    marker, is_silent = marker_of(path), True
    while True:
        try:
            return lock.acquire(timeout=_PATIENCE if wait else 0)
        except TimeoutError:
            if isinstance(lock, SoftFileLock) and _is_abandoned(marker):
                marker.unlink(missing_ok=True)
            elif not wait:
                raise
            elif is_silent:
                holder = find_holder(path)
                logger.warning("Waiting for %s, which %s holds.", lock.lock_file, holder)
                is_silent = False
        except OSError as error:
            if error.errno not in UNSUPPORTED or isinstance(lock, SoftFileLock):
                raise
            lock = SoftFileLock(marker)  # filelock knows if its process is dead


def _is_abandoned(marker: Path) -> bool:
    """Return whether the process that created a marker was killed before it wrote its number."""
    with suppress(OSError):
        status = marker.stat()
        return status.st_size == 0 and time.time() - status.st_mtime > MOMENT
    return False


def find_holder(path: Path) -> str:
    """Return who holds a lock, as far as its file says it."""
    for file in (marker_of(path), path):
        with suppress(OSError, ValueError):
            process, host, *_ = file.read_text(encoding="utf-8").splitlines()
            return f"process {process} on {host}"
    return "another process"
