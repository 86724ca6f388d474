"""The machine of a run: its description, and how much oneDNN caches on it."""

import os
from importlib.metadata import version
from typing import Any

import torch
from accelerate import Accelerator

from vanilla_transformer.device_utils import usable_cores

_LIBRARIES = ("torch", "transformers", "accelerate", "tokenizers")
# oneDNN and torch each cache compiled matrix products by shape, 1,024 of them by default.
_CACHE_VARIABLES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
_PRODUCTS_PER_STEP = 64


def limit_onednn_cache() -> None:
    """Let oneDNN cache the compiled products of about one step only.

    Bucketed batches rarely repeat a shape, and in bfloat16 on a CPU the full cache needs more memory than everything
    else. Call it before the first matrix product of the process. Variables that are set already stay.
    """
    for name in _CACHE_VARIABLES:
        os.environ.setdefault(name, str(_PRODUCTS_PER_STEP))


def describe_machine(accelerator: Accelerator) -> dict[str, Any]:
    """Return this machine's hardware, the processes and the precision of the run, and library versions, for JSON."""
    return {
        "hardware": _hardware(accelerator),
        "processes": accelerator.num_processes,
        "mixed_precision": accelerator.mixed_precision,
        "versions": {name: version(name) for name in _LIBRARIES},
    }


def _hardware(accelerator: Accelerator) -> str:
    if accelerator.device.type == "cuda":
        return f"{accelerator.num_processes} × {torch.cuda.get_device_name(accelerator.device)}"
    if accelerator.device.type == "cpu":
        count = usable_cores()
        cores = f"{count} CPU {'core' if count == 1 else 'cores'}"
        return f"{cores} ({torch.backends.cpu.get_cpu_capability()}), torch uses {torch.get_num_threads()}"
    return f"{accelerator.num_processes} × {accelerator.device.type}"
