"""Folders on disk: written aside and renamed, so that one is there whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """
    A fresh folder beside `folder`, on the same disk, whose files move into `folder` once the block ends without an
    error. Each file is renamed into place, so that a reader sees the old or the new one, never half of it.

    Raises:
        OSError: something cannot be written, for example because the disk is full.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield aside
        if folder.exists():
            for path in sorted(aside.iterdir()):
                os.replace(path, folder / path.name)
        else:
            aside.chmod(0o755)  # mkdtemp's folders are for their owner alone
            os.replace(aside, folder)
    except SafetensorError as error:
        raise OSError(f"Weights cannot be written to {folder}: {error}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
