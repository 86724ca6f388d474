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
from contextvars import ContextVar
from dataclasses import dataclass, field
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


Choose = Callable[[Callable[[], torch.Tensor]], torch.Tensor]
_choose: ContextVar[Choose] = ContextVar("choose", default=lambda make: make())


def chosen(make: Callable[[], torch.Tensor]) -> torch.Tensor:
    """
    What `make()` returns or, where a half runs again in the backward pass, what it returned in the forward pass: for
    choices between two sides of an edge, such as a bucket, which the rounding of recomputed states could change.
    """
    return _choose.get()(make)


@contextmanager
def _choosing(choose: Choose) -> Iterator[None]:
    token = _choose.set(choose)
    try:
        yield
    finally:
        _choose.reset(token)


def run_reversibly(
    halves: Sequence[Half], hidden_states: torch.Tensor, shared_states: torch.Tensor | None
) -> torch.Tensor:
    """
    All halves in turns over two streams that both begin with `hidden_states`, `(B, L, D)`. Returns the streams' mean.

    Gradients are those of ordinary backpropagation; each half runs twice, the second time with the random numbers
    and what was `chosen` of the first. No half keeps a state, and gradients of parameters are handed on half by half.
    """
    if not torch.is_grad_enabled():
        return run_and_keep(halves, hidden_states, shared_states)
    outputs = _Outputs()
    streams = [hidden_states, hidden_states]
    for number, half in enumerate(halves):
        mine, other = number % 2, 1 - number % 2
        streams[mine] = _ReversibleHalf.apply(
            half, outputs, mine, streams[mine], streams[other], shared_states, *half.parameters
        )
    return _MeanThatIsTheEnd.apply(outputs, *streams)


def run_and_keep(
    halves: Sequence[Half], hidden_states: torch.Tensor, shared_states: torch.Tensor | None
) -> torch.Tensor:
    """The same with activations kept for the backward pass, each half running once."""
    streams = [hidden_states, hidden_states]
    for number, half in enumerate(halves):
        streams[number % 2] = streams[number % 2] + half.branch(streams[1 - number % 2], shared_states)
    return (streams[0] + streams[1]) / 2


@dataclass
class _Outputs:
    """The two streams behind the half whose backward pass is next: each half takes off what it added."""

    streams: list[torch.Tensor] = field(default_factory=list)


class _ReversibleHalf(torch.autograd.Function):
    """One half forwards; backwards its input is computed from its output, and then its branch once more."""

    @staticmethod
    def forward(
        ctx: Any,
        half: Half,
        outputs: _Outputs,
        mine: int,
        stream: torch.Tensor,
        other: torch.Tensor,
        shared: torch.Tensor | None,
        *parameters: nn.Parameter,
    ) -> torch.Tensor:
        device = stream.device.type
        ctx.autocast = {"enabled": torch.is_autocast_enabled(device), "dtype": torch.get_autocast_dtype(device)}
        ctx.half, ctx.outputs, ctx.mine = half, outputs, mine
        ctx.drawn_from = _random_state(stream.device)
        ctx.choices = []
        ctx.save_for_backward(shared)

        def remember(make: Callable[[], torch.Tensor]) -> torch.Tensor:
            ctx.choices.append(make())
            return ctx.choices[-1]

        with _choosing(remember):
            return stream + half.branch(other, shared)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        streams, mine = ctx.outputs.streams, ctx.mine
        (shared,) = ctx.saved_tensors
        other = streams[1 - mine].detach().requires_grad_()
        shared = None if shared is None else shared.detach().requires_grad_(shared.is_floating_point())
        learnt = [parameter for parameter in ctx.half.parameters if parameter.requires_grad]
        choices = iter(ctx.choices)
        with (
            _replayed(ctx.drawn_from, other.device),
            _choosing(lambda make: next(choices)),
            torch.enable_grad(),
            torch.autocast(other.device.type, **ctx.autocast),
        ):
            branch = ctx.half.branch(other, shared)
        streams[mine] = streams[mine] - branch.detach()
        inputs = [other, *([] if shared is None else [shared]), *learnt]
        found = iter(torch.autograd.grad(branch, inputs, gradient, allow_unused=True))
        of_other, of_shared = next(found), None if shared is None else next(found)
        of_parameters = [next(found) if parameter.requires_grad else None for parameter in ctx.half.parameters]
        return None, None, None, gradient, of_other, of_shared, *of_parameters


class _MeanThatIsTheEnd(torch.autograd.Function):
    """The mean of both streams; backwards, where the streams begin to be taken apart."""

    @staticmethod
    def forward(ctx: Any, outputs: _Outputs, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        ctx.outputs = outputs
        ctx.save_for_backward(first, second)
        return (first + second) / 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        ctx.outputs.streams = list(ctx.saved_tensors)
        return None, gradient / 2, gradient / 2


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


__all__ = ["Half", "chosen", "run_and_keep", "run_reversibly"]
