# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""
Reversible layers of "Reformer: The Efficient Transformer" (Kitaev et al., 2020, section 3), after Gomez et al. (2017).

There are two streams, and each half of a layer adds to one of them what it makes of the other:

    y_1 = x_1 + Attention(x_2)        y_2 = x_2 + FeedForward(y_1)

so that the inputs can be had back from the outputs, `x_2 = y_2 - FeedForward(y_1)`, and need not be kept for the
backward pass. Memory for activations then does not grow with the number of layers.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


@dataclass
class Half:
    """
    What is added to one stream, as a function of the other one `(B, L, D)` and of states that all layers share
    (encoder states, or None); and the parameters that it has.
    """

    branch: Callable[[torch.Tensor, torch.Tensor | None], torch.Tensor]
    parameters: Sequence[nn.Parameter]


def run_reversibly(
    halves: Sequence[Half], hidden_states: torch.Tensor, shared_states: torch.Tensor | None
) -> torch.Tensor:
    """
    All halves in turns over two streams that both begin with `hidden_states`, `(B, L, D)`. Returns the streams' mean.

    Gradients are those of ordinary backpropagation; each half runs twice, the second time with the random numbers
    of the first.
    """
    if not torch.is_grad_enabled():
        return run_and_keep(halves, hidden_states, shared_states)
    parameters = [parameter for half in halves for parameter in half.parameters]
    first, second = _Reversible.apply(list(halves), hidden_states, shared_states, *parameters)
    return (first + second) / 2


def run_and_keep(
    halves: Sequence[Half], hidden_states: torch.Tensor, shared_states: torch.Tensor | None
) -> torch.Tensor:
    """The same with activations kept for the backward pass, each half running once."""
    first, second = _forward(halves, hidden_states, shared_states)
    return (first + second) / 2


def _forward(
    halves: Sequence[Half], hidden_states: torch.Tensor, shared_states: torch.Tensor | None
) -> tuple[torch.Tensor, ...]:
    streams = [hidden_states, hidden_states]
    for number, half in enumerate(halves):
        streams[number % 2] = streams[number % 2] + half.branch(streams[1 - number % 2], shared_states)
    return tuple(streams)


class _Reversible(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, halves: list[Half], hidden_states: torch.Tensor, shared_states: Any, *parameters: Any
    ) -> Any:
        device = hidden_states.device.type
        ctx.autocast = (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
        ctx.draws = []

        def drawing(half: Half) -> Half:
            def branch(states: torch.Tensor, shared: torch.Tensor | None) -> torch.Tensor:
                ctx.draws.append(_random_state(states.device))
                return half.branch(states, shared)

            return Half(branch, half.parameters)

        ctx.halves = halves
        streams = _forward([drawing(half) for half in halves], hidden_states, shared_states)
        ctx.save_for_backward(*streams, shared_states)
        return streams

    @staticmethod
    def backward(ctx: Any, *of_streams: torch.Tensor) -> Any:
        *streams, shared = ctx.saved_tensors
        gradients = list(of_streams)
        shared = None if shared is None else shared.detach().requires_grad_(shared.is_floating_point())
        shared_gradient = None if shared is None else torch.zeros_like(shared)
        of_parameters: list[tuple[torch.Tensor | None, ...]] = []
        device = streams[0].device.type
        enabled, dtype = ctx.autocast
        for number in reversed(range(len(ctx.halves))):
            half, mine = ctx.halves[number], number % 2
            other = streams[1 - mine].detach().requires_grad_()
            with (
                _replayed(ctx.draws[number], other.device),
                torch.enable_grad(),
                torch.autocast(device, enabled=enabled, dtype=dtype),
            ):
                branch = half.branch(other, shared)
            streams[mine] = streams[mine] - branch.detach()
            inputs = [other, *([] if shared is None else [shared])]
            learnt = [parameter for parameter in half.parameters if parameter.requires_grad]
            found = torch.autograd.grad(branch, [*inputs, *learnt], gradients[mine], allow_unused=True)
            gradients[1 - mine] = gradients[1 - mine] + found[0]
            if shared_gradient is not None and found[1] is not None:
                shared_gradient = shared_gradient + found[1]
            learnt_gradients = iter(found[len(inputs) :])
            of_parameters.append(
                tuple(next(learnt_gradients) if each.requires_grad else None for each in half.parameters)
            )
        flat = [gradient for gradients_of_half in reversed(of_parameters) for gradient in gradients_of_half]
        return None, gradients[0] + gradients[1], shared_gradient, *flat


def _random_state(device: torch.device) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Where the generators of the CPU and of the device stand."""
    own = None if device.type == "cpu" else torch.get_device_module(device).get_rng_state(device)
    return torch.get_rng_state(), own


@contextmanager
def _replayed(state: tuple[torch.Tensor, torch.Tensor | None], device: torch.device) -> Iterator[None]:
    """Random numbers as they were drawn from that state on, and as before afterwards."""
    on_cpu, own = state
    devices = [] if own is None else [device]
    with torch.random.fork_rng(devices=devices, device_type=device.type if devices else "cuda"):
        torch.set_rng_state(on_cpu)
        if own is not None:
            torch.get_device_module(device).set_rng_state(own, device)
        yield


__all__ = ["Half", "run_and_keep", "run_reversibly"]
