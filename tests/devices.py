"""
The device of tests that run on a GPU if there is one, and modes that find what would make the host
wait for a GPU, on machines without one.

`NoHostReads` finds it in operations on any tensors. Under `gpu_stand_in`, tensors on the meta
device stand in for a GPU's: they have no values, so that every read is found, including `tolist`,
which is no operation on a CPU.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
needs_gpu = pytest.mark.skipif(DEVICE.type == "cpu", reason="there is no CUDA device")


GPU = torch.device("meta")
Types = Sequence[type]
Arguments = tuple[Any, ...]
Options = dict[str, Any] | None


class NoHostReads(TorchDispatchMode):
    """Raise an error if an operation lets the host look at values, copies them, or has results of
    unknown shapes.
    """

    READS = ("_local_scalar_dense", "nonzero", "item", "masked_select", "equal")
    READS += ("is_nonzero", "unique", "_unique")
    READS += ("bincount", "repeat_interleave.Tensor")

    def __torch_dispatch__(
        self, operation: OpOverload, types: Types, args: Arguments = (), kwargs: Options = None
    ) -> Any:
        kwargs = kwargs or {}
        with self:  # in inference mode, operations that consist of others arrive here in one piece
            results = operation.decompose(*args, **kwargs)
        return self.run(operation, args, kwargs) if results is NotImplemented else results

    def run(self, operation: OpOverload, args: Arguments, kwargs: dict[str, Any]) -> Any:
        """Check an operation and run it."""
        self.check(operation, args)
        results = operation(*args, **kwargs)
        if operation.overloadpacket.__name__ in ("_to_copy", "copy_"):
            assert len(_devices(args, results)) <= 1, f"{operation} copies between devices."
        return results

    def check(self, operation: OpOverload, args: Arguments) -> None:
        """Check the name and the arguments of an operation."""
        name = operation.overloadpacket.__name__
        reads = str(operation).removeprefix("aten.").startswith(self.READS)
        assert not reads, f"{operation} waits for the device."
        is_constant = name == "lift_fresh" and args[0].numel() > 0
        assert not is_constant, f"{operation} makes a constant, which is copied from the host."
        if name in ("index", "index_put", "index_put_"):
            types = {index.dtype for index in args[1] if index is not None}
            assert types <= {torch.long}, f"{operation} with a mask has no static shape."


@contextmanager
def gpu_stand_in() -> Iterator["HostCopies"]:
    """
    Raise an error if the host would wait for tensors on `GPU`, unless it copies them with
    `non_blocking`.

    Operations on the CPU alone may do anything. Yields the copies that arrive on the host.
    """
    with _NoConstants(), HostCopies() as copies:
        yield copies


class HostCopies(NoHostReads):
    """Give random values to copies that arrive on the host, and keep them in `arrived`."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived: list[torch.Tensor] = []

    def run(self, operation: OpOverload, args: Arguments, kwargs: dict[str, Any]) -> Any:
        if operation.overloadpacket.__name__ == "_to_copy":
            device = args[0].device
            if kwargs.get("device", device) != device:
                return self._copy(args[0], kwargs)
        if GPU in _devices(args, kwargs):
            self.check(operation, args)
            message = f"{operation} has arguments on two devices, and copies one of them."
            assert len(_devices(args)) < 2, message
        return operation(*args, **kwargs)

    def _copy(self, tensor: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
        assert options.get("non_blocking"), "A copy between devices waits."
        dtype = options.get("dtype") or tensor.dtype
        if options["device"] == GPU:
            return torch.empty_like(tensor, device=GPU, dtype=dtype)
        self.arrived.append(torch.randint(0, 2, tensor.shape).to(dtype))
        return self.arrived[-1]


class _NoConstants(TorchFunctionMode):
    """Raise an error if numbers of the host become a tensor on `GPU`, which is no copy if that has
    no values.
    """

    MAKERS = (torch.tensor, torch.as_tensor, torch.Tensor.new_tensor)
    INDEXING = (torch.Tensor.__getitem__, torch.Tensor.__setitem__)

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Types,
        args: Arguments = (),
        kwargs: Options = None,
    ) -> Any:
        results = function(*args, **(kwargs or {}))
        if function in self.MAKERS:
            message = f"{function.__name__} copies numbers from the host."
            assert results.device != GPU or not results.numel(), message
        if function in self.INDEXING and args[0].device == GPU:
            indices = args[1] if isinstance(args[1], tuple) else (args[1],)
            lists = [index for index in indices if isinstance(index, list)]
            assert not lists, "A list as an index is copied from the host."
            has_tensors = any(isinstance(index, torch.Tensor) for index in indices)
            if function is torch.Tensor.__setitem__ and has_tensors:
                message = "A number is copied from the host. Use `index_fill_`."
                assert isinstance(args[2], torch.Tensor), message
        return results


def _devices(*trees: Any) -> set[torch.device]:
    """Return the devices of all tensors; a single value on a CPU is an argument of a kernel, which
    is not copied.
    """
    tensors = [leaf for leaf in pytree.tree_leaves(trees) if isinstance(leaf, torch.Tensor)]
    return {tensor.device for tensor in tensors if tensor.dim() or tensor.device.type != "cpu"}
