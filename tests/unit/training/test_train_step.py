"""A training step without waiting: what stays on the device, and what the next look finds."""

import math
from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.devices import gpu_stand_in
from tests.sweeps import rare
from tests.train_states import (
    HalfPrecision,
    accelerator_of_stand_in,
    micro_batches,
    packed_micro_batch,
    parameters_of,
    tiny_train_state,
)
from vanilla_transformer.errors import UserError
from vanilla_transformer.training import train_step as module
from vanilla_transformer.training.loss import ModelWithLoss, cross_entropy_in_graph
from vanilla_transformer.training.train_step import train_step

PADDED, FULL = [5, 3, 4], [4, 4]
PACKED = [packed_micro_batch([[5, 3], [4, 2, 1]], length=9)]


@pytest.fixture
def stand_in(monkeypatch):
    return accelerator_of_stand_in(monkeypatch)


EAGER = {"attn_implementation": "eager"}


@pytest.mark.parametrize(
    ("changes", "batches"),
    [
        ({"max_grad_norm": 1.0, "ema_decay": 0.9}, micro_batches(PADDED, FULL)),
        rare((EAGER | {"r_drop_weight": 5.0}, micro_batches(PADDED, FULL))),
        ({"packing": True}, PACKED),
        (EAGER | {"packing": True}, PACKED),
    ],
)
def test_train_step_does_not_wait_for_a_gpu(stand_in, tmp_path, changes, batches):
    state = tiny_train_state(tmp_path, stand_in, **changes)
    train_step(state, batches)  # Adam creates its state
    with gpu_stand_in() as copies:
        for _ in range(3):
            train_step(state, batches)
    assert not copies.arrived and len(state.unread) == 4


def test_train_step_that_reads_a_value_is_found(stand_in, tmp_path, monkeypatch):
    state = tiny_train_state(tmp_path, stand_in)
    train_step(state, micro_batches(PADDED, FULL))
    monkeypatch.setattr(module, "full_tensor", lambda norm: norm + norm.item())
    with pytest.raises(AssertionError, match="waits for the device"), gpu_stand_in():
        train_step(state, micro_batches(PADDED))


def are_equal(ours, theirs):
    return all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


def spoil(monkeypatch, factor):
    plain = ModelWithLoss.forward

    def spoiled(model, batch):
        loss = plain(model, batch)
        return loss._replace(smoothed=loss.smoothed * factor)

    monkeypatch.setattr(ModelWithLoss, "forward", spoiled)


@pytest.mark.parametrize("changes", [{}, {"max_grad_norm": 1.0}], ids=str)
def test_step_with_infinite_loss_changes_nothing(tmp_path, monkeypatch, changes):
    state = tiny_train_state(tmp_path, **changes)
    train_step(state, micro_batches(PADDED, FULL))
    state.read_steps()
    before = parameters_of(state)
    with monkeypatch.context() as patch:
        spoil(patch, math.nan)
        train_step(state, micro_batches(FULL))
    assert are_equal(parameters_of(state), before)
    train_step(state, micro_batches(PADDED))
    message = r"loss of step 2 is nan.*checkpoint is none.*pairs 1, 2 after"
    with pytest.raises(FloatingPointError, match=message):
        state.read_steps()


def test_train_step_with_infinite_gradient_of_finite_loss_is_reported(tmp_path):
    state = tiny_train_state(tmp_path)
    before = parameters_of(state)
    weight = state.unwrapped_model.lm_head.weight
    weight.register_hook(lambda gradient: gradient * math.inf)
    train_step(state, micro_batches(FULL))
    after = parameters_of(state)  # with the moments of Adam, which a first step creates
    assert are_equal(after[: len(before)], before)
    with pytest.raises(FloatingPointError, match="The gradient of step 1 is not finite"):
        state.read_steps()


def test_train_step_with_scaler_skips_infinite_gradient_and_continues(tmp_path):
    state = tiny_train_state(tmp_path, HalfPrecision(cpu=True))
    train_step(state, micro_batches(PADDED, FULL))
    before, scale = parameters_of(state), state.accelerator.scaler.get_scale()
    weight = state.unwrapped_model.lm_head.weight
    overflow = weight.register_hook(lambda gradient: gradient * math.inf)
    train_step(state, micro_batches(FULL))
    overflow.remove()
    assert are_equal(parameters_of(state), before)
    assert state.accelerator.scaler.get_scale() == scale / 2
    train_step(state, micro_batches(PADDED))
    state.read_steps()
    assert state.step == 3
    assert state.step_metrics.state_dict()["sums"][2] == 20 + 8 + 12
    assert not torch.equal(parameters_of(state)[0], before[0])


