"""Atomic writes: a reader sees the old or the new content of a file or folder, never part of it."""

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock
from safetensors import SafetensorError
from transformers import PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger(__name__)


@contextmanager
def atomic_folder(folder: str | Path) -> Iterator[Path]:
    """Yield a temporary folder beside `folder` and move its files into `folder` if the block succeeds.

    Files of the same name are replaced, other files in `folder` stay. If the block fails, `folder` is not touched.

    Raises:
        OSError: a file cannot be written, for example because the disk is full.
    """
    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield temporary
        if folder.exists():
            for path in sorted(temporary.iterdir()):
                os.replace(path, folder / path.name)
        else:
            temporary.chmod(0o755)  # mkdtemp creates folders that only their owner can read
            os.replace(temporary, folder)
    except SafetensorError as error:
        raise OSError(f"Cannot write the weights to {folder}: {error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def save_model_folder(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: str | Path) -> Path:
    """Write weights (safetensors), configurations and tokenizer as one model folder of transformers, atomically."""
    with atomic_folder(folder) as temporary:
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
    return Path(folder)


def write_text_atomically(path: str | Path, text: str) -> Path:
    r"""Write `text` (UTF-8, lines end with `\n`) to a temporary file beside `path`, then rename it to `path`.

    Missing parent folders are created. A pipe or a device cannot be replaced and is written directly.

    Raises:
        OSError: the file cannot be written; `path` has its old content.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8", newline="\n")
        return path
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8", newline="\n")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def cached_folder(cache_dir: str | Path, name: str, write: Callable[[Path], None]) -> Path:
    """Return the folder `name` of a cache, filled by `write` if it does not exist yet.

    If several processes need the same folder, one writes it and the others wait. The folder is renamed into place once
    it is complete, so a killed process leaves no incomplete entry.

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
        for leftover in folder.parent.glob(f".{name}.*"):  # its writer is dead, or it would hold the lock
            logger.info(f"Removing the unfinished {leftover}.")
            shutil.rmtree(leftover, ignore_errors=True)
        if not folder.is_dir():
            with atomic_folder(folder) as temporary:
                write(temporary)
    return folder
