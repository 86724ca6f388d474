"""Captured training steps, by a stand-in for CUDA graphs: the same weights, fixed addresses, and no
reads.
"""

import copy
import logging
import math
from itertools import product

import pytest
import torch

from tests.devices import NoHostReads
from tests.sweeps import sample
from tests.train_states import HalfPrecision, packed_micro_batch, parameters_of, tiny_train_state
from vanilla_transformer import compatibility_vanilla_transformer
from vanilla_transformer.machine.cuda_graphs import WARM_UPS
from vanilla_transformer.training import graphed_train_step
from vanilla_transformer.training.device_batch import BatchPreparation
from vanilla_transformer.training.graphed_train_step import GraphedTrainStep, capture_steps
from vanilla_transformer.training.loss import cross_entropy_in_graph
from vanilla_transformer.training.train_step import train_step

STEPS = 12
RUNS = [
    {},
    {"ema_decay": 0.9, "max_grad_norm": 0.5},
    {"r_drop_weight": 5.0, "label_smoothing": 0.0},
    {"lora_rank": 2, "init_from": "runs/other"},
    {"lr_scheduler": "cosine", "learning_rate": 0.01, "max_steps": 100},
    {"train_alignments": "links", "alignment_layer": 0, "alignment_weight": 0.5},
]


class Recorder:
    """Keep the functions that are captured, as graphs keep kernels: they run at each replay.

    A replay reads no value, and leaves weights, gradients, moments and averages at the addresses of
    the capture.
    """

    def __init__(self, state):
        self.state, self.captured, self.replayed = state, 0, 0

    def __call__(self, function, warm_up):
        self.captured += 1
        known = addresses(self.state)

        def replay():
            self.replayed += 1
            with NoHostReads():
                function()
            assert addresses(self.state) == known

        return replay


def averages_of(state):
    return [] if state.ema is None else [*state.ema.state_dict().values()]


def addresses(state):
    parameters = [*state.unwrapped_model.parameters()]
    moments = []
    for tensors in state.optimizer.state.values():
        moments += tensors.values()
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    tensors = [*parameters, *gradients, *moments, *averages_of(state)]
    return [tensor.data_ptr() for tensor in tensors]


def state_of(folder, **changes):
    """Return the state of a run whose batches are packed and whose loss is as in a compiled run."""
    torch.manual_seed(0)
    state = tiny_train_state(folder, **{"dropout": 0.1, "packing": True} | changes)
    state.model_with_loss.loss_in_graph = cross_entropy_in_graph
    state.batch_preparation = BatchPreparation.for_model(state.unwrapped_model, loss_in_graph=True)
    return state


def graphed(folder, **changes):
    """Return such a state whose steps are captured by a recorder, and the recorder."""
    state = state_of(folder, **changes)
    recorder = Recorder(state)
    GraphedTrainStep(state, recorder)
    return state, recorder


def step_of(number, accumulation=1, with_links=False):
    """Return the micro-batches of a step, all of one shape."""
    lengths = [[[5, 3], [4, 2, 1]], [[6, 2], [3, 3]], [[2, 2, 2], [7]]]
    batches = []
    for index in range(accumulation):
        batch = packed_micro_batch(lengths[(number + index) % 3], length=9)
        if with_links:  # of the first target to the first source; another one has no weight
            batch.tensors["link_places"] = torch.tensor([0, 0])
            batch.tensors["link_weights"] = torch.tensor([1.0, 0.0])
        batches.append(batch)
    return batches


def trained(state, steps=range(STEPS), accumulation=1):
    """Return the norms, the loss and the tensors of a run, whose learning rates have 32 bits, as in
    captured steps.
    """
    norms = []
    for number in steps:
        for group in state.optimizer.param_groups:
            group["lr"] = float(torch.tensor(group["lr"]))
        batches = step_of(number, accumulation, with_links=bool(state.model_with_loss.terms))
        norms.append(float(train_step(state, batches)))
    state.read_steps()
    averages = [tensor.clone() for tensor in averages_of(state)]
    loss = state.step_metrics.pop()["loss"]
    return norms, loss, [*parameters_of(state), *averages]


def are_equal(ours, theirs):
    return all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


def assert_same(first, second):
    assert first[:2] == second[:2]
    assert are_equal(first[2], second[2])


@pytest.fixture(autouse=True)
def _ids_are_not_checked(monkeypatch):
    """On a GPU, which the host would wait for, the model checks no token ids."""
    monkeypatch.setattr(compatibility_vanilla_transformer, "check_ids", lambda *_, **__: None)


CASES = sample(product(RUNS, [1, 2]), ({}, 1), *product(RUNS[1:3], [2]))


