"""
Linear layers whose weights are packed for oneDNN while a model decodes on a CPU.

A packed product is one operation, where a plain one is four, and it is about twice as fast on
processors that MKL, the default of torch, is slow on. It takes about 12 µs besides, in which a
plain one multiplies a few rows in float32.
"""

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

if TYPE_CHECKING:
    from vanilla_transformer.modeling_vanilla_transformer import VanillaTransformerAttention

_Module = TypeVar("_Module", bound=nn.Module)
# Self-attention projects one input three times.
_INPUTS = ("q_proj", "k_proj", "v_proj")
# Plain products of small weights, weights in int8, and one thread multiply so many rows fastest.
MOST_PLAIN_ROWS = 8
SMALL_WEIGHT = 2**18  # numbers
_LARGEST_INTEGER = 127
INPUTS_AT_ONCE = 32  # torch's product of int8 weights reads so many, also beyond the end of a row


class PackedLinear(nn.Linear):
    """
    `x Wᵀ + b` by oneDNN, with W in its own memory layout. Several layers of the same input are one
    product.

    A single layer shares its contiguous parameters. Where oneDNN does not multiply the type of the
    weights, and in a step that is being compiled, which packs them itself, this is a plain product.

    Args:
        linears (`nn.Linear`): The layers, which must not change as long as this one is used.
        activation: `"relu"`, computed with the product, or `"none"`.
    """

    def __init__(self, *linears: nn.Linear, activation: str = "none"):
        first = linears[0]
        outputs = sum(linear.out_features for linear in linears)
        super().__init__(first.in_features, outputs, first.bias is not None, device="meta")
        self.weight = first.weight
        if len(linears) > 1:
            self.weight = _join([linear.weight for linear in linears])
        if first.bias is not None:
            self.bias = first.bias
            # oneDNN reads the bias as if it were contiguous.
            if len(linears) > 1 or not first.bias.is_contiguous():
                self.bias = _join([linear.bias for linear in linears])
        self._packed: Tensor | None = None
        self._activation = activation
        is_small = self.weight.numel() <= SMALL_WEIGHT
        self._is_small = self.weight.dtype == torch.float32 and is_small

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_packed": None}  # which cannot be copied or stored

    def forward(self, hidden_states: Tensor) -> Tensor:
        # While it is compiled, the number of rows must not be looked at.
        is_plain = torch.compiler.is_compiling() or (
            self._is_small and hidden_states.numel() <= MOST_PLAIN_ROWS * self.in_features
        )
        weight = self.weight if is_plain else self.packed()
        if weight.is_mkldnn:
            return torch.ops.mkldnn._linear_pointwise(
                hidden_states, weight, self.bias, self._activation, [], ""
            )
        output = nn.functional.linear(hidden_states, weight, self.bias)
        return output.relu() if self._activation == "relu" else output

    def packed(self) -> Tensor:
        if self._packed is None:
            self._packed = pack(self.weight)
        return self._packed


class Int8Linear(PackedLinear):
    """
    A packed layer that multiplies a few rows by weights in int8, which are a quarter of the bytes
    to read. The rows are rounded to bfloat16.

    It multiplies more rows in float32: without instructions for int8, that is faster.

    Attributes:
        compiles_few_rows: Whether the step that is being compiled is for a few rows.
    """

    integers: Tensor
    scale: Tensor
    compiles_few_rows = False

    def __init__(self, layer: PackedLinear):
        super().__init__(layer, activation=layer._activation)
        self.round()

    def round(self) -> None:
        """Round the weights as they are now."""
        weight = self.weight.detach()
        scale = (weight.abs().amax(dim=1) / _LARGEST_INTEGER).bfloat16()
        integers = (weight / scale.float()[:, None]).round()
        integers = integers.clamp(-_LARGEST_INTEGER, _LARGEST_INTEGER).to(torch.int8)
        self.register_buffer("integers", integers)
        self.register_buffer("scale", scale)

    def forward(self, hidden_states: Tensor) -> Tensor:
        has_few_rows = self.compiles_few_rows
        if not torch.compiler.is_compiling():
            has_few_rows = hidden_states.numel() <= MOST_PLAIN_ROWS * self.in_features
        if not has_few_rows:
            return super().forward(hidden_states)
        rows = hidden_states.flatten(0, -2).bfloat16()
        # There is no public operation that reads the integers as they are.
        products = torch._weight_int8pack_mm(rows, self.integers, self.scale)
        output = products.to(hidden_states.dtype).unflatten(0, hidden_states.shape[:-1])
        if self.bias is not None:
            output = output + self.bias
        return output.relu() if self._activation == "relu" else output


def pack(weight: Tensor) -> Tensor:
    """Return a weight in the layout of oneDNN, or as it is if oneDNN does not multiply it."""
    is_plain = type(weight) in (Tensor, nn.Parameter) and weight.device.type == "cpu"
    types = [torch.float32]
    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        types.append(torch.bfloat16)
    if not is_plain or weight.dtype not in types:
        return weight
    if not torch.backends.mkldnn.is_available():
        return weight
    with torch.no_grad():
        return torch.ops.mkldnn._reorder_linear_weight(weight.detach())


def packed_copy(module: _Module, _copied: dict[nn.Module, nn.Module] | None = None) -> _Module:
    """Return a copy of a module that shares all but its submodules: linear layers are packed, and
    none drops out.
    """
    copied: Any = {} if _copied is None else _copied
    if module not in copied:
        if type(module) is nn.Linear:
            copied[module] = PackedLinear(cast(nn.Linear, module))
        elif type(module) is nn.Dropout:
            copied[module] = nn.Identity()
        elif is_parametrized(module):  # computes its weights at each call
            copied[module] = module
        else:
            copied[module] = copy.copy(module)
            children = dict[str, nn.Module]()
            for name, child in module._modules.items():
                if child is not None:
                    children[name] = packed_copy(child, copied)
            activation, first = children.get("activation_fn"), children.get("fc1")
            # Equation 2 in one product
            if type(activation) is nn.ReLU and type(first) is PackedLinear:
                inner = PackedLinear(cast(nn.Linear, module.fc1), activation="relu")
                children |= {"fc1": inner, "activation_fn": nn.Identity()}
            copied[module]._modules = module._modules | children
    return copied[module]


def inputs_of(attention: "VanillaTransformerAttention") -> list[Any]:
    return [getattr(attention, name) for name in _INPUTS]


def _join(tensors: Sequence[Tensor]) -> nn.Parameter:
    joined = torch.cat([tensor.detach() for tensor in tensors])
    return nn.Parameter(joined, requires_grad=False)
