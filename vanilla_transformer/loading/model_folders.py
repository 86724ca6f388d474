"""Save models, and name those that cannot be mapped into memory."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from vanilla_transformer.errors import UserFileError
from vanilla_transformer.files.atomic import atomic_folder
from vanilla_transformer.files.hashes import write_hashes

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


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
