"""Copy tensors between the host and a device."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


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
