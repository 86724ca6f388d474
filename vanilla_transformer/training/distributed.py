"""Decide together as the processes of one run, and shard a model over them (FSDP2)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import torch
from accelerate import Accelerator
from accelerate.utils import parse_flag_from_env
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from .loss import ModelWithLoss


def sum_over_processes(accelerator: Accelerator, values: Sequence[float] | torch.Tensor) -> torch.Tensor:
    """Sum each value over all processes, in float64 on the CPU. All processes must call it together.

    The hosts exchange the values by gloo (see `connect_processes`), and none waits for the queue of its GPU.
    """
    return accelerator.reduce(torch.as_tensor(values, dtype=torch.float64, device="cpu"), reduction="sum")


def wait_for_processes(accelerator: Accelerator) -> None:
    """Wait until all processes call this. Accelerate's barrier would wait for the queues of their GPUs, too."""
    sum_over_processes(accelerator, [0.0])


def broadcast_decision(accelerator: Accelerator, decision: bool) -> bool:
    """Return the main process's decision in every process: clocks and disks of the others may differ."""
    if accelerator.num_processes == 1:
        return decision
    return bool(sum_over_processes(accelerator, [decision and accelerator.is_main_process])[0])


# Why not by Accelerate's FSDP plugin, from which only the settings are read (`launcher.py`): its state uses the plugin
# for processes on accelerators alone and trains those on a CPU unsharded (`AcceleratorState`, accelerate 1.15), so
# that no test without GPUs would see it. Its casts of parameters have changed between releases, once without effect
# (huggingface/accelerate#3979, #3985). `fully_shard`, which the plugin calls as well, does the same on every device.
def shard_model(
    model_with_loss: ModelWithLoss,
    num_processes: int,
    mixed_precision: str | None = None,
) -> None:
    """Shard parameters, gradients and optimizer state over all processes, in place.

    Each layer is a group that is gathered while it computes. The root group, with the tied embeddings, stays gathered
    from the forward pass to the end of the backward pass. The layer of a [`LossTerm`] is in it: the term may use its
    weights after the layer.

    With bf16 the shards stay float32, in which gradients are summed over processes and the optimizer computes. The
    gathered parameters and what passes between layers are bfloat16; within them autocast applies, as with DDP.

    Each layer is gathered again for the backward pass, unless the file of `accelerate launch` says to keep it.

    Args:
        mixed_precision: Accelerate's, of which bf16 counts.
    """
    model = model_with_loss.model.model
    mesh = init_device_mesh(model.device.type, (num_processes,))
    policy, reshard = MixedPrecisionPolicy(), parse_flag_from_env("FSDP_RESHARD_AFTER_FORWARD", True)
    if mixed_precision == "bf16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in [*model.encoder.layers, *model.decoder.layers]:
        if layer not in model_with_loss.layers_of_terms:
            fully_shard(layer, mesh=mesh, reshard_after_forward=reshard, mp_policy=policy)
    # A batch keeps its types: weights of links are float32.
    fully_shard(model_with_loss, mesh=mesh, mp_policy=replace(policy, cast_forward_inputs=False))


@contextmanager
def skip_gradient_sync(accelerator: Accelerator, wrapped_model: torch.nn.Module, skip: bool) -> Iterator[None]:
    """Skip the all-reduce (DDP) or reduce-scatter (FSDP2) of gradients until the last micro-batch of a step.

    With FSDP2, the layers that a backward pass has gathered stay gathered for the next micro-batch.
    """
    if isinstance(wrapped_model, FSDPModule):
        wrapped_model.set_requires_gradient_sync(not skip)
        wrapped_model.set_reshard_after_backward(not skip)
    with accelerator.no_sync(wrapped_model) if skip else nullcontext():
        yield


def full_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Gather a sharded tensor. All processes must call it together."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shard_like(full: torch.Tensor, example: torch.Tensor) -> torch.Tensor:
    """Place `full` on the device of `example`, and shard it as `example` is sharded."""
    if not isinstance(example, DTensor):
        return full.to(example.device)
    return distribute_tensor(full.to(example.device), example.device_mesh, example.placements)
