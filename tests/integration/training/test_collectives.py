"""Two processes: which collectives a step and its messages have, and when gradients are reduced."""

from collections import Counter

import pytest
import torch
from accelerate import Accelerator
from torch.profiler import ProfilerActivity, profile

from tests.devices import GPU
from tests.launchers import run_two_processes
from tests.train_states import micro_batches, tiny_train_state
from vanilla_transformer.training.distributed import (
    broadcast_decision,
    create_accelerator,
    wait_for_processes,
)
from vanilla_transformer.training.signals import StopSignal
from vanilla_transformer.training.train_step import compute_gradient, train_step

STEPS = 5
BACKWARD = "autograd::engine::evaluate_function"
# With gradients of 35 MB, and so several buckets: one of 1 MB, and others of at most 25 MiB.
LARGE = {"d_model": 256, "encoder_layers": 4, "decoder_layers": 4}
LARGE |= {"encoder_ffn_dim": 1024, "decoder_ffn_dim": 1024}


def record(function):
    """Return the events of a profiler, in the order of their beginnings."""
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        function()
    return sorted(recorded.events(), key=lambda event: event.time_range.start)


def count_collectives(function):
    """Return how often each collective of gloo runs in this process."""
    names = [event.name for event in record(function)]
    return Counter(name for name in names if name.startswith("gloo:"))


def step(state, *lengths):
    train_step(state, micro_batches(*(lengths or ([5, 3, 4], [4, 4]))))


def make_steps(state):
    for _ in range(STEPS):
        step(state)


class OnStandIn(Accelerator):
    """An accelerator of a device that gloo cannot send from."""

    device = GPU


def talk(state):
    """Exchange all messages that are no gradients, losses or weights."""
    accelerator = OnStandIn(cpu=True)
    decision = broadcast_decision(accelerator, accelerator.is_main_process)
    wait_for_processes(accelerator)
    signal, is_last = StopSignal(accelerator), accelerator.process_index == 1
    return signal.check(state.step, finished=is_last), decision


def measure_large(state):
    """Return the collectives of a step and of an accumulated one, and which share of the backward
    pass follows one.
    """
    for _ in range(2):
        step(state, [5, 3, 4])  # DDP plans its buckets
    events = [event.name for event in record(lambda: step(state, [5, 3, 4]))]
    backward = [index for index, name in enumerate(events) if name.startswith(BACKWARD)]
    # In the thread of the backward pass; gloo's own begins when it can.
    first = events.index("c10d::allreduce_")
    after = sum(index > first for index in backward) / len(backward)
    accumulated = count_collectives(lambda: step(state, [5, 3, 4], [4, 4], [6]))
    steps = events.count("gloo:all_reduce")
    return {"step": steps, "accumulated": accumulated, "after": after}


def measure(rank, folder, results):
    """Count the collectives of one process of two."""
    state = tiny_train_state(folder, Accelerator(cpu=True))
    make_steps(state)  # DDP plans its buckets
    counts = {"steps": count_collectives(lambda: make_steps(state))}
    counts["read"] = count_collectives(state.read_steps)

    def exchange():
        results[f"talk {rank}"] = talk(state)

    counts["talk"] = count_collectives(exchange)
    sharded = tiny_train_state(folder, Accelerator(cpu=True), fsdp=True)
    step(sharded, [5, 3, 4])  # FSDP2 prepares its groups
    counts["sharded"] = count_collectives(lambda: step(sharded, [5, 3, 4]))
    counts["accumulated"] = count_collectives(lambda: step(sharded))
    results[f"counts {rank}"] = counts
    large = tiny_train_state(folder, create_accelerator(sharded.recipe), sizes=LARGE)
    model = large.wrapped_model
    results[f"flags {rank}"] = (model.gradient_as_bucket_view, model.bucket_bytes_cap)
    results[f"large {rank}"] = measure_large(large)
    results[f"compressed {rank}"] = measure_compressed(folder)


def measure_compressed(folder):
    """Return the types that a step with `gradient_compression` sends, its bytes, the bytes of
    the gradient, and how far the gradients of the processes are apart.
    """
    state = tiny_train_state(folder, Accelerator(cpu=True), gradient_compression="bf16")
    sent, all_reduce = [], torch.distributed.all_reduce

    def note(tensor, *arguments, **options):
        sent.append(tensor)
        return all_reduce(tensor, *arguments, **options)

    torch.distributed.all_reduce = note
    compute_gradient(state, micro_batches([5, 3, 4]))
    torch.distributed.all_reduce = all_reduce
    gradients = [parameter.grad for parameter in state.wrapped_model.parameters()]
    gradient = torch.cat([value.flatten() for value in gradients])
    other = gradient.clone()
    all_reduce(other)
    types = {(tensor.dtype, value.dtype) for tensor in sent for value in gradients}
    sizes = [sum(tensor.nbytes for tensor in tensors) for tensors in (sent, gradients)]
    return types, sizes, (other / 2 - gradient).abs().max().item()


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Return what two processes have measured, by its name and the process."""
    return run_two_processes(measure, tmp_path_factory.mktemp("run"))


each_process = pytest.mark.parametrize("rank", [0, 1])


@pytest.mark.sweep
@each_process
def test_train_step_exchanges_nothing_but_gradients(measured, rank):
    assert measured[f"counts {rank}"] == {
        "steps": {"gloo:all_reduce": STEPS},  # one bucket of gradients
        "read": {"gloo:all_reduce": 1},
        "talk": {"gloo:all_reduce": 3},
        # Two layers and the rest are gathered in the forward pass, the layers again in the backward
        # pass, and for the second micro-batch in its backward pass alone.
        "sharded": {"gloo:all_gather": 5, "gloo:all_reduce": 4},
        "accumulated": {"gloo:all_gather": 7, "gloo:all_reduce": 4},
    }


@pytest.mark.sweep
@each_process
def test_gradient_compression_sends_half_the_bytes(measured, rank):
    types, (sent, whole), difference = measured[f"compressed {rank}"]
    assert types == {(torch.bfloat16, torch.float32)}
    assert sent == whole / 2 and difference == 0


@pytest.mark.sweep
@each_process
def test_messages_are_tensors_of_the_cpu(measured, rank):
    """On the device of their accelerator gloo would fail, and NCCL would wait for the queue."""
    assert measured[f"talk {rank}"] == (True, True)


@pytest.mark.sweep
@each_process
def test_gradients_are_reduced_between_layers(measured, rank):
    """Buckets are reduced while the backward pass continues, once for all micro-batches of a
    step.
    """
    assert measured[f"flags {rank}"] == (True, 25 * 2**20)
    large = measured[f"large {rank}"]
    assert large["step"] == 3 and large["accumulated"] == {"gloo:all_reduce": 3}
    # Most functions of the backward pass begin after the first reduction.
    assert large["after"] > 0.5
