"""One model over several processes (FSDP2), and the same names and whole tensors whether it is spread or not."""

from typing import Any

import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from .loss import Objective


def shard_model(objective: Objective, num_processes: int) -> None:
    """
    Spreads parameters, gradients and with them the optimizer's state over all processes, in place. Each layer is
    gathered while it is at work; what is tied stays together in the outermost group.
    """
    model = objective.core.model
    mesh = init_device_mesh(model.device.type, (num_processes,))
    for layer in [*model.encoder.layers, *model.decoder.layers]:
        fully_shard(layer, mesh=mesh)
    fully_shard(objective, mesh=mesh)


def exchange_gradients(objective: Objective, wanted: bool) -> None:
    """Whether the coming backward passes share out the gradients that have gathered."""
    assert isinstance(objective, FSDPModule)
    objective.set_requires_gradient_sync(wanted)


def whole_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that a process holds a part of. All processes must ask for it together."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def like(whole: torch.Tensor, example: torch.Tensor) -> torch.Tensor:
    """`whole` as `example` lies: its part of it where that is spread over processes."""
    if not isinstance(example, DTensor):
        return whole.to(example.device)
    return distribute_tensor(whole.to(example.device), example.device_mesh, example.placements)


def whole_weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """All weights by name, in every process."""
    weights: dict[str, Any] = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    return weights


def optimizer_state(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """`state` by parameter's name, with tensors as they lie, whole or in shards, and `param_groups`."""
    return get_optimizer_state_dict(model, optimizer)


def whole_optimizer_state(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """`state` by parameter's name, with whole tensors on the CPU, and `param_groups`."""
    return get_optimizer_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True))


def load_optimizer_state(model: torch.nn.Module, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Gives the optimizer what `whole_optimizer_state` had from it, in however many processes that was."""
    options = StateDictOptions(full_state_dict=True)
    set_optimizer_state_dict(model, optimizer, optim_state_dict=state, options=options)
