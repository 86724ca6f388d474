# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""
Reversible layers of "Reformer: The Efficient Transformer" (Kitaev et al., 2020, section 3), after
Gomez et al. (2017).

Each residual branch adds a function of one of two streams to the other:

    y_1 = x_1 + Attention(x_2)        y_2 = x_2 + FeedForward(y_1)

The backward pass recomputes the inputs from the outputs, `x_2 = y_2 - FeedForward(y_1)`. Therefore
activation memory does not grow with the number of layers.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

# Calls the given function, or returns its result from the forward pass.
Replay = Callable[[Callable[[], torch.Tensor]], torch.Tensor]


def compute(function: Callable[[], torch.Tensor]) -> torch.Tensor:
    """Call `function` without recording its result: the `Replay` of a branch that runs only
    once.
    """
    return function()


@dataclass
class ReversibleBranch:
    """
    A residual branch of a reversible layer.

    Args:
        function:
            Computes the update of one stream from the other stream, `(B, L, D)`, and from states
            that all layers share (the encoder output, or None). Its third argument, a `Replay`,
            wraps each discrete choice, such as a bucket: in the backward pass it returns the choice
            of the forward pass, since rounding errors in the recomputed states could change the
            choice.
        parameters: The parameters that `function` uses.
    """

    function: Callable[[torch.Tensor, torch.Tensor | None, Replay], torch.Tensor]
    parameters: Sequence[nn.Parameter]


def apply_reversibly(
    branches: Sequence[ReversibleBranch],
    hidden_states: torch.Tensor,
    shared_states: torch.Tensor | None,
) -> torch.Tensor:
    """
    Apply the branches alternately to two streams that both start as `hidden_states` `(B, L, D)`;
    return their mean.

    Gradients are equal to ordinary backpropagation. In the backward pass each branch runs a second
    time, with the random numbers and discrete choices of the forward pass, and its parameters
    receive their gradients at once.
    """
    if not torch.is_grad_enabled():
        return apply_storing_activations(branches, hidden_states, shared_states)
    outputs = _Outputs()
    streams = [hidden_states, hidden_states]
    for number, branch in enumerate(branches):
        updated, other = number % 2, 1 - number % 2
        streams[updated] = _ReversibleFunction.apply(
            branch,
            outputs,
            updated,
            streams[updated],
            streams[other],
            shared_states,
            *branch.parameters,
        )
    return _MeanOfStreams.apply(outputs, *streams)


def apply_storing_activations(
    branches: Sequence[ReversibleBranch],
    hidden_states: torch.Tensor,
    shared_states: torch.Tensor | None,
) -> torch.Tensor:
    """Compute the same as [`apply_reversibly`] with ordinary backpropagation, which stores all
    activations.
    """
    streams = [hidden_states, hidden_states]
    for number, branch in enumerate(branches):
        updated, other = number % 2, 1 - number % 2
        streams[updated] = streams[updated] + branch.function(
            streams[other], shared_states, compute
        )
    return (streams[0] + streams[1]) / 2


@dataclass
class _Outputs:
    """The two streams during the backward pass, in which each branch subtracts its update."""

    streams: list[torch.Tensor] = field(default_factory=list)


class _ReversibleFunction(torch.autograd.Function):
    """A branch whose backward pass runs it again and recovers its input from its output."""

    @staticmethod
    def forward(
        ctx: Any,
        branch: ReversibleBranch,
        outputs: _Outputs,
        updated: int,
        stream: torch.Tensor,
        other: torch.Tensor,
        shared: torch.Tensor | None,
        *parameters: nn.Parameter,
    ) -> torch.Tensor:
        device = stream.device.type
        ctx.autocast = {
            "enabled": torch.is_autocast_enabled(device),
            "dtype": torch.get_autocast_dtype(device),
        }
        ctx.branch, ctx.outputs, ctx.updated = branch, outputs, updated
        ctx.random_state = _random_state(stream.device)
        ctx.choices = []
        ctx.save_for_backward(shared)

        def record(function: Callable[[], torch.Tensor]) -> torch.Tensor:
            ctx.choices.append(function())
            return ctx.choices[-1]

        return stream + branch.function(other, shared, record)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        streams, updated = ctx.outputs.streams, ctx.updated
        (shared,) = ctx.saved_tensors
        other = streams[1 - updated].detach().requires_grad_()
        shared = (
            None if shared is None else shared.detach().requires_grad_(shared.is_floating_point())
        )
        trainable = [parameter for parameter in ctx.branch.parameters if parameter.requires_grad]
        choices = iter(ctx.choices)
        with (
            _restored(ctx.random_state, other.device),
            torch.enable_grad(),
            torch.autocast(other.device.type, **ctx.autocast),
        ):
            added = ctx.branch.function(other, shared, lambda function: next(choices))
        streams[updated] = streams[updated] - added.detach()
        inputs = [other, *([] if shared is None else [shared]), *trainable]
        gradients = iter(torch.autograd.grad(added, inputs, gradient, allow_unused=True))
        of_other, of_shared = next(gradients), None if shared is None else next(gradients)
        of_parameters = [
            next(gradients) if each.requires_grad else None for each in ctx.branch.parameters
        ]
        return None, None, None, gradient, of_other, of_shared, *of_parameters


class _MeanOfStreams(torch.autograd.Function):
    """The mean of both streams.

    Its backward pass, the first to run, provides the streams to the branches.
    """

    @staticmethod
    def forward(
        ctx: Any, outputs: _Outputs, first: torch.Tensor, second: torch.Tensor
    ) -> torch.Tensor:
        ctx.outputs = outputs
        ctx.save_for_backward(first, second)
        return (first + second) / 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        ctx.outputs.streams = list(ctx.saved_tensors)
        return None, gradient / 2, gradient / 2


def _random_state(device: torch.device) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the random states of the CPU and of the device; the latter is None on the CPU."""
    on_device = (
        None if device.type == "cpu" else torch.get_device_module(device).get_rng_state(device)
    )
    return torch.get_rng_state(), on_device


@contextmanager
def _restored(
    state: tuple[torch.Tensor, torch.Tensor | None], device: torch.device
) -> Iterator[None]:
    """Set the random state inside the `with` block, and restore the current state after it."""
    on_cpu, on_device = state
    devices = [] if on_device is None else [device]
    with torch.random.fork_rng(devices=devices, device_type=device.type if devices else "cuda"):
        torch.set_rng_state(on_cpu)
        if on_device is not None:
            torch.get_device_module(device).set_rng_state(on_device, device)
        yield


__all__ = ["Replay", "ReversibleBranch", "apply_reversibly", "apply_storing_activations", "compute"]
