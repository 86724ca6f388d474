"""Reversible layers give the gradients of ordinary backpropagation, with dropout too, and store no
activations.
"""

import gc
import weakref
from functools import partial

import pytest
import torch
from torch import nn

from vanilla_transformer.reversible import (
    ReversibleBranch,
    apply_reversibly,
    apply_storing_activations,
)

WIDTH = 6


def apply_layer(layer, reads, states, others, replay):
    """Return the output of a layer, which may also read the shared states."""
    if others is None:
        return layer(states)
    return layer(states + others.mean(1, True) * reads)


def random_branches(number, dropout=0.0, shared=False):
    """Return `number` branches with separate weights; with `shared`, every third one also reads the
    shared states.
    """
    torch.manual_seed(0)
    halves = []
    for index in range(number):
        inner, outer = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        layer = nn.Sequential(inner, nn.Tanh(), nn.Dropout(dropout), outer).double()
        branch = partial(apply_layer, layer, shared and index % 3 == 1)
        halves.append(ReversibleBranch(branch, list(layer.parameters())))
    return halves


def output_and_gradients(run, halves, states, shared):
    """Return the output of `run`, and the gradients of the states, the shared states and all
    parameters.
    """
    states = states.clone().requires_grad_()
    shared = None if shared is None else shared.clone().requires_grad_()
    torch.manual_seed(7)
    output = run(halves, states, shared)
    inputs = [states] if shared is None else [states, shared]
    for half in halves:
        inputs += half.parameters
    output.sin().sum().backward(inputs=inputs)
    gradients = [tensor.grad for tensor in inputs]
    for tensor in inputs:
        tensor.grad = None
    return output.detach(), gradients


@pytest.mark.parametrize("number", [1, 2, 5, 12])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("shared", [False, True])
def test_reversible_gradients_equal_ordinary_backpropagation(number, dropout, shared):
    halves = random_branches(number, dropout, shared)
    states = torch.randn(2, 5, WIDTH, dtype=torch.float64)
    others = torch.randn(2, 3, WIDTH, dtype=torch.float64) if shared else None
    expected, theirs = output_and_gradients(apply_storing_activations, halves, states, others)
    output, ours = output_and_gradients(apply_reversibly, halves, states, others)
    assert torch.equal(output, expected)
    torch.testing.assert_close(ours, theirs, atol=1e-11, rtol=1e-11)


def test_apply_storing_activations_matches_equations():
    attend, feed = random_branches(2)
    states = torch.randn(1, 4, WIDTH, dtype=torch.float64)
    first = states + attend.function(states, None, None)
    second = states + feed.function(first, None, None)
    output = apply_storing_activations([attend, feed], states, None)
    assert torch.equal(output, (first + second) / 2)


def test_reversible_advances_random_state_once():
    halves, states = random_branches(4, dropout=0.3), torch.randn(2, 5, WIDTH, dtype=torch.float64)
    draws = []
    for run in (apply_storing_activations, apply_reversibly):
        output_and_gradients(run, halves, states, None)
        draws.append(torch.rand(3))
    assert torch.equal(*draws)


def test_reversible_skips_gradients_of_frozen_parameters():
    halves, states = random_branches(4), torch.randn(2, 5, WIDTH, dtype=torch.float64)
    for parameter in halves[1].parameters:
        parameter.requires_grad_(False)
    apply_reversibly(halves, states, None).sum().backward()
    assert all(parameter.grad is None for parameter in halves[1].parameters)
    for half in (halves[0], halves[2], halves[3]):
        assert all(parameter.grad is not None for parameter in half.parameters)


@pytest.mark.parametrize("number", [1, 5])
def test_reversible_replays_discrete_choices_in_backward(number):
    """Make each choice depend on the number of earlier ones, so that a second choice would differ
    from the first.
    """
    choices = []

    def with_alternating_choice(half):
        def make(states):
            choices.append((states + len(choices) % 2 > 0.5).double())
            return choices[-1]

        def branch(states, shared, replay):
            return half.function(states, shared, replay) * replay(lambda: make(states))

        return ReversibleBranch(branch, half.parameters)

    states, gradients = torch.randn(2, 5, WIDTH, dtype=torch.float64), []
    for run in (apply_storing_activations, apply_reversibly):
        halves = [with_alternating_choice(half) for half in random_branches(number)]
        gradients.append(output_and_gradients(run, halves, states, None)[1])
        assert len(choices) == number
        choices.clear()
    theirs, ours = gradients
    torch.testing.assert_close(ours, theirs, atol=1e-11, rtol=1e-11)


def test_reversible_supports_retain_graph():
    halves = random_branches(4)
    states = torch.randn(2, 5, WIDTH, dtype=torch.float64, requires_grad=True)
    loss = apply_reversibly(halves, states, None).square().sum()
    (first,) = torch.autograd.grad(loss, states, retain_graph=True)
    (second,) = torch.autograd.grad(loss, states, retain_graph=True)
    assert torch.equal(first, second)


def test_reversible_accumulates_gradients_branch_by_branch():
    """Accumulate into each `parameter.grad` at once, so that two copies of all gradients never
    exist together.
    """
    halves, events = random_branches(4), []

    def note(number, parameter):
        events.append(f"given {number}")

    for number, half in enumerate(halves):
        half.parameters[0].register_post_accumulate_grad_hook(partial(note, number))

    def with_record(number, half):
        def branch(states, others, replay):
            events.append(f"run {number}")
            return half.function(states, others, replay)

        return ReversibleBranch(branch, half.parameters)

    states = torch.randn(2, 5, WIDTH, dtype=torch.float64)
    branches = [with_record(number, half) for number, half in enumerate(halves)]
    output = apply_reversibly(branches, states, None)
    events.clear()
    output.sum().backward()
    expected = []
    for number in (3, 2, 1, 0):
        expected += [f"run {number}", f"given {number}"]
    assert events == expected


RUNS = [(apply_storing_activations, 12), (apply_reversibly, 0)]


@pytest.mark.parametrize(("run", "kept"), RUNS)
def test_reversible_stores_no_activations(run, kept):
    """Count the intermediate outputs that are still in memory after the forward pass."""
    halves, activations = [], []
    for half in random_branches(12):

        def branch(states, others, replay, half=half):
            inner = half.function(states, others, replay) * 1.0
            activations.append(weakref.ref(inner))
            return inner * inner

        halves.append(ReversibleBranch(branch, half.parameters))
    states = torch.randn(2, 5, WIDTH, dtype=torch.float64, requires_grad=True)
    output = run(halves, states, None)
    gc.collect()
    assert sum(reference() is not None for reference in activations) == kept
    output.sum().backward()


def test_reversible_restores_autocast_in_backward():
    halves, states = random_branches(2), torch.randn(2, 5, WIDTH, requires_grad=True)
    for half in halves:
        for parameter in half.parameters:
            parameter.data = parameter.data.float()
    seen = []

    def with_record(half):
        def branch(states, others, replay):
            output = half.function(states, others, replay)
            seen.append(output.dtype)
            return output

        return ReversibleBranch(branch, half.parameters)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = apply_reversibly([with_record(half) for half in halves], states, None)
    output.float().sum().backward()
    assert seen == [torch.bfloat16] * 4
