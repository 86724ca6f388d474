"""
Packages of compiled steps: machine code without weights, which serves every model of one shape.

A step is compiled ahead of time by `torch.export` and AOTInductor, for any number of slots and of positions. Weights
are constants of the compiled code, in linear layers in the memory layout that oneDNN chooses for this processor.
They are not stored: `constants.json` names the parameter that each constant is, and loading takes it from the model.
Tensors of the search's options are stored in `constants.safetensors`. Quantized weights stay in the package.
"""

import copy
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from vanilla_transformer.inference.weight_packing import PackedLinear, pack

_PACKAGE, _CONSTANTS, _VALUES = "step.pt2", "constants.json", "constants.safetensors"
_PREFIX = "step."  # of names in a `_FlatStep`
# The dimensions of each tensor that vary with the slots or with the room for positions, and how fast they grow.
Dimensions = Sequence[dict[int, tuple[str, int]]]


class CompiledStep:
    """
    A step from a package, with the weights of a model.

    Args:
        folder: Of the package, see [`compile_step`].
        step: The step that was compiled, or one of the same shape with other weights, which must not change.

    Raises:
        RuntimeError: The package cannot be loaded.
    """

    def __init__(self, folder: Path, step: nn.Module):
        # Calling the package itself would read its signature from JSON each time, for a tenth of a small step.
        self._loader = _load(folder)
        constants = json.loads((folder / _CONSTANTS).read_text(encoding="utf-8"))
        self._weights = None if constants is None else _read_constants(folder, step, constants)
        if self._weights is not None:  # which the package uses where they are
            self._loader.load_constants(self._weights, False, True, True)
        self._arguments: tuple[Any, ...] = ()
        self._leaves: list[Tensor] = []

    def __call__(self, *arguments: Any) -> None:
        if [*map(id, arguments)] != [*map(id, self._arguments)]:
            self._arguments, self._leaves = arguments, pytree.tree_leaves(arguments)
        self._loader.boxed_run(list(self._leaves))  # which empties the list


def compile_step(step: nn.Module, arguments: Any, dimensions: Dimensions, folder: Path) -> None:
    """Compile a step into a package, given arguments of which some dimensions may vary."""
    is_quantized = any(map(is_traceable_wrapper_subclass, step.parameters()))
    if not is_quantized:
        step = _with_distinct_weights(step)
    program = export_step(step, arguments, dimensions)
    settings = {
        "freezing": True,
        "aot_inductor.check_lowerbound": False,  # code for two slots or more works for one
        "aot_inductor.package_constants_in_so": is_quantized,
        "post_grad_custom_post_pass": _recorder(),
    }
    _frozen.clear()
    with tracing(step):
        torch._inductor.aoti_compile_and_package(
            program, package_path=str(folder / _PACKAGE), inductor_configs=settings
        )
    names = _load(folder).get_constant_fqns()
    constants = None if is_quantized else {name: _source_of(name, step, program) for name in names}
    values = {name: _frozen[name].clone() for name, source in (constants or {}).items() if source is None}
    if values:
        save_file(values, folder / _VALUES)
    (folder / _CONSTANTS).write_text(json.dumps(constants, indent=0) + "\n", encoding="utf-8")


def _load(folder: Path) -> Any:
    """Return the loader of a package, which `torch._inductor.aoti_load_package` wraps after seconds of imports."""
    return torch._C._aoti.AOTIModelPackageLoader(str(folder / _PACKAGE), "model", False, 1, -1)


def export_step(step: nn.Module, arguments: Any, dimensions: Dimensions | None = None) -> torch.export.ExportedProgram:
    """Export a step as a program whose one argument is the list of the tensors of its arguments.

    Args:
        dimensions: Those that may vary; by default none.
    """
    with tracing(step):
        leaves, structure = pytree.tree_flatten(pytree.tree_map(torch.clone, arguments))
        sizes = {"slots": torch.export.Dim("slots", min=1), "room": torch.export.Dim("room", min=2)}
        shapes = None
        if dimensions is not None:
            shapes = ([{dim: growth * sizes[name] for dim, (name, growth) in each.items()} for each in dimensions],)
        return torch.export.export(_FlatStep(step, structure), (leaves,), strict=False, dynamic_shapes=shapes)


