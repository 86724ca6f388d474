"""
Copies between the host and the device of an engine that let the host run ahead.

A GPU computes while Python prepares what comes next. A plain read of a value, or a copy from pageable memory, makes
Python wait until the GPU has caught up. Here the host waits in [`HostCopy.wait`] only.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


def to_device(integers: Sequence[int] | Sequence[Sequence[int]] | Tensor, device: torch.device) -> Tensor:
    """Copy integers, or rows of them, to a device, as [`copy_to_device`] does."""
    return copy_to_device(torch.as_tensor(integers, dtype=torch.long), device)


def copy_to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor from the host. On a GPU, operations on it wait for the copy, and the host does not."""
    if device.type == "cuda" and not tensor.is_pinned():
        tensor = tensor.pin_memory()  # the host would wait for a copy of other memory
    return tensor.to(device, non_blocking=True)


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
    """Let the host wait for a GPU within the block, even if `torch.cuda.set_sync_debug_mode` forbids it."""
    mode = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("default")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)


__all__ = ["HostCopy", "copy_to_device", "deliberate_wait", "to_device"]
