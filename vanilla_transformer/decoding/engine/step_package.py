"""
Packages of compiled steps: machine code without weights, which serves every model of one shape.

A step is compiled ahead of time by `torch.export` and AOTInductor, for any number of slots and of
positions, once with the products of oneDNN and once with inductor's own; see [`kinds_of`]. Weights
are constants of the compiled code, in linear layers in the memory layout that the products read.
They are not stored: `constants.json` names the parameter that each constant is, and loading takes
it from the model. Tensors of the search's options are stored in `constants.safetensors`. Quantized
weights stay in the package.

Packages with weights would do without names of constants. But steps of few rows in float32 then
take a fifth more time, weights are in memory once more for each form, and each fine-tuned model
compiles its own; see `docs/tried.md`.

Two things have no public door in torch 2.13:

- `torch._inductor.aoti_load_package` takes seconds of imports, and its models read their signature
  from JSON at each call, for a tenth of a small step. So packages are loaded by the loader that it
  wraps.
- `load_constants` (https://github.com/pytorch/pytorch/pull/142246) takes constants by name, and
  freezing gives packed weights of several layers one name, and does not say of which parameter they
  are made. So a hook of the compiler gives them names, and random weights of the step that is
  compiled tell them apart.
"""

import copy
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from vanilla_transformer.decoding.weight_packing import SMALL_WEIGHT, Int8Linear, PackedLinear, pack

_PACKAGE, _CONSTANTS, _VALUES = "step.pt2", "constants.json", "constants.safetensors"
_PREFIX = "step."  # of names in a `_FlatStep`
FEW_ROWS, MANY_ROWS = "few_rows", "many_rows"
MOST_FEW_ROWS = 4
_SETTINGS: dict[str, dict[str, Any]] = {
    FEW_ROWS: {"max_autotune_gemm": True, "max_autotune_gemm_backends": "CPP"},
    MANY_ROWS: {},
}
# The dimensions of each tensor that vary with the slots or with the room for positions, and how
# fast they grow.
Dimensions = Sequence[dict[int, tuple[str, int]]]


class CompiledStep:
    """
    A step from a package, with the weights of a model.

    Args:
        folder: Folder of the package, see [`StepCompiler`].
        step: The step that was compiled, or one of the same shape with other weights, which must
            not change.
    """

    def __init__(self, folder: Path, step: nn.Module):
        # Calling the package itself would read its signature from JSON each time, for a tenth of a
        # small step.
        self._loader = _load(folder)
        constants = json.loads((folder / _CONSTANTS).read_text(encoding="utf-8"))
        if constants is not None:
            tensors = _tensors_of(step)
            layers = dict[int, PackedLinear]()
            for layer in step.modules():
                if isinstance(layer, PackedLinear):
                    layers[id(layer.weight)] = layer
            self._weights = dict[str, Tensor]()
            if None in constants.values():
                self._weights = load_file(folder / _VALUES)
            with torch.inference_mode():
                for name, source in constants.items():
                    if source is None:
                        continue
                    weight, layout = tensors[source[0]], source[1]
                    if layout == {"packed": True} and id(weight) in layers:
                        # The weight is shared with eager steps.
                        self._weights[name] = layers[id(weight)].packed()
                    else:
                        self._weights[name] = _in_layout(weight, **layout)
            # The package uses the weights where they are.
            self._loader.load_constants(self._weights, False, True, True)
        self._arguments: tuple[Any, ...] = ()
        self._leaves: list[Tensor] = []

    def __call__(self, *arguments: Any) -> None:
        if [*map(id, arguments)] != [*map(id, self._arguments)]:
            self._arguments, self._leaves = arguments, pytree.tree_leaves(arguments)
        self._loader.boxed_run(list(self._leaves))  # which empties the list


