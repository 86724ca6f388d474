"""The cache of compiled steps on this machine: its folder, and the identities of its entries."""

import hashlib
import json
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.constants import HF_HOME
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from transformers.utils import logging

from vanilla_transformer.errors import UserError, UserFileError
from vanilla_transformer.utils.file_utils import read_json, write_text_atomically
from vanilla_transformer.utils.private_folders import create_private_folder, find_unsafe

logger = logging.get_logger(__name__)


def cache_root() -> Path:
    """Return the folder of compiled steps and of failures of compilers."""
    root = os.environ.get("VANILLA_TRANSFORMER_CACHE") or Path(HF_HOME) / "vanilla_transformer"
    try:
        return Path(root).expanduser().absolute()
    except RuntimeError as error:
        rule = "VANILLA_TRANSFORMER_CACHE must be a folder"
        raise UserError(f"{rule}, but there is no home folder for {root}. Give its full path.") from error


def is_usable(path: Path) -> bool:
    """Tell whether a file of the cache, or a folder with its files, may be used, and log the reason if not.

    Code from there runs with the rights of this user; see [`find_unsafe`].
    """
    unsafe = find_unsafe(path, own=cache_root())
    if unsafe is None and path.is_dir():
        unsafe = next(filter(None, (find_unsafe(each, own=cache_root()) for each in path.iterdir())), None)
    if unsafe is not None:
        logger.warning_once(_refuse(unsafe))
    return unsafe is None


def prepare_cache(folder: Path) -> None:
    """Create a folder of the cache for the running user alone."""
    unsafe = create_private_folder(folder, own=cache_root())
    if unsafe is not None:
        raise UserFileError(_refuse(unsafe))


def _refuse(unsafe: str) -> str:
    remedy = "VANILLA_TRANSFORMER_CACHE can name another folder, which only you can write."
    return f"The cache of compiled steps is not used, since {unsafe}. {remedy}"


def identity_of(*settings: Any) -> str:
    """Return a hash of `settings`, of the release of torch and of the processor."""
    digest = hashlib.sha256()
    facts = torch.__version__, torch.backends.cpu.get_cpu_capability(), _processor()
    for each in (*facts, *settings):
        digest.update(each if isinstance(each, bytes) else repr(each).encode())
    return digest.hexdigest()[:32]


def shape_of(module: nn.Module) -> Iterator[Any]:
    """Yield the names, types and shapes of the weights of a module, and the values of quantized weights."""
    for name, weight in module.state_dict(keep_vars=True).items():
        yield name, weight.dtype, tuple(weight.shape)
        if is_traceable_wrapper_subclass(weight):
            yield from map(_content, _plain_parts(weight))


def _content(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()


def _plain_parts(weight: Any) -> Iterator[Any]:
    """Yield a weight, or the integers and scales of a quantized one."""
    if not is_traceable_wrapper_subclass(weight):
        yield weight
        return
    for name in weight.__tensor_flatten__()[0]:
        yield from _plain_parts(getattr(weight, name))


def _processor() -> str:
    """Return the name and the instruction sets of the processor."""
    path = Path("/proc/cpuinfo")
    if not path.is_file():
        return platform.platform() + platform.processor()
    lines = path.read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    return "\n".join(line for line in lines if line.startswith(("model name", "flags", "Features")))


def load_failure(identity: str) -> tuple[float, str] | None:
    """Return when a compiler failed, in seconds of `time.time()`, and why, or None if it did not.

    Args:
        identity: A hash of the compiler.
    """
    path = _file_of(identity)
    if not is_usable(path):
        return None
    try:
        seconds, reason = read_json(path)
        return float(seconds), str(reason)
    except (OSError, ValueError, TypeError):
        return None


def store_failure(identity: str, seconds: float, reason: str) -> None:
    """Store that a compiler fails; see [`load_failure`]."""
    path = _file_of(identity)
    prepare_cache(path.parent)
    write_text_atomically(path, json.dumps([seconds, reason]) + "\n", mode=0o600)


def forget_failure(identity: str) -> None:
    """Delete what [`store_failure`] stored, if anything."""
    _file_of(identity).unlink(missing_ok=True)


def _file_of(identity: str) -> Path:
    return cache_root() / "compiler_failures" / f"{identity}.json"
