# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""
Matrix products of the model on a CPU, faster than plain ones: with packed weights while nothing is learnt; in 8 bits.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import nn

_Model = TypeVar("_Model", bound=nn.Module)


class VanillaTransformerLinear(nn.Linear):
    """
    `nn.Linear`, `x Wᵀ + b`. Inside `packed_linears`, float32 is multiplied by oneDNN with a weight in its own order,
    which is twice as fast as the product that torch takes otherwise where that does not know the processor well.
    """

    packed: torch.Tensor | None = None

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        packed = self.packed
        if packed is None or not _can_be_packed(hidden_states):
            return super().forward(hidden_states)
        return torch.ops.mkldnn._linear_pointwise(hidden_states, packed, self.bias, "none", [], "")


def _can_be_packed(hidden_states: torch.Tensor) -> bool:
    return hidden_states.dtype == torch.float32 and not torch.is_grad_enabled()


def _packed(weight: torch.Tensor) -> torch.Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(weight.detach())


def _joined_biases(linears: Sequence[nn.Linear]) -> torch.Tensor | None:
    biases = [linear.bias.detach() for linear in linears if linear.bias is not None]
    return torch.cat(biases) if biases else None


class VanillaTransformerInt8Linear(nn.Module):
    """
    `x Wᵀ + b` of 8-bit integers: W is rounded once, with a scale for each output, and x at each call, with a scale for
    each row, so that a sentence's result does not depend on what else is in the batch. For inference on a CPU.

    Args:
        linears (`nn.Linear`):
            The layer to round, or several of one input, whose outputs stand side by side then. Their weights stay as
            they are.
    """

    weight: torch.Tensor
    scale: torch.Tensor
    bias: torch.Tensor | None

    def __init__(self, *linears: nn.Linear):
        super().__init__()
        weight, scale = _rounded(torch.cat([linear.weight.detach().float() for linear in linears]))
        bias = _joined_biases(linears)
        self.out_features, self.in_features = weight.shape
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale[:, 0])
        self.register_buffer("bias", None if bias is None else bias.float())

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled() and hidden_states.requires_grad:
            raise ValueError('A model in 8 bits cannot learn. Load it without `dtype="int8"`.')
        rows, scale = _rounded(hidden_states.reshape(-1, self.in_features).float())
        products = torch._int_mm(rows, self.weight.t()) * scale  # (rows, out), integers times floats
        products = products.mul_(self.scale) if self.bias is None else products.mul_(self.scale).add_(self.bias)
        return products.view(*hidden_states.shape[:-1], self.out_features).to(hidden_states.dtype)


def _rounded(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Integers from -127 to 127 and, for each row, what they are to be multiplied by."""
    scale = rows.abs().amax(dim=-1, keepdim=True).clamp_(min=1e-12).div_(127)
    return rows.div(scale).round_().to(torch.int8), scale


def quantize_linears(model: _Model) -> _Model:
    """The model, with a `VanillaTransformerInt8Linear` in the place of every `nn.Linear`."""
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, nn.Linear):
                setattr(parent, name, VanillaTransformerInt8Linear(layer))
    return model


@contextmanager
def packed_linears(model: nn.Module) -> Iterator[None]:
    """
    Holds the weights of a model's `nn.Linear`s in the order of oneDNN as well, where it is on a CPU and in float32.
    The weights must not change meanwhile. Inside another such block nothing happens.
    """
    layers = list(_linears(model)) if _has_onednn() else []
    try:
        for layer in layers:
            layer.__class__ = VanillaTransformerLinear
            layer.packed = _packed(layer.weight)  # type: ignore[assignment]
        yield
    finally:
        for layer in layers:
            del layer.packed
            layer.__class__ = nn.Linear


def _has_onednn() -> bool:
    known = hasattr(torch.ops.mkldnn, "_linear_pointwise") and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    return known and torch.backends.mkldnn.is_available() and not torch.is_autocast_enabled("cpu")


def _linears(model: nn.Module) -> Iterator[nn.Linear]:
    """Those whose weights can be packed."""
    for layer in model.modules():
        if type(layer) is not nn.Linear or type(layer.weight) is not nn.Parameter:
            continue
        if layer.weight.device.type == "cpu" and layer.weight.dtype == torch.float32:
            yield layer


__all__ = ["VanillaTransformerInt8Linear", "VanillaTransformerLinear", "packed_linears", "quantize_linears"]
