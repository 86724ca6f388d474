"""The cores that this process may use, and the numbers that a device multiplies."""

import os
from collections.abc import Iterator
from pathlib import Path

import torch
from accelerate.utils import is_bf16_available

_CGROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")
# The names that torch has for instructions that multiply a type of numbers; the last ones of each line are of Arm.
_INSTRUCTIONS = {
    "bfloat16": ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16"),
    "int8": ("avx512_vnni", "avx_vnni", "avx_vnni_int8", "amx_int8", "dot", "i8mm"),
}


def usable_cores() -> int:
    """Return the number of cores that this process may use, by its affinity and by the quotas of its cgroups.

    Containers limit processor time by a quota, which neither `os.cpu_count()` nor torch reads.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([cores, *map(int, _quotas())]))


def multiplies(precision: str, device: torch.device) -> bool:
    """Return whether a device has instructions that multiply `"bfloat16"` or `"int8"`; it has for other types.

    A processor without them emulates them: torch then multiplies matrices many times more slowly than in float32.
    """
    if device.type == "cpu" and precision in _INSTRUCTIONS:
        capabilities = torch.cpu.get_capabilities()
        return any(capabilities.get(name, False) for name in _INSTRUCTIONS[precision])
    if device.type == "cuda" and precision == "bfloat16":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return precision != "bfloat16" or is_bf16_available()


def _quotas() -> Iterator[float]:
    """Yield the cores of each quota: of the process's cgroup, and of those that contain it."""
    try:
        lines = _MEMBERSHIP.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = _CGROUPS / "cpu" if controllers else _CGROUPS  # of version 1, or of version 2
        group = root / name.lstrip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(root):
                yield from _quota(folder)


def _quota(folder: Path) -> Iterator[float]:
    """Yield the quota of a cgroup in cores, if it has one: of version 2, or of version 1."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        if quota != "max" and int(quota) > 0:
            yield int(quota) / int(period)
    except (OSError, ValueError):
        return


__all__ = ["multiplies", "usable_cores"]