class StepCompiler:
    """
    Compile the forms of a step into packages, all from one trace of the step.

    Args:
        step: Maps `arguments` to nothing and updates them.
        dimensions: The dimensions of the tensors of the arguments that vary.
    """

    def __init__(self, step: nn.Module, arguments: Any, dimensions: Dimensions):
        self._step, self._arguments, self._dimensions = step, arguments, dimensions

    def compile(self, kind: str, folder: Path) -> None:
        """Write the package of a form, `FEW_ROWS` or `MANY_ROWS`, into a folder; see
        [`kinds_of`].
        """
        layers = _int8_layers(self._step)
        for layer in layers:
            layer.compiles_few_rows = kind == FEW_ROWS
        if layers:
            self.__dict__.pop("_traced", None)
        (step, program), values = self._traced, dict[str, Tensor]()
        is_quantized = _is_quantized(step)

        def record_constants(nodes: Any) -> Any:
            """Record the constants that inductor has made of weights, and tell them apart."""
            graph = torch._inductor.virtualized.V.graph
            for name, constant in graph.allocated_constant_name.items():
                if not constant.startswith(_PREFIX):
                    # Packed weights of several layers get the same name.
                    graph.allocated_constant_name[name] = name
            values.update(graph.constants)
            return nodes

        threads = torch.get_num_threads()
        threads = threads_for_few_rows(step, threads) if kind == FEW_ROWS else threads
        settings = {
            **_SETTINGS[kind],
            "cpp.threads": threads,
            # So that steps take as many as are set, up to these
            "cpp.dynamic_threads": threads > 1,
            "freezing": True,
            # Also vectors of up to 8 numbers, which would become code
            "always_keep_tensor_constants": True,
            "aot_inductor.compile_wrapper_opt_level": "O0",
            "aot_inductor.check_lowerbound": False,  # code for two slots or more works for one
            "aot_inductor.package_constants_in_so": is_quantized,
            "_post_fusion_custom_pass": record_constants,
        }
        with tracing(step):
            path = str(folder / _PACKAGE)
            torch._inductor.aoti_compile_and_package(
                program, package_path=path, inductor_configs=settings
            )
        constants: dict[str, Any] | None = None
        stored = dict[str, Tensor]()
        names = _load(folder).get_constant_fqns()
        if not is_quantized:
            constants = {name: _source_of(name, values, step, program) for name in names}
            lost = [name for name, source in constants.items() if source is None]
            stored = {name: values[name].clone() for name in lost}
        if stored:
            save_file(stored, folder / _VALUES)
        content = json.dumps(constants, indent=0) + "\n"
        (folder / _CONSTANTS).write_text(content, encoding="utf-8")

    @cached_property
    def _traced(self) -> tuple[nn.Module, torch.export.ExportedProgram]:
        """The step, unless it is quantized with random weights by which constants are recognized,
        and its program.
        """
        step = self._step
        if not _is_quantized(step):
            step, generator = copy.deepcopy(step), torch.Generator().manual_seed(0)
            with tracing(step):
                for weight in step.parameters():
                    weight.copy_(torch.rand(weight.shape, generator=generator))
                for layer in _int8_layers(step):
                    layer.round()
        return step, export_step(step, self._arguments, self._dimensions)


def kinds_of(step: nn.Module) -> tuple[str, ...]:
    """Return the kinds of packages that a step has: for few rows, which are slots times beams or
    times the tokens that a wide step reads, and for many rows.

    oneDNN multiplies many rows fastest, but each of its calls takes about 20 µs besides. For few
    rows, products that inductor generates take a quarter of the time of a step. It generates none
    for quantized weights, nor the batched ones of LSH attention.
    """
    is_batched = any(getattr(module, "has_batched_products", False) for module in step.modules())
    has_many_rows = getattr(step, "width", 1) > MOST_FEW_ROWS
    has_one = is_batched or has_many_rows or _is_quantized(step)
    return (MANY_ROWS,) if has_one else (FEW_ROWS, MANY_ROWS)


def threads_for_few_rows(step: nn.Module, threads: int) -> int:
    """Return the number of threads, of so many, for which a step of few rows is compiled.

    Threads wait for each other in each operation, on busy cores for longer than one of them reads
    small weights.
    """
    for decoder in getattr(step, "decoders", ()):
        for layer in decoder.layers:
            if any(weight.numel() > SMALL_WEIGHT for weight in layer.parameters()):
                return threads
    return 1


def _int8_layers(step: nn.Module) -> list[Int8Linear]:
    return [layer for layer in step.modules() if isinstance(layer, Int8Linear)]


def _is_quantized(step: nn.Module) -> bool:
    return any(map(is_traceable_wrapper_subclass, step.parameters()))


def _load(folder: Path) -> Any:
    """Return the loader of a package, which `torch._inductor.aoti_load_package` wraps after seconds
    of imports.
    """
    return torch._C._aoti.AOTIModelPackageLoader(str(folder / _PACKAGE), "model", False, 1, -1)


