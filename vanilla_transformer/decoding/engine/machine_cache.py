"""The cache of compiled steps and measurements on this machine: its folder, and the identities of its entries."""

import hashlib
import json
import os
import platform
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.constants import HF_HOME
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from vanilla_transformer.file_utils import write_text_atomically


def cache_root() -> Path:
    """Return the folder of compiled steps and of measurements on this machine."""
    root = os.environ.get("VANILLA_TRANSFORMER_CACHE") or Path(HF_HOME) / "vanilla_transformer"
    return Path(root).expanduser()


def find_foreign(folder: Path) -> Path | None:
    """Return the first of a folder of the cache, its parents there and its files that another user owns or may write.

    Code from there would run with the rights of this user. Links count as foreign, and files of other systems do not.
    """
    if not hasattr(os, "getuid"):
        return None
    parents = [parent for parent in folder.parents if parent == cache_root() or cache_root() in parent.parents]
    for path in (*parents, folder, *folder.iterdir()):
        facts = path.lstat()
        is_own = facts.st_uid == os.getuid() and not facts.st_mode & stat.S_IWOTH
        if not is_own or stat.S_ISLNK(facts.st_mode):
            return path
    return None


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


def values_of(module: nn.Module) -> Iterator[Any]:
    """Yield the names, types, shapes and values of the weights of a module."""
    for name, weight in module.state_dict(keep_vars=True).items():
        yield name, weight.dtype, tuple(weight.shape)
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


def load_choice(kind: str, identity: str) -> tuple[Any, str] | None:
    """Return a stored value and the reason for it, or None if there is none or its file is damaged.

    Args:
        kind: Name of the choice, such as `"precision"`.
        identity: A hash of all that the choice depends on.
    """
    try:
        choice = json.loads(_file_of(kind, identity).read_text(encoding="utf-8"))
        return choice[kind], choice["reason"]
    except (OSError, ValueError, LookupError, TypeError):
        return None


def store_choice(kind: str, identity: str, value: Any, reason: str) -> None:
    """Store a value and the reason for it; see [`load_choice`]."""
    write_text_atomically(_file_of(kind, identity), json.dumps({kind: value, "reason": reason}) + "\n")


def _file_of(kind: str, identity: str) -> Path:
    return cache_root() / "choices" / kind / f"{identity}.json"


__all__ = ["cache_root", "find_foreign", "identity_of", "load_choice", "shape_of", "store_choice", "values_of"]
