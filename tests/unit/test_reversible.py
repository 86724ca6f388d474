"""Reversible layers: the gradients of ordinary backpropagation, dropout and all, and no activations kept for them."""

import gc
import weakref

import pytest
import torch
from torch import nn

from vanilla_transformer.reversible import ReversibleBranch, apply_reversibly, apply_storing_activations

WIDTH = 6


def some_halves(number, dropout=0.0, shared=False):
    """Branches with separate weights; with `shared` every third one reads the states that all share."""
    torch.manual_seed(0)
    halves = []
    for place in range(number):
        layer = nn.Sequential(
            nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Dropout(dropout), nn.Linear(WIDTH, WIDTH)
        ).double()
        reads = shared and place % 3 == 1
        halves.append(
            ReversibleBranch(
                lambda states, others, _, layer=layer, reads=reads: (
                    layer(states + others.mean(1, True) * reads) if others is not None else layer(states)
                ),
                list(layer.parameters()),
            )
        )
    return halves


def gradients_of(run, halves, states, shared):
    """Return the output, and the gradients of both inputs and all parameters."""
    states = states.clone().requires_grad_()
    shared = None if shared is None else shared.clone().requires_grad_()
    torch.manual_seed(7)
    output = run(halves, states, shared)
    inputs = [states, *([] if shared is None else [shared]), *(each for half in halves for each in half.parameters)]
    output.sin().sum().backward(inputs=inputs)
    found = [each.grad for each in inputs]
    for each in inputs:
        each.grad = None
    return output.detach(), found


@pytest.mark.parametrize("number", [1, 2, 5, 12])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("shared", [False, True])
def test_reversible_gradients_equal_ordinary_backpropagation(number, dropout, shared):
    halves, states = some_halves(number, dropout, shared), torch.randn(2, 5, WIDTH, dtype=torch.float64)
    others = torch.randn(2, 3, WIDTH, dtype=torch.float64) if shared else None
    expected, theirs = gradients_of(apply_storing_activations, halves, states, others)
    found, ours = gradients_of(apply_reversibly, halves, states, others)
    assert torch.equal(found, expected)
    torch.testing.assert_close(ours, theirs, atol=1e-11, rtol=1e-11)


def test_it_is_the_papers_equations():
    attend, feed = some_halves(2)
    states = torch.randn(1, 4, WIDTH, dtype=torch.float64)
    first = states + attend.function(states, None, None)
    second = states + feed.function(first, None, None)
    assert torch.equal(apply_storing_activations([attend, feed], states, None), (first + second) / 2)


def test_reversible_leaves_the_random_state_of_one_run():
    halves, states = some_halves(4, dropout=0.3), torch.randn(2, 5, WIDTH, dtype=torch.float64)
    draws = []
    for run in (apply_storing_activations, apply_reversibly):
        gradients_of(run, halves, states, None)
        draws.append(torch.rand(3))
    assert torch.equal(*draws)


def test_frozen_parameters_get_no_gradient_and_others_do():
    halves, states = some_halves(4), torch.randn(2, 5, WIDTH, dtype=torch.float64)
    for parameter in halves[1].parameters:
        parameter.requires_grad_(False)
    apply_reversibly(halves, states, None).sum().backward()
    assert all(each.grad is None for each in halves[1].parameters)
    assert all(each.grad is not None for half in (halves[0], halves[2], halves[3]) for each in half.parameters)


@pytest.mark.parametrize("number", [1, 5])
def test_reversible_repeats_random_choices_in_the_backward_pass(number):
    """States are recomputed with an error here, by which a second choice would come out otherwise."""
    choices = []

    def wavering(half):
        def make(states):
            choices.append((states + len(choices) % 2 > 0.5).double())
            return choices[-1]

        def branch(states, shared, replay):
            return half.function(states, shared, replay) * replay(lambda: make(states))

        return ReversibleBranch(branch, half.parameters)

    states, expected, found = torch.randn(2, 5, WIDTH, dtype=torch.float64), [], []
    for run, outcome in ((apply_storing_activations, expected), (apply_reversibly, found)):
        outcome += gradients_of(run, [wavering(half) for half in some_halves(number)], states, None)[1]
        assert len(choices) == number
        choices.clear()
    torch.testing.assert_close(found, expected, atol=1e-11, rtol=1e-11)


def test_a_graph_that_is_kept_gives_the_same_gradients_again():
    halves, states = some_halves(4), torch.randn(2, 5, WIDTH, dtype=torch.float64, requires_grad=True)
    loss = apply_reversibly(halves, states, None).square().sum()
    first, second = (torch.autograd.grad(loss, states, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)


def test_gradients_of_parameters_are_handed_on_before_the_next_half_runs():
    """They go into the parameters' own, so that a second copy of all of them is never held."""
    halves, events = some_halves(4), []
    for number, half in enumerate(halves):
        half.parameters[0].register_post_accumulate_grad_hook(
            lambda _, number=number: events.append(f"given {number}")
        )

    def watched(number, half):
        def branch(states, others, replay):
            events.append(f"run {number}")
            return half.function(states, others, replay)

        return ReversibleBranch(branch, half.parameters)

    states = torch.randn(2, 5, WIDTH, dtype=torch.float64)
    output = apply_reversibly([watched(*each) for each in enumerate(halves)], states, None)
    events.clear()
    output.sum().backward()
    assert events == [f"{event} {number}" for number in (3, 2, 1, 0) for event in ("run", "given")]


@pytest.mark.parametrize(("run", "kept"), [(apply_storing_activations, 12), (apply_reversibly, 0)])
def test_activations_are_not_kept_for_the_backward_pass(run, kept):
    """Counts the outputs of the first linear layers that are still there when the forward pass has ended."""
    halves, activations = [], []
    for half in some_halves(12):

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


def test_half_precision_is_entered_again_in_the_backward_pass():
    halves, states = some_halves(2), torch.randn(2, 5, WIDTH, requires_grad=True)
    for half in halves:
        for parameter in half.parameters:
            parameter.data = parameter.data.float()
    seen = []

    def watched(half):
        def branch(states, others, replay):
            output = half.function(states, others, replay)
            seen.append(output.dtype)
            return output

        return ReversibleBranch(branch, half.parameters)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = apply_reversibly([watched(half) for half in halves], states, None)
    output.float().sum().backward()
    assert seen == [torch.bfloat16] * 4
