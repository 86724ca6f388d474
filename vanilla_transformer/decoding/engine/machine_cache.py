"""The cache of compiled steps on this machine: its folder, and the identities of its entries."""

import hashlib
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
from vanilla_transformer.files.private_folders import create_private_folder, find_unsafe

logger = logging.get_logger(__name__)


def cache_root() -> Path:
    """Return the folder that this package makes for machine code."""
    root = os.environ.get("VANILLA_TRANSFORMER_CACHE") or Path(HF_HOME) / "vanilla_transformer"
    try:
        return Path(root).expanduser().absolute()
    except RuntimeError as error:
        requirement = "VANILLA_TRANSFORMER_CACHE must be a folder"
        problem = f"there is no home folder for {root}"
        raise UserError(f"{requirement}, but {problem}. Give its full path.") from error


def cache_folder() -> Path:
    """Return the folder of compiled steps."""
    return cache_root() / "compiled_steps"


def is_usable(path: Path) -> bool:
    """Tell whether a folder of the cache and its files may be used, and log the reason if not.

    Code from there runs with the rights of this user; see [`find_unsafe`].
    """
    unsafe = find_unsafe(path, root=cache_root())
    if unsafe is None and path.is_dir():
        problems = (find_unsafe(file, root=cache_root()) for file in path.iterdir())
        unsafe = next(filter(None, problems), None)
    if unsafe is not None:
        logger.warning_once(_refuse(unsafe))
    return unsafe is None


def prepare_cache(folder: Path) -> None:
    """Create a folder of the cache for the running user alone."""
    unsafe = create_private_folder(folder, root=cache_root())
    if unsafe is not None:
        raise UserFileError(_refuse(unsafe))


def _refuse(unsafe: str) -> str:
    remedy = "VANILLA_TRANSFORMER_CACHE can name another folder, which only you can write."
    return f"The cache of compiled steps is not used, since {unsafe}. {remedy}"


def identity_of(step: nn.Module, *settings: Any) -> str:
    """Return a hash of `settings`, of the release of torch and of the processor, and of the shape
    of a step.

    That are the names, types and shapes of its weights, and the values of quantized weights.
    """
    if Path("/proc/cpuinfo").is_file():
        cores = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")
        names = ("model name", "flags", "Features")
        facts_of_core = [line for line in cores[0].splitlines() if line.startswith(names)]
        processor = "\n".join(facts_of_core)
    else:
        processor = platform.platform() + platform.processor()
    facts = torch.__version__, torch.backends.cpu.get_cpu_capability(), processor
    digest = hashlib.sha256(repr((facts, settings)).encode())
    for name, weight in step.state_dict(keep_vars=True).items():
        digest.update(repr((name, weight.dtype, tuple(weight.shape))).encode())
        for part in _quantized_parts(weight):
            digest.update(part.detach().cpu().contiguous().view(torch.uint8).numpy())
    return digest.hexdigest()[:32]


def _quantized_parts(weight: Tensor) -> Iterator[Any]:
    """Yield the integers and scales of a quantized weight, and nothing for a plain one."""
    if is_traceable_wrapper_subclass(weight):
        names, _ = weight.__tensor_flatten__()
        for name in names:
            part = getattr(weight, name)
            if is_traceable_wrapper_subclass(part):
                yield from _quantized_parts(part)
            else:
                yield part
