# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Matrix products of the model on a CPU, with packed weights while nothing is learnt."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


class VanillaTransformerLinear(nn.Linear):
    """
    `nn.Linear`, `x Wᵀ + b`. Inside `packed_linears`, float32 is multiplied by oneDNN with a weight in its own order,
    which is twice as fast as the product that torch takes otherwise where that does not know the processor well.
    """

    packed: torch.Tensor | None = None

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        packed = self.packed
        if packed is None or hidden_states.dtype != torch.float32 or torch.is_grad_enabled():
            return super().forward(hidden_states)
        return torch.ops.mkldnn._linear_pointwise(hidden_states, packed, self.bias, "none", [], "")


@contextmanager
def packed_linears(model: nn.Module) -> Iterator[None]:
    """
    Holds the weights of a model's `VanillaTransformerLinear`s in the order of oneDNN as well, where it is on a CPU and
    in float32. The weights must not change meanwhile. Inside another such block nothing happens.
    """
    layers = [layer for layer in _linears(model) if layer.packed is None] if _has_onednn() else []
    try:
        with torch.no_grad():
            for layer in layers:
                layer.packed = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach())
        yield
    finally:
        for layer in layers:
            layer.packed = None


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


__all__ = ["VanillaTransformerLinear", "packed_linears"]
