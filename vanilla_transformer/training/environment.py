"""What a run is computed by: its record, and what is kept there."""

import os
from importlib.metadata import version
from typing import Any

import torch
from accelerate import Accelerator

_LIBRARIES = ("torch", "transformers", "accelerate", "tokenizers")
# oneDNN and torch each keep what was compiled for products of the last so many shapes, by default 1,024.
_COMPILED_PRODUCTS = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
_PRODUCTS_OF_A_STEP = 64


def forget_old_products() -> None:
    """
    Lets oneDNN keep what it compiled for about one step. Batches of buckets hardly ever have the shape of an earlier
    one, and in bfloat16 on a CPU all that was kept for them came to more memory than everything else.

    It works before the first product of a process. What the environment says already stays.
    """
    for name in _COMPILED_PRODUCTS:
        os.environ.setdefault(name, str(_PRODUCTS_OF_A_STEP))


def describe_machine(accelerator: Accelerator) -> dict[str, Any]:
    """Hardware and versions, as JSON can hold them: this machine's, and how many processes there are on all."""
    return {
        "hardware": _hardware(accelerator),
        "processes": accelerator.num_processes,
        "versions": {name: version(name) for name in _LIBRARIES},
    }


def _hardware(accelerator: Accelerator) -> str:
    if accelerator.device.type == "cuda":
        return f"{accelerator.num_processes} × {torch.cuda.get_device_name(accelerator.device)}"
    if accelerator.device.type == "cpu":
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        return f"{cores} CPU cores ({torch.backends.cpu.get_cpu_capability()}), torch uses {torch.get_num_threads()}"
    return f"{accelerator.num_processes} × {accelerator.device.type}"
