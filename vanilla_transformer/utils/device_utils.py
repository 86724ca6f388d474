"""
The cores, the cache of oneDNN and the compiler of this process, the numbers that a device
multiplies, and how it is kept busy.

A GPU computes while Python prepares what comes next. A plain read of a value, or a copy from
pageable memory, makes Python wait until the GPU has caught up. Here the host waits in
[`HostCopy.wait`] only.
"""

import os
import re
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import is_bf16_available, parse_flag_from_env
from torch import Tensor

from vanilla_transformer.errors import UserError

# oneDNN and torch each cache compiled matrix products by shape, 1,024 of them by default.
_CACHE_VARIABLES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
_PRODUCTS_PER_STEP = 64
_CGROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")
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
    for folder in _cgroups("cpu"):
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


def total_memory(device: torch.device) -> int | None:
    """Return the bytes of memory of a GPU, or of the machine as far as the cgroups permit; None if
    unknown.
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[1])
    if device.type != "cpu" or not hasattr(os, "sysconf"):
        return None
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for folder in _cgroups("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):  # of version 2 and 1
            with suppress(OSError, ValueError):  # "max" is no limit
                sizes.append(int((folder / name).read_text(encoding="utf-8")))
    return min(sizes)


def find_compiler() -> str | None:
    """Return the path of the C++ compiler, or None if there is none."""
    return shutil.which(os.environ.get("CXX", "g++"))


def first_line(error: Exception) -> str:
    """Return the first line of the message of a driver or a compiler, which may have many, or the
    name of its type.
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def explain_compiler_error(error: Exception) -> str | None:
    """Return a sentence about an error of inductor if the C++ compiler does not work, or None if it
    has not failed.
    """
    text = f"{type(error).__name__}: {error}"
    if not any(name in text for name in ("CppCompileError", "InvalidCxxCompiler")):
        return None
    lines = (text.partition("Output:\n")[2] or text).strip().splitlines()
    reason = next((line.strip() for line in lines if "error" in line.lower()), lines[0])
    reason = re.sub(r"^(\w+(Error|Exception|Compiler): )+", "", reason).rstrip(".")
    requirement = (
        f"The C++ compiler {find_compiler()} must compile what torch generates, but it "
        f"fails: {reason}"
    )
    return f"{requirement}. Repair it, or name another one in CXX."


def _cgroups(controller: str) -> Iterator[Path]:
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


def to_device(
    integers: Sequence[int] | Sequence[Sequence[int]] | Tensor, device: torch.device
) -> Tensor:
    """Copy integers, or rows of them, to a device, as [`copy_to_device`] does."""
    return copy_to_device(torch.as_tensor(integers, dtype=torch.long), device)


def copy_to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor from the host.

    On a GPU, operations on it wait for the copy, and the host does not.
    """
    return pin(tensor, device).to(device, non_blocking=True)


def pin(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor of the host in memory from which a GPU copies while the host continues."""
    return tensor.pin_memory() if device.type == "cuda" and not tensor.is_pinned() else tensor


def fill_rows(tensor: Tensor, rows: Tensor | slice, value: float) -> None:
    """Fill rows of a tensor with a number.

    With a tensor of rows, `tensor[rows] = value` would copy the number from the host, which would
    wait for a GPU.
    """
    if isinstance(rows, slice):
        tensor[rows].fill_(value)
    else:
        tensor.index_fill_(0, rows, value)


class HostCopy:
    """
    Copies of tensors that are on their way to the host, while host and device continue.

    Tensors on a CPU are not copied, so they must not change until `wait`.
    """

    def __init__(self, *tensors: Tensor):
        self._copies = [tensor.to("cpu", non_blocking=True) for tensor in tensors]
        self._arrival: torch.cuda.Event | None = None
        if tensors[0].device.type == "cuda":
            self._arrival = torch.cuda.Event()
            self._arrival.record(torch.cuda.current_stream(tensors[0].device))

    def wait(self) -> list[Any]:
        """Wait for the copies, and return their values as lists."""
        if self._arrival is not None:
            with deliberate_wait():
                self._arrival.synchronize()
        return [copy.tolist() for copy in self._copies]


@contextmanager
def deliberate_wait() -> Iterator[None]:
    """Let the host wait for a GPU within the block, even if `torch.cuda.set_sync_debug_mode`
    forbids it.
    """
    mode = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("default")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)


def expand_mask(seen: Tensor, attention: str, dtype: torch.dtype) -> Tensor:
    """Return a mask of padding `(W, S)`, 1 for tokens, as "sdpa" or "eager" attention takes it:
    `(W, 1, 1, S)`.

    The function of transformers reads from the device whether there is padding.
    """
    expanded = seen.bool()[:, None, None]
    return additive_mask(expanded, dtype) if attention == "eager" else expanded


def additive_mask(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a mask to add to the scores of attention: 0 where `seen`, the lowest number of `dtype`
    elsewhere.
    """
    return torch.zeros_like(seen, dtype=dtype).masked_fill_(~seen, torch.finfo(dtype).min)


_cudnn_lock = threading.Lock()
_cudnn_before: list[
    bool
] = []  # the setting at the beginning of each block that keeps cuDNN off, of all threads


@contextmanager
def without_cudnn_attention() -> Iterator[None]:
    """Keep cuDNN's attention off: it plans for a tenth of a second, and up to a second, at each new
    shape.
    """
    with _cudnn_lock:
        _cudnn_before.append(torch.backends.cuda.cudnn_sdp_enabled())
        torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        with _cudnn_lock:
            before = _cudnn_before.pop()
            if not _cudnn_before:  # `before` is of the first block
                torch.backends.cuda.enable_cudnn_sdp(before)
