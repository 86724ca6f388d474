"""
Pack the weights of linear layers for oneDNN while a model decodes on a CPU in float32.

A packed product is about twice as fast as the plain one on processors that MKL, the default of torch, is slow on.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

# Source tokens of one call from which packing saves more time than it takes.
_TOKENS_WORTH_PACKING = 64
_INPUTS = ("q_proj", "k_proj", "v_proj")  # self-attention projects one input three times
_lock = threading.Lock()  # one thread at a time replaces layers


class PackedLinear(nn.Module):
    """
    `x Wᵀ + b` by oneDNN, with W in its own memory layout. Several layers of the same input are one product.

    A single layer keeps its parameters under their names. Inputs of another type, and autograd, get a plain product.
    """

    weight: torch.Tensor
    bias: torch.Tensor | None

    def __init__(self, *linears: nn.Linear):
        super().__init__()
        if len(linears) == 1:
            self.weight, self.bias = linears[0].weight, linears[0].bias
        else:
            self.register_buffer("weight", torch.cat([linear.weight.detach() for linear in linears]), persistent=False)
            self.register_buffer("bias", join_biases(linears), persistent=False)
        self.out_features, self.in_features = self.weight.shape
        self._packed: torch.Tensor | None = None

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        if hidden_states.dtype != torch.float32 or torch.is_grad_enabled():
            return nn.functional.linear(hidden_states, self.weight, self.bias)
        packed = self._packed
        if packed is None:
            packed = self._packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach())
        return torch.ops.mkldnn._linear_pointwise(hidden_states, packed, self.bias, "none", [], "")


def join_biases(linears: Sequence[nn.Linear]) -> torch.Tensor | None:
    """Return the biases of several layers side by side, or None without biases."""
    biases = [linear.bias.detach() for linear in linears if linear.bias is not None]
    return torch.cat(biases) if biases else None


class _Packing:
    """The layers of a model that packed ones replace while at least one block of [`packed_weights`] is open."""

    def __init__(self, model: nn.Module):
        self.blocks = 0
        self._attentions = [a for a in decoder_self_attentions(model) if all(map(_can_pack, inputs_of(a)))]
        self._replaced: list[tuple[nn.Module, str, Any]] = [
            (parent, name, layer)
            for parent in model.modules()
            for name, layer in parent.named_children()
            if _can_pack(layer)
        ]
        for attention in self._attentions:
            # Not a submodule: other threads may be iterating over the modules.
            object.__setattr__(attention, "qkv_proj", PackedLinear(*inputs_of(attention)))
        for parent, name, layer in self._replaced:
            setattr(parent, name, PackedLinear(layer))

    def undo(self) -> None:
        for parent, name, layer in self._replaced:
            setattr(parent, name, layer)
        for attention in self._attentions:
            del attention.qkv_proj


_packings: WeakKeyDictionary[nn.Module, _Packing] = WeakKeyDictionary()


@contextmanager
def packed_weights(model: nn.Module, tokens: int = _TOKENS_WORTH_PACKING) -> Iterator[None]:
    """
    Replace the linear layers of `model` by packed ones within the block, if it is on a CPU and in float32.

    The projections of the decoder's self-attention get a joined one, `qkv_proj`, beside them. The weights must not
    change within the block. Several threads may open blocks of one model: the last to leave restores its layers.

    Args:
        tokens: Source tokens to decode within the block; a few are not worth packing.
    """
    if tokens < _TOKENS_WORTH_PACKING or not _has_onednn():
        yield
        return
    with _lock:
        packing = _packings.get(model)
        if packing is None:
            packing = _packings[model] = _Packing(model)
        packing.blocks += 1
    try:
        yield
    finally:
        with _lock:
            packing.blocks -= 1
            if packing.blocks == 0:
                packing.undo()
                del _packings[model]


def decoder_self_attentions(model: nn.Module) -> list[Any]:
    """Return the decoder's self-attentions that project one input three times."""
    decoder = getattr(getattr(model, "model", None), "decoder", None)
    attentions = [layer.self_attn for layer in getattr(decoder, "layers", [])]
    return [a for a in attentions if all(hasattr(a, name) for name in _INPUTS) and not hasattr(a, "qkv_proj")]


def inputs_of(attention: Any) -> list[Any]:
    """Return the projections to queries, keys and values."""
    return [getattr(attention, name) for name in _INPUTS]


def _can_pack(layer: nn.Module) -> bool:
    """Tell whether a layer is only a product of float32 on the CPU: no adapter, hook or other type of weight."""
    return (
        type(layer) is nn.Linear
        and type(layer.weight) is nn.Parameter
        and layer.weight.device.type == "cpu"
        and layer.weight.dtype == torch.float32
        and "forward" not in vars(layer)
        and not (layer._forward_hooks or layer._forward_pre_hooks)
    )


def _has_onednn() -> bool:
    known = hasattr(torch.ops.mkldnn, "_linear_pointwise") and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    return known and torch.backends.mkldnn.is_available() and not torch.is_autocast_enabled("cpu")


__all__ = ["PackedLinear", "decoder_self_attentions", "inputs_of", "join_biases", "packed_weights"]
