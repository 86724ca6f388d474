"""Collectives of two processes: gradients, and with FSDP2 parameters, in each update, until losses are read."""

from collections import Counter

import pytest
import torch
from accelerate import Accelerator
from torch.profiler import ProfilerActivity, profile

from tests.train_states import micro_batches, tiny_train_state
from vanilla_transformer.training.signals import StopSignal
from vanilla_transformer.training.train_step import train_step

STEPS = 5


def count_collectives(function):
    """Return how often each collective of gloo runs in this process."""
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        function()
    return Counter(event.name for event in recorded.events() if event.name.startswith("gloo:"))


def make_updates(state):
    for _ in range(STEPS):
        train_step(state, micro_batches([5, 3, 4], [4, 4]))


def measure(rank, folder, counts):
    """Count the collectives of one process of two."""
    for name, value in {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1"}.items():
        pytest.MonkeyPatch().setenv(name, str(value))
    store = torch.distributed.FileStore(f"{folder}/store", 2)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    state = tiny_train_state(folder, Accelerator(cpu=True))
    stop = StopSignal(state.accelerator)
    make_updates(state)  # DDP plans its buckets
    found = {"updates": count_collectives(lambda: make_updates(state))}
    found["read"] = count_collectives(state.read_steps)
    found["talk"] = count_collectives(lambda: stop.check(state.step, finished=False))
    sharded = tiny_train_state(folder, Accelerator(cpu=True), fsdp=True)
    train_step(sharded, micro_batches([5, 3, 4]))  # FSDP2 prepares its groups
    found["sharded"] = count_collectives(lambda: train_step(sharded, micro_batches([5, 3, 4])))
    found["accumulated"] = count_collectives(lambda: train_step(sharded, micro_batches([5, 3, 4], [4, 4])))
    counts[rank] = found
    torch.distributed.destroy_process_group()


def test_train_step_exchanges_nothing_but_gradients(tmp_path):
    with torch.multiprocessing.Manager() as manager:
        counts = manager.dict()
        torch.multiprocessing.spawn(measure, (str(tmp_path), counts), nprocs=2)
        assert dict(counts) == {
            rank: {
                "updates": {"gloo:all_reduce": STEPS},  # one bucket of gradients
                "read": {"gloo:all_reduce": 1},
                "talk": {"gloo:all_reduce": 1},
                # Two layers and the rest are gathered in the forward pass, the layers again in the backward pass, and
                # for the second micro-batch in its backward pass alone.
                "sharded": {"gloo:all_gather": 5, "gloo:all_reduce": 4},
                "accumulated": {"gloo:all_gather": 7, "gloo:all_reduce": 4},
            }
            for rank in (0, 1)
        }
