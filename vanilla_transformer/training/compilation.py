"""Compile the layers of a model and its loss for training: one graph for each kind, for batches of
all shapes.

Layers are compiled one by one and share their graphs: the time to compile does not grow with their
number, and DDP and FSDP2, which wrap them afterwards, reduce gradients between layers.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.fx.experimental._config
from torch import nn

from vanilla_transformer.errors import UserError
from vanilla_transformer.machine.compiler import find_compiler

from .loss import ModelWithLoss, cross_entropy_in_graph
from .run_arguments import PADDING

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

_BACKEND: Any = "inductor"  # of `torch.compile`
_UNIT_COMPILED = 8  # tokens: kernels for GPUs read eight values of two bytes at a time


def should_compile(choice: bool | None, config: "PreTrainedConfig", device: torch.device) -> bool:
    """Return whether to compile a model: as the recipe says, and by default on a GPU of CUDA where
    that works.
    """
    obstacle = None  # the key and value of a model whose layers cannot be compiled as one graph
    if "lsh_attention" in (getattr(config, "layer_types", None) or ()):
        obstacle = "layer_types: lsh_attention"
    elif getattr(config, "reversible", False):
        obstacle = "reversible: true"
    elif config.chunk_size_feed_forward:
        obstacle = f"chunk_size_feed_forward: {config.chunk_size_feed_forward}"
    if choice and obstacle is not None:
        requirement = "must be given without this key, whose layers are no single graph"
        raise UserError(f"`compile` {requirement}, got `{obstacle}`. Leave one of them out.")
    by_default = device.type == "cuda" and obstacle is None and find_compiler() is not None
    return by_default if choice is None else choice


def compile_regions(model_with_loss: ModelWithLoss, device: torch.device, packing: bool) -> None:
    """Let the layers of the model, and on a GPU the loss, be compiled at their first batch.

    The layer of a [`LossTerm`] stays uncompiled, since its inputs may be recorded. Call this before
    DDP or FSDP2 wraps the model.

    Args:
        packing: All batches have one shape, for which layers are compiled.
    """
    from vanilla_transformer.files.private_folders import check_inductor_caches

    check_inductor_caches()
    # The graphs of earlier runs of this process would count toward Dynamo's limit for a layer, at
    # which it fails.
    torch.compiler.reset()
    # With `dynamic`, Dynamo makes each float of a module, such as the probability of dropout, an
    # input on the CPU.
    torch._dynamo.config.specialize_float = True
    # By default, sizes that are equal in the first batch, such as its source and target length, are
    # compiled as one.
    torch.fx.experimental._config.use_duck_shape = False
    model = model_with_loss.model
    for layer in [*model.get_encoder().layers, *model.get_decoder().layers]:
        if layer not in model_with_loss.layers_of_terms:
            layer.compile(backend=_BACKEND, fullgraph=True, dynamic=not packing)
    if device.type == "cuda":
        for stack in (model.get_encoder(), model.get_decoder()):
            stack.embed_positions.compile(backend=_BACKEND, fullgraph=True, dynamic=not packing)
        model_with_loss.loss_in_graph = torch.compile(
            cross_entropy_in_graph, backend=_BACKEND, fullgraph=True, dynamic=not packing
        )


def choose_padding(before: Mapping[str, Any], compiled: bool) -> int:
    """Return the number whose multiples are the lengths of batches: that of the run to resume.

    A new run has 8 tokens if it is compiled, otherwise 1.

    Args:
        before: The flat recipe of the run to resume, as its checkpoint holds it; empty without one.
        compiled: Whether the layers are compiled.
    """
    return before.get(PADDING) or (_UNIT_COMPILED if compiled else 1)


def uncompiled(module: nn.Module, when: bool = True) -> AbstractContextManager[None]:
    """Run a module uncompiled within the block: to decode, and for sizes of 1, which would be other
    graphs.
    """
    is_compiled = when and any(
        submodule._compiled_call_impl is not None for submodule in module.modules()
    )
    return torch.compiler.set_stance("force_eager") if is_compiled else nullcontext()
