"""The memory of this machine or of its container."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import torch

_CGROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")


def total_memory(device: torch.device) -> int | None:
    """Return the bytes of memory of a GPU, or of the machine as far as the cgroups permit; None if
    unknown.
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[1])
    if device.type != "cpu" or not hasattr(os, "sysconf"):
        return None
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for folder in cgroups("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):  # of version 2 and 1
            with suppress(OSError, ValueError):  # "max" is no limit
                sizes.append(int((folder / name).read_text(encoding="utf-8")))
    return min(sizes)


def cgroups(controller: str) -> Iterator[Path]:
    """Yield the folders of the process's cgroup, and of the cgroups that contain it, where
    `controller` has files.
    """
    try:
        lines = _MEMBERSHIP.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = _CGROUPS / controller if controllers else _CGROUPS  # of version 1, or of version 2
        group = root / name.lstrip("/")
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(root))