@contextmanager
def tracing(step: nn.Module) -> Iterator[None]:
    """Turn autograd off in the way in which the step can be traced."""
    # Quantized weights cannot be traced in inference mode, and weights made in it cannot be traced outside of it.
    with torch.inference_mode(next(step.parameters()).is_inference()), torch.no_grad():
        yield


class _FlatStep(nn.Module):
    """A step whose argument is one list of tensors: packages know no other types."""

    def __init__(self, step: nn.Module, structure: Any):
        super().__init__()
        self.step, self.structure = step, structure

    def forward(self, leaves: list[Tensor]) -> tuple[()]:
        return self.step(*pytree.tree_unflatten(leaves, self.structure))


_frozen: dict[str, Tensor] = {}  # inductor copies its configuration, and the pass with it


def _recorder() -> Any:
    """Return a pass of inductor that records the constants that it has made of weights."""
    from torch._inductor.custom_graph_pass import CustomGraphPass  # which takes a second

    class RecordConstants(CustomGraphPass):
        def __call__(self, graph: torch.fx.Graph) -> None:
            for node in graph.nodes:
                if node.op == "get_attr" and "." not in node.target:
                    _frozen[node.target] = getattr(graph.owning_module, node.target)

        def uuid(self) -> str:
            return type(self).__name__

    return RecordConstants()


def _with_distinct_weights(step: nn.Module) -> nn.Module:
    """Return a copy of a step with random weights, by which constants are recognized."""
    step, generator = copy.deepcopy(step), torch.Generator().manual_seed(0)
    with torch.inference_mode(next(step.parameters()).is_inference()), torch.no_grad():
        for weight in step.parameters():
            weight.copy_(torch.rand(weight.shape, generator=generator))
    return step


def _source_of(name: str, step: nn.Module, program: torch.export.ExportedProgram) -> dict[str, Any] | None:
    """Return how a constant is made: of which tensor of the step, and whether it is transposed or packed.

    None is for tensors of the search's options, on whose values the identity of the step depends.
    """
    tensors = _tensors_of(step)
    if name.removeprefix(_PREFIX) in tensors:
        return {"tensor": name.removeprefix(_PREFIX)}
    constant = _frozen[name]
    values = constant.to_dense() if constant.is_mkldnn else constant
    for own, tensor in tensors.items():
        if tensor.shape == values.shape and torch.equal(tensor, values):
            return {"tensor": own, "packed": constant.is_mkldnn}
        if tensor.dim() == 2 and tensor.t().shape == values.shape and torch.equal(tensor.t(), values):
            return {"tensor": own, "packed": constant.is_mkldnn, "transposed": True}
    for tensor in program.tensor_constants.values():
        if tensor.shape == values.shape and torch.equal(tensor.to(values.dtype), values):
            return None
    raise RuntimeError(f"The constant {name} of the compiled step, {tuple(values.shape)}, is no tensor of the step.")


def _read_constants(folder: Path, step: nn.Module, constants: dict[str, dict[str, Any] | None]) -> dict[str, Tensor]:
    """Return the constants of a package, made of the tensors of a step or stored; see [`_source_of`]."""
    tensors = _tensors_of(step)
    packed = {id(each.weight): each for each in step.modules() if isinstance(each, PackedLinear)}

    def make(tensor: str, packed_: bool = False, transposed: bool = False) -> Tensor:
        found = tensors[tensor]
        if packed_ and not transposed and id(found) in packed:
            return packed[id(found)].packed()  # which eager steps use, too
        found = found.detach().t().contiguous() if transposed else found.detach()
        return pack(found) if packed_ else found

    stored = load_file(folder / _VALUES) if None in constants.values() else {}
    with torch.inference_mode():
        made = {
            name: make(each["tensor"], each.get("packed", False), each.get("transposed", False))
            for name, each in constants.items()
            if each is not None
        }
    return stored | made


def _tensors_of(step: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and buffers of a step, and tensors among its attributes, by name."""
    return {**dict(step.named_parameters(remove_duplicate=False)), **dict(step.named_buffers(remove_duplicate=False))}


__all__ = ["CompiledStep", "Dimensions", "compile_step", "export_step", "tracing"]