def export_step(
    step: nn.Module, arguments: Any, dimensions: Dimensions | None = None
) -> torch.export.ExportedProgram:
    """Export a step as a program whose one argument is the list of the tensors of its arguments.

    Args:
        dimensions: Those that may vary; by default none.
    """
    with tracing(step):
        leaves, structure = pytree.tree_flatten(pytree.tree_map(torch.clone, arguments))
        sizes = {"slots": torch.export.Dim("slots", min=1), "room": torch.export.Dim("room", min=2)}
        shapes = None
        if dimensions is not None:
            of_tensors = []
            for growing in dimensions:
                shape = {dim: growth * sizes[name] for dim, (name, growth) in growing.items()}
                of_tensors.append(shape)
            shapes = (of_tensors,)  # of the one argument, a list of tensors
        return torch.export.export(
            _FlatStep(step, structure), (leaves,), strict=False, dynamic_shapes=shapes
        )


@contextmanager
def tracing(step: nn.Module) -> Iterator[None]:
    """Turn autograd off in the way in which the step can be traced."""
    # Quantized weights cannot be traced in inference mode, and weights made in it cannot be traced
    # outside of it.
    with torch.inference_mode(next(step.parameters()).is_inference()), torch.no_grad():
        yield


class _FlatStep(nn.Module):
    """A step whose argument is one list of tensors: packages know no other types."""

    def __init__(self, step: nn.Module, structure: pytree.TreeSpec):
        super().__init__()
        self.step, self.structure = step, structure

    def forward(self, leaves: list[Tensor]) -> tuple[()]:
        return self.step(*pytree.tree_unflatten(leaves, self.structure))


def _source_of(
    name: str, constants: dict[str, Tensor], step: nn.Module, program: torch.export.ExportedProgram
) -> tuple[str, dict[str, Any]] | None:
    """Return of which tensor of the step a constant is made, and the arguments of [`_in_layout`].

    None is for tensors of the search's options, on whose values the identity of the step depends.
    """
    tensors = _tensors_of(step)
    if name.removeprefix(_PREFIX) in tensors:
        return name.removeprefix(_PREFIX), {}
    values = constants[name]
    packed = {"packed": True} if values.is_mkldnn else {}
    values = values.to_dense() if values.is_mkldnn else values
    for source, tensor in tensors.items():
        layouts: list[dict[str, Any]] = []
        if tensor.numel() == values.numel() and tensor.dtype == values.dtype:
            layouts.append({})
            if tensor.dim() == 2:
                layouts.append({"transposed": True})
            layouts.append({"shape": [*values.shape]})
        has_blocks = tensor.dim() == 2 and values.dim() == 3
        if has_blocks and values.shape[1] == tensor.shape[1]:
            block = values.shape[2]
            layouts += [{"block": block, "pairs": pairs} for pairs in (False, True)]
        for layout in layouts:
            if torch.equal(_in_layout(tensor, **layout), values):
                return source, layout | packed
    for constant in program.tensor_constants.values():
        if torch.equal(constant.to(values.dtype), values):
            return None
    shown = f"{name} of the compiled step, {tuple(values.shape)},"
    raise RuntimeError(f"The constant {shown} is no tensor of the step.")


def _in_layout(
    tensor: Tensor,
    transposed: bool = False,
    packed: bool = False,
    block: int = 0,
    pairs: bool = False,
    shape: Sequence[int] | None = None,
) -> Tensor:
    """Return a tensor of a step in the layout in which compiled code reads it.

    Args:
        shape: Shape of the same values in the same order, if it is another one.
        packed: Weights as oneDNN reads them.
        block: Weights `(N, K)` become `(N / block, K, block)`, as inductor reads them, with zeros
            at the end.
        pairs: Weights with the inputs of a block in pairs, as instructions for bfloat16 read them.
    """
    tensor = tensor.detach() if shape is None else tensor.detach().reshape(shape)
    if block:
        columns = nn.functional.pad(tensor.t(), (0, -len(tensor) % block))
        blocks = columns.unflatten(1, (-1, block)).transpose(0, 1)
        if pairs:
            of_pairs = blocks.unflatten(1, (-1, 2)).transpose(2, 3)
            blocks = of_pairs.reshape(blocks.shape)
        return blocks.contiguous()
    tensor = tensor.t().contiguous() if transposed else tensor
    return pack(tensor) if packed else tensor


def _tensors_of(step: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and buffers of a step by name."""
    parameters: dict[str, Tensor] = dict(step.named_parameters(remove_duplicate=False))
    return parameters | dict(step.named_buffers(remove_duplicate=False))
