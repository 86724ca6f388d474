"""The cores, threads and instructions of this machine."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch
from accelerate import PartialState
from accelerate.utils import is_bf16_available, parse_flag_from_env

from vanilla_transformer.errors import UserError
from vanilla_transformer.machine.memory import cgroups

# oneDNN and torch each cache compiled matrix products by shape, 1,024 of them by default.
_CACHE_VARIABLES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
_PRODUCTS_PER_STEP = 64
# The names that torch has for instructions that multiply a type of numbers; the last ones of each
# line are of Arm.
_INSTRUCTIONS = {
    "bfloat16": ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16"),
    "int8": ("avx512_vnni", "avx_vnni", "avx_vnni_int8", "amx_int8", "dot", "i8mm"),
}


def process_state() -> PartialState:
    """Return Accelerate's state: process index, number of processes and device.

    An existing `Accelerator` shares this state. Unlike an `Accelerator`, it also detects `torchrun`
    on a machine without a GPU if `ACCELERATE_USE_CPU` is not set.
    """
    return PartialState(
        cpu=parse_flag_from_env("ACCELERATE_USE_CPU") or not torch.accelerator.is_available()
    )


def is_first_of_node() -> bool:
    """Return whether this is the first of the processes that a launcher started on this machine."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


def usable_cores() -> int:
    """Return the number of cores that this process may use, by its affinity and by the quotas of
    its cgroups.

    Containers limit processor time by a quota, which neither `os.cpu_count()`,
    `os.process_cpu_count()` nor torch reads. loky reads the quota of the topmost cgroup only, not
    of the process's own one, which systemd's slices limit, and machines with a GPU may have no
    packages but those that training needs.
    """
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    for folder in cgroups("cpu"):
        with suppress(OSError, ValueError):  # "max" is no quota
            if (folder / "cpu.max").exists():  # of version 2
                quota, period = map(int, (folder / "cpu.max").read_text().split())
            else:
                quota, period = (
                    int((folder / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period")
                )
            if quota > 0:
                cores = min(cores, quota // period)
    return max(1, cores)


def check_workers(workers: object) -> None:
    """Refuse a number of worker processes that is no integer from 1 to the number of cores."""
    cores = usable_cores()
    if type(workers) is not int or not 1 <= workers <= cores:
        raise UserError(
            f"`workers` must be an integer from 1 to {cores}, the number of cores that this "
            f"process may use, got {workers!r}."
        )


def use_all_cores() -> None:
    """Use all cores if `accelerate launch` started a single CPU process, which it limits to one
    thread.
    """
    launched = "ACCELERATE_MIXED_PRECISION" in os.environ
    if (
        launched
        and int(os.environ.get("WORLD_SIZE", "1")) == 1
        and not torch.accelerator.is_available()
    ):
        torch.set_num_threads(usable_cores())


def describe_hardware(device: torch.device, processes: int = 1) -> str:
    """Return the name and the number of the devices of a run, one for each process."""
    if device.type == "cuda":
        return f"{processes} × {torch.cuda.get_device_name(device)}"
    if device.type == "cpu":
        count = usable_cores()
        cores = f"{count} CPU {'core' if count == 1 else 'cores'}"
        return (
            f"{cores} ({torch.backends.cpu.get_cpu_capability()}), torch uses "
            f"{torch.get_num_threads()}"
        )
    return f"{processes} × {device.type}"


def check_threads(threads: int) -> int:
    """Return a number of threads that may compute."""
    cores = usable_cores()
    if not 1 <= threads <= cores:
        requirement = f"from 1 to {cores}, the number of cores that this process may use"
        raise UserError(f"`threads` must be {requirement}, got {threads}.")
    return threads


@contextmanager
def at_most_threads(most: int) -> Iterator[None]:
    """Let this Python thread compute with so many threads at most within the block.

    Entering it takes a tenth of a millisecond or, on busy cores, a few. Python threads that compute
    for the first time in this moment have the number, too, for good.
    """
    threads = torch.get_num_threads()
    if threads <= most:
        yield
        return
    try:
        torch.set_num_threads(most)
        # A Python thread begins with the number that any of them set last, and keeps it. So another
        # one sets it back.
        restorer = threading.Thread(target=torch.set_num_threads, args=(threads,))
        restorer.start()
        restorer.join()
        yield
    finally:
        torch.set_num_threads(threads)


def multiplies(precision: str, device: torch.device) -> bool:
    """Return whether a device has instructions that multiply `"bfloat16"` or `"int8"`; it has for
    other types.

    A processor without them emulates them: torch then multiplies matrices many times more slowly
    than in float32.
    """
    if device.type == "cpu" and precision in _INSTRUCTIONS:
        capabilities = torch.cpu.get_capabilities()
        return any(capabilities.get(name, False) for name in _INSTRUCTIONS[precision])
    if device.type == "cuda" and precision == "bfloat16":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return precision != "bfloat16" or is_bf16_available()


def limit_onednn_cache() -> None:
    """Let oneDNN cache the compiled products of a few shapes of batches only.

    Batches rarely repeat a shape. The full cache needs more memory than everything else: in
    bfloat16, and in float32 by the packed weights of engines. Call it before the first matrix
    product of the process. Variables that are set already stay.
    """
    for name in _CACHE_VARIABLES:
        os.environ.setdefault(name, str(_PRODUCTS_PER_STEP))
