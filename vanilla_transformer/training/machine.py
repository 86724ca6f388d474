"""What a run was computed by, for its record."""

import os
from importlib.metadata import version
from typing import Any

import torch
from accelerate import Accelerator

_LIBRARIES = ("torch", "transformers", "accelerate", "tokenizers")


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