@pytest.mark.parametrize(("changes", "accumulation"), CASES, ids=str)
def test_captured_steps_change_weights_as_others_do(tmp_path, changes, accumulation):
    expected = trained(state_of(tmp_path, **changes), accumulation=accumulation)
    state, recorder = graphed(tmp_path, **changes)
    run = trained(state, accumulation=accumulation)
    plain = -(-WARM_UPS // accumulation)  # steps
    assert recorder.captured == 1 + accumulation
    assert recorder.replayed >= (STEPS - plain) * accumulation
    assert_same(run, expected)


def test_captured_steps_continue_after_a_kill_as_they_would_have(tmp_path):
    changes = {"ema_decay": 0.9, "max_grad_norm": 0.5}
    whole, _ = graphed(tmp_path, **changes)
    expected = trained(whole)
    first, _ = graphed(tmp_path, **changes)
    trained(first, range(8))
    saved = copy.deepcopy(first.resume_state())
    weights = copy.deepcopy(first.unwrapped_model.state_dict())
    resumed = state_of(tmp_path, **changes)
    resumed.unwrapped_model.load_state_dict(weights)
    resumed.load_resume_state(saved, full=False)
    recorder = Recorder(resumed)
    GraphedTrainStep(resumed, recorder)
    norms, _, tensors = trained(resumed, range(8, STEPS))
    assert norms == expected[0][8:]
    assert recorder.replayed == 2 * (STEPS - 8 - WARM_UPS)
    assert are_equal(tensors, expected[2])
    for group in saved.param_groups:
        assert type(group["lr"]) is float and not group["capturable"]


def test_captured_step_with_infinite_gradient_changes_nothing_and_is_reported(tmp_path):
    state, recorder = graphed(tmp_path, ema_decay=0.9)
    weight = state.unwrapped_model.lm_head.weight
    factor = torch.ones(())
    weight.register_hook(lambda gradient: gradient * factor)  # a captured one, too
    trained(state, range(WARM_UPS + 1))
    before = parameters_of(state)
    factor.fill_(math.inf)
    train_step(state, step_of(0))
    assert recorder.replayed == 4
    assert are_equal(parameters_of(state), before)
    message = f"The gradient of step {state.step} is not finite.*pairs 1, 2, 3, 4,"
    with pytest.raises(FloatingPointError, match=message):
        state.read_steps()


def test_batches_of_rare_shapes_are_not_captured(tmp_path):
    state, recorder = graphed(tmp_path)
    trained(state, range(5))
    captured, replayed = recorder.captured, recorder.replayed
    for length in range(10, 30):
        train_step(state, [packed_micro_batch([[5, 3]], length)])
    for _ in range(5):
        train_step(state, [packed_micro_batch([[5]], 9)])
    assert recorder.captured == captured == 2
    assert recorder.replayed == replayed + 25  # the updates
    trained(state, range(2))
    assert recorder.replayed == replayed + 25 + 4


def test_captured_gradient_that_reads_a_value_is_found(tmp_path, monkeypatch):
    state, _ = graphed(tmp_path)
    plain = state.model_with_loss.loss_in_graph

    def read(*arguments):
        loss = plain(*arguments)
        return loss._replace(plain=torch.tensor(loss[1].item()))

    state.model_with_loss.loss_in_graph = read
    with pytest.raises(AssertionError, match="waits for the device"):
        trained(state, range(WARM_UPS + 1))


def test_steps_run_as_before_after_a_failed_capture(tmp_path, caplog):
    def fail(function, warm_up):
        raise RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported later.")

    state = state_of(tmp_path)
    GraphedTrainStep(state, fail)
    assert_same(trained(state), trained(state_of(tmp_path)))
    message = "Capturing a CUDA graph failed, so training steps are not captured: "
    message += "CUDA error: out of memory."
    assert caplog.messages == [message] * 2


OBSTACLES = [None, "a loss that is not compiled", "batches of many shapes", "a gradient scaler"]


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_steps_are_captured_on_a_gpu_alone(tmp_path, monkeypatch, caplog, obstacle):
    accelerator = HalfPrecision(cpu=True) if obstacle == "a gradient scaler" else None
    state = tiny_train_state(tmp_path, accelerator, packing=obstacle != "batches of many shapes")
    if obstacle != "a loss that is not compiled":
        state.model_with_loss.loss_in_graph = cross_entropy_in_graph
    capture_steps(state)
    assert state.graphs is None and not caplog.records
    monkeypatch.setattr(state.accelerator.state, "device", torch.device("cuda"))
    with caplog.at_level(logging.INFO, logger=graphed_train_step.__name__):
        capture_steps(state)
    assert isinstance(state.graphs, GraphedTrainStep) == (obstacle is None)
    message = f"Steps are not captured as CUDA graphs, because of {obstacle}."
    assert caplog.messages == ([message] if obstacle else [])
