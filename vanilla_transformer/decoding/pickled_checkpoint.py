"""Read checkpoints that other toolkits pickled, without running code from them."""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from vanilla_transformer.errors import UserError

# Tied weights: embeddings of source and target, and the output projection
_MAX_NAMES_OF_A_TENSOR = 4


def load_pickled_checkpoint(
    path: Path, toolkit: str, entry: str, allowed_types: Sequence[type] = (), mmap: bool = False
) -> dict[str, Any]:
    """Load a pickled checkpoint without running code from it.

    Args:
        toolkit: The toolkit that wrote it, for error messages.
        entry: The key of the weights.
        allowed_types: Classes to accept besides tensors and plain values.
        mmap: Whether tensors stay in the file until they are needed; the format of PyTorch 1.5 has
            no such tensors.
    """
    check_unpacked_size(path)
    try:
        with torch.serialization.safe_globals(list(allowed_types)):
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except FileNotFoundError:
        raise
    except Exception as error:  # torch and pickle raise many types
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path} cannot be read safely: {reason}") from error
    if not isinstance(content, dict) or entry not in content:
        kind = f"a {toolkit} checkpoint with the entry {entry!r}"
        raise UserError(f"{path} must be {kind}.")
    _check_tensors(path, content)
    return content


def check_unpacked_size(path: Path) -> None:
    """Check that a file, if it is a zip archive (`.pt`, `.npz`), does not unpack to more than its
    own size.

    PyTorch and Marian do not compress. A compressed archive of some megabytes can fill the memory.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
    except (OSError, zipfile.BadZipFile):  # no archive; the caller reads it and explains
        return
    size = path.stat().st_size
    if unpacked > size:
        raise UserError(
            f"{path} must not be compressed, got {unpacked:,} bytes in a file of {size:,}. Save it "
            "uncompressed."
        )


def _check_tensors(path: Path, content: Mapping[str, Any]) -> None:
    """Check that no tensor declares more values than it has: an expanded one fills the memory when
    it is copied.
    """
    parts = [content, *(part for part in content.values() if isinstance(part, Mapping))]
    tensors = list[torch.Tensor]()
    for part in parts:
        tensors += [value for value in part.values() if isinstance(value, torch.Tensor)]
    for tensor in tensors:
        if tensor.layout is not torch.strided:
            layout = f"one of layout {tensor.layout}"
            raise UserError(f"{path} must contain dense tensors, got {layout}.")
        size = tensor.nbytes
        stored = tensor.untyped_storage().nbytes()
        if size > stored:
            raise UserError(
                f"{path} must contain all values of its tensors, but one declares {size:,} bytes "
                f"and has {stored:,}."
            )
    storages = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
    size = sum(tensor.nbytes for tensor in tensors)
    stored = sum(storages.values())
    if size > _MAX_NAMES_OF_A_TENSOR * stored:
        raise UserError(
            f"{path} must contain all values of its tensors, but they declare {size:,} bytes and "
            f"have {stored:,}."
        )