def test_train_step_with_scaler_reports_infinite_loss(tmp_path, monkeypatch):
    spoil(monkeypatch, math.inf)  # first: Accelerate keeps the method that it wraps
    state = tiny_train_state(tmp_path, HalfPrecision(cpu=True))
    train_step(state, micro_batches(FULL))
    with pytest.raises(FloatingPointError, match="loss of step 1 is inf"):
        state.read_steps()


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_train_step_is_one_fused_kernel(stand_in, tmp_path, device):
    state = tiny_train_state(tmp_path, stand_in if device == "gpu" else None)
    with Operations() as operations:
        train_step(state, micro_batches(PADDED))
    calls = [arguments for name, arguments in operations.calls if name == "_fused_adam_"]
    updated = [len(arguments[0]) for arguments in calls]
    assert updated == [len(list(state.unwrapped_model.parameters()))]


class Operations(TorchDispatchMode):
    """Keep the names and arguments of all operations."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.calls.append((operation.overloadpacket.__name__, args))
        return operation(*args, **(kwargs or {}))


def test_packed_step_has_few_operations_beside_its_layers(tmp_path):
    """Compiled layers and the compiled loss are few kernels.

    The host starts each of the other operations.
    """
    state = tiny_train_state(tmp_path, packing=True)
    train_step(state, PACKED)
    model = state.unwrapped_model
    for layer in [*model.get_encoder().layers, *model.get_decoder().layers]:
        layer.forward = lambda states, *_, **__: states
    state.model_with_loss.loss_in_graph = cross_entropy_in_graph
    state.batch_preparation = replace(state.batch_preparation, loss_in_graph=True)
    with Operations() as step:
        train_step(state, PACKED)
    states = torch.randn(2, 9, 8, requires_grad=True)
    weight = torch.randn(40, 8, requires_grad=True)
    labels = PACKED[0].tensors["labels"]
    with Operations() as loss:
        cross_entropy_in_graph(states, weight, None, labels, 0.1).smoothed.backward()
    assert 20 < len(loss.calls) <= 64
    assert 20 < len(step.calls) - len(loss.calls) <= 125


@pytest.mark.parametrize("changes", [{}, {"max_grad_norm": 1.0}, {"ema_decay": 0.9}], ids=str)
def test_train_step_does_not_walk_through_the_modules(tmp_path, monkeypatch, changes):
    state = tiny_train_state(tmp_path, **changes)
    train_step(state, micro_batches(FULL))
    monkeypatch.delattr(torch.nn.Module, "named_modules")
    train_step(state, micro_batches(FULL))
    assert state.step == 2


def test_resume_state_holds_no_step_with_infinite_loss(tmp_path, monkeypatch):
    state = tiny_train_state(tmp_path)
    spoil(monkeypatch, math.inf)
    train_step(state, micro_batches(FULL))
    with pytest.raises(FloatingPointError, match="loss of step 1 is inf"):
        state.resume_state()


def test_train_step_reads_losses_after_many_steps_without_log(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_MOST_UNREAD_STEPS", 2)
    state = tiny_train_state(tmp_path)
    with monkeypatch.context() as patch:
        spoil(patch, math.inf)
        train_step(state, micro_batches(FULL))
    train_step(state, micro_batches(FULL))
    with pytest.raises(FloatingPointError, match="loss of step 1 is inf"):
        train_step(state, micro_batches(FULL))


def test_read_steps_gives_the_same_sums_as_reading_after_each_step(tmp_path):
    states = [tiny_train_state(tmp_path) for _ in range(2)]
    for step in range(3):
        for state in states:
            train_step(state, micro_batches(PADDED, FULL[step % 2 :]))
        states[0].read_steps()
    for state in states:
        state.read_steps()
    ours, theirs = (state.step_metrics.state_dict()["sums"] for state in states)
    assert ours == theirs and ours[2:] == [56.0, 112.0, 130.0]


@pytest.mark.parametrize(
    ("is_adam", "batches"),
    [(False, [PADDED]), (True, [FULL, PADDED])],
    ids=["forward pass", "update of Adam"],
)
def test_train_step_names_a_batch_too_large(tmp_path, monkeypatch, is_adam, batches):
    def fail(*_):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    (tmp_path / "checkpoint-3").mkdir()
    state = tiny_train_state(tmp_path, max_tokens=77)
    owner, name = (state.optimizer, "step") if is_adam else (ModelWithLoss, "forward")
    monkeypatch.setattr(owner, name, fail)
    tokens = r"batch of 12 source and 12 target tokens \(30 with padding\)"
    message = f"{tokens} .* step 1 .*Lower `max_tokens`, now 77"
    with pytest.raises(UserError, match=message) as error:
        train_step(state, micro_batches(*batches))
    assert "accumulation" in str(error.value)
    assert f"The last checkpoint is {tmp_path / 'checkpoint-3'}" in str(error.value)


def test_dropout_has_other_masks_in_each_micro_batch(tmp_path):
    state, seeds = tiny_train_state(tmp_path), set()
    for index in range(3):
        module.seed_dropout(state, index)
        seeds.add(torch.initial_seed())
    assert len(seeds) == 3
