"""Compile the layers of a model and its loss for training: one graph for each kind, for batches of all shapes.

Layers are compiled one by one and share their graphs: the time to compile does not grow with their number, and DDP and
FSDP2, which wrap them afterwards, reduce gradients between layers.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.fx.experimental._config
from torch import nn

from vanilla_transformer.device_utils import find_compiler
from vanilla_transformer.private_folders import check_inductor_caches

from .loss import ModelWithLoss, cross_entropy_in_graph

_BACKEND: Any = "inductor"  # of `torch.compile`


def check_compiler() -> None:
    """Refuse to compile without a compiler, and where another user could change the compiled code.

    Raises:
        ValueError: there is no C++ compiler.
        PermissionError: see [`check_inductor_caches`].
    """
    if find_compiler() is None:
        raise ValueError("`compile` needs a C++ compiler, and there is none. Install g++, or leave `compile` out.")
    check_inductor_caches()


def compile_regions(model_with_loss: ModelWithLoss, device: torch.device) -> None:
    """Let the layers of the model, and on a GPU the loss, be compiled at their first batch.

    A layer that learns to align stays uncompiled, since its inputs are recorded. Call this before DDP or FSDP2 wraps
    the model.

    Raises:
        ValueError: the layers of the model cannot be compiled as one graph.
    """
    _check_layers(model_with_loss.model.config)
    # With `dynamic`, Dynamo makes each float of a module, such as the probability of dropout, an input on the CPU.
    torch._dynamo.config.specialize_float = True
    # By default, sizes that are equal in the first batch, such as its source and target length, are compiled as one.
    torch.fx.experimental._config.use_duck_shape = False
    guided, model = model_with_loss.guided_alignment, model_with_loss.model
    aligned = None if guided is None else model.get_decoder().layers[guided.layer]
    for layer in [*model.get_encoder().layers, *model.get_decoder().layers]:
        if layer is not aligned:
            layer.compile(backend=_BACKEND, fullgraph=True, dynamic=True)
    if device.type == "cuda":
        model_with_loss.loss_in_graph = torch.compile(
            cross_entropy_in_graph, backend=_BACKEND, fullgraph=True, dynamic=True
        )


def _check_layers(config: Any) -> None:
    for holds, found in (
        ("lsh_attention" not in (getattr(config, "layer_types", None) or ()), "layer_types: lsh_attention"),
        (not getattr(config, "reversible", False), "reversible: true"),
        (not config.chunk_size_feed_forward, f"chunk_size_feed_forward: {config.chunk_size_feed_forward}"),
    ):
        if not holds:
            rule = "must be given without this key, whose layers are no single graph"
            raise ValueError(f"`compile` {rule}, got `{found}`. Leave one of them out.")


def is_compiled(module: nn.Module) -> bool:
    """Return whether [`compile_regions`] has compiled a part of a module."""
    return any(each._compiled_call_impl is not None for each in module.modules())


def uncompiled(module: nn.Module, when: bool = True) -> AbstractContextManager[None]:
    """Run a module uncompiled within the block: to decode, and for sizes of 1, which would be other graphs."""
    return torch.compiler.set_stance("force_eager") if when and is_compiled(module) else nullcontext()


__all__ = ["check_compiler", "compile_regions", "is_compiled", "uncompiled"]
