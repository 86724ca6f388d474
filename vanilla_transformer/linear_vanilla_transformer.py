# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""
Matrix products of the model on a CPU, faster than plain ones: with packed weights while nothing is learnt; in 8 bits.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

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


class _JoinedLinears:
    """Several layers of one input as one packed product, their outputs side by side."""

    def __init__(self, linears: Sequence[VanillaTransformerLinear]):
        self.linears = linears
        self.packed = _packed(torch.cat([linear.weight for linear in linears]))
        self.bias = _joined_biases(linears)

    def __call__(self, hidden_states: torch.Tensor) -> torch.Tensor:
        if not _can_be_packed(hidden_states):
            return torch.cat([linear(hidden_states) for linear in self.linears], dim=-1)
        return torch.ops.mkldnn._linear_pointwise(hidden_states, self.packed, self.bias, "none", [], "")


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
    """The model, with a `VanillaTransformerInt8Linear` in the place of every `VanillaTransformerLinear`."""
    for attention in _self_attentions(model):
        attention.joined_proj = VanillaTransformerInt8Linear(*_inputs(attention))
        for name in _INPUTS:
            delattr(attention, name)
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, VanillaTransformerLinear):
                setattr(parent, name, VanillaTransformerInt8Linear(layer))
    return model


@contextmanager
def packed_linears(model: nn.Module) -> Iterator[None]:
    """
    Holds the weights of a model's `VanillaTransformerLinear`s in the order of oneDNN as well, where it is on a CPU and
    in float32. The weights must not change meanwhile. Inside another such block nothing happens.
    """
    attentions = _self_attentions(model)
    joined = {layer for attention in attentions if attention.joined_proj for layer in _inputs(attention)}
    layers = {layer for layer in _linears(model) if layer.packed is None} - joined if _has_onednn() else set()
    attentions = [attention for attention in attentions if layers.issuperset(_inputs(attention))]
    try:
        with torch.no_grad():
            for attention in attentions:
                attention.joined_proj = _JoinedLinears(_inputs(attention))
                layers.difference_update(_inputs(attention))
            for layer in layers:
                layer.packed = _packed(layer.weight)
        yield
    finally:
        for attention in attentions:
            attention.joined_proj = None
        for layer in layers:
            layer.packed = None


# Self-attention projects one input three times.
_INPUTS = ("q_proj", "k_proj", "v_proj")


def _self_attentions(model: nn.Module) -> list[Any]:
    """Those that project one input three times, and not in 8 bits yet."""
    return [
        module
        for name, module in model.named_modules()
        if name.split(".")[-1] == "self_attn" and hasattr(module, "joined_proj") and hasattr(module, _INPUTS[0])
    ]


def _inputs(attention: Any) -> list[Any]:
    return [getattr(attention, name) for name in _INPUTS]


def _has_onednn() -> bool:
    known = hasattr(torch.ops.mkldnn, "_linear_pointwise") and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    return known and torch.backends.mkldnn.is_available() and not torch.is_autocast_enabled("cpu")


def _linears(model: nn.Module) -> Iterator[VanillaTransformerLinear]:
    """Those whose weights can be packed."""
    for layer in model.modules():
        if not isinstance(layer, VanillaTransformerLinear) or type(layer.weight) is not nn.Parameter:
            continue
        if layer.weight.device.type == "cpu" and layer.weight.dtype == torch.float32:
            yield layer


__all__ = ["VanillaTransformerInt8Linear", "VanillaTransformerLinear", "packed_linears", "quantize_linears"]
