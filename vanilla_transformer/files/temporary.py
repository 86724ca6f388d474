"""Temporary names, and waiting for the disk."""

import errno
import os
import secrets
from contextlib import suppress
from pathlib import Path

# A file system answers so to what it does not support.
UNSUPPORTED = errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOLCK
TEMPORARY = f".{{}}.tmp-{'[0-9a-f]' * 16}"  # pattern of the names of temporary files and folders


def temporary_name(path: Path) -> str:
    """Return a name that `TEMPORARY` matches."""
    return f".{path.absolute().name}.tmp-{secrets.token_hex(8)}"


def sync(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on the disk, if the file
    system can tell.
    """
    # Windows opens no folders, and a user none that only others may list.
    with suppress(PermissionError):
        descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise OSError(error.errno, error.strerror, str(path)) from error
        finally:
            os.close(descriptor)


def create_folder(folder: Path) -> None:
    """Create a folder, and those above it that are missing, and sync their names."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in reversed(missing):
        sync(path.parent)
