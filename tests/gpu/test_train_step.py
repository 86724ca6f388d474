"""
Training steps on a GPU: a host that does not wait, and an update that the device skips.

`pytest --confcutdir tests/gpu tests/gpu` runs them with the packages of a plain installation and
pytest alone.
"""

import math

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from tests.train_states import micro_batches, parameters_of, tiny_train_state
from vanilla_transformer.training.train_step import train_step

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")

PADDED, FULL = [5, 3, 4], [4, 4]


@pytest.fixture
def no_sync():
    """Let operations that make the host wait for the GPU fail."""
    yield lambda: torch.cuda.set_sync_debug_mode("error")
    torch.cuda.set_sync_debug_mode("default")


@pytest.fixture
def in_bf16():
    """Create an accelerator that multiplies in bf16, whose options Accelerate forgets
    afterwards.
    """
    AcceleratorState._reset_state(reset_partial_state=True)
    yield Accelerator(mixed_precision="bf16")
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.parametrize(
    "changes",
    [{}, {"max_grad_norm": 1.0}, {"ema_decay": 0.9}, {"attn_implementation": "eager"}],
    ids=str,
)
def test_train_step_does_not_wait(no_sync, in_bf16, tmp_path, changes):
    state = tiny_train_state(tmp_path, in_bf16, **changes)
    train_step(state, micro_batches(PADDED, FULL))  # Adam creates its state
    no_sync()
    for _ in range(3):
        train_step(state, micro_batches(PADDED, FULL))
    torch.cuda.set_sync_debug_mode("default")
    state.read_steps()
    assert state.step_metrics.pop()["loss"] > 0.0


def test_train_step_that_reads_a_value_is_found(no_sync, tmp_path):
    state = tiny_train_state(tmp_path)
    no_sync()
    with pytest.raises(RuntimeError, match="synchronizing"):
        train_step(state, micro_batches(PADDED)).item()


def test_train_step_with_infinite_gradient_changes_nothing(tmp_path):
    state = tiny_train_state(tmp_path)
    train_step(state, micro_batches(PADDED))
    before = parameters_of(state)
    state.unwrapped_model.lm_head.weight.register_hook(lambda gradient: gradient * math.inf)
    train_step(state, micro_batches(FULL))
    assert all(
        torch.equal(ours, theirs) for ours, theirs in zip(parameters_of(state), before, strict=True)
    )
    with pytest.raises(FloatingPointError, match="The gradient of step 2 is not finite"):
        state.read_steps()
