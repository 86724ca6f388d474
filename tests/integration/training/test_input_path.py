"""The way of a batch to a GPU: a worker builds it, a thread pins it, and the process that trains
copies it.
"""

import threading
from contextlib import closing
from itertools import islice
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from tests.corpora import LengthsCorpus
from tests.devices import gpu_stand_in
from tests.train_states import accelerator_of_stand_in, tiny_train_state
from vanilla_transformer.data.batch_sampler import TokenBudgetBatchSampler
from vanilla_transformer.data.data_loader import MicroBatchLoader
from vanilla_transformer.data.tokenized_corpus import EncodedPairs, TokenTable
from vanilla_transformer.training.device_batch import BatchPreparation, batch_to_device
from vanilla_transformer.training.train_step import train_step

LENGTHS = [1 + number * 7 % 11 for number in range(40)]
LOGGING_STEPS = 5
# Views, and copies of tensors that a worker has built.
COPIES = {"alias", "as_strided", "clone", "detach", "select", "slice", "split", "view", "_to_copy"}


class LinkedCorpus(LengthsCorpus):
    """Pairs whose first target token is linked to the first source token, with half the weight in
    every third pair.
    """

    def tokenize(self, epoch):
        dataset = super().tokenize(epoch).table.dataset
        links = [[0, 0, 1 + (number % 3 == 0)] for number in range(len(dataset))]
        features = datasets.Features(links=datasets.Sequence(datasets.Value("int32")))
        linked = datasets.Dataset.from_dict({"links": links}, features=features)
        return EncodedPairs(TokenTable(datasets.concatenate_datasets([dataset, linked], axis=1)))


class OperationsOfHost(TorchDispatchMode):
    """Record the names of operations on tensors of the CPU alone that are more than a copy or a
    view.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found = list[str]()

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        results = operation(*args, **(kwargs or {}))
        tensors = [
            leaf
            for leaf in pytree.tree_leaves((args, kwargs, results))
            if isinstance(leaf, torch.Tensor)
        ]
        name = operation.overloadpacket.__name__
        if (
            tensors
            and all(tensor.device.type == "cpu" for tensor in tensors)
            and name not in COPIES
        ):
            self.found.append(name)
        return results


def loader(prepare, num_workers, **changes):
    sampler = TokenBudgetBatchSampler(LinkedCorpus(LENGTHS), max_tokens=40, seed=0, accumulation=2)
    return MicroBatchLoader(sampler, 0, num_workers, prepare=prepare, **changes)


@pytest.fixture
def state(monkeypatch, tmp_path):
    options = {
        "ema_decay": 0.9,
        "attn_implementation": "eager",
        "train_alignments": "c",
        "alignment_layer": 0,
    }
    return tiny_train_state(tmp_path, accelerator_of_stand_in(monkeypatch), **options)


def count_operations(state, batches):
    """Train the steps between two lines of the log, and return the operations of the host."""
    with closing(iter(batches)) as steps, gpu_stand_in() as copies, OperationsOfHost() as host:
        for _ in range(2):  # Adam creates its state, and counts its steps on the host
            train_step(state, next(steps))
        host.found.clear()
        for step in islice(steps, LOGGING_STEPS - 2):
            train_step(state, step)
    assert not copies.arrived and len(state.unread) == LOGGING_STEPS
    return host.found


def test_training_with_a_worker_builds_and_reads_no_tensor_between_two_lines_of_the_log(state):
    assert not count_operations(state, loader(state.batch_preparation, num_workers=1))


def test_training_that_prepares_batches_itself_is_found(state):
    assert {"nonzero", "ne"} <= {*count_operations(state, loader(None, num_workers=1))}


@pytest.mark.parametrize("attention", ["eager", "sdpa", None])
@pytest.mark.parametrize("num_workers", [0, 1])
def test_micro_batch_loader_gives_prepared_batches(state, attention, num_workers):
    prepare = BatchPreparation(state.unwrapped_model.config, attention, torch.float32)
    expected, found = loader(None, 0), loader(prepare, num_workers)
    with closing(iter(expected)) as plain, closing(iter(found)) as prepared:
        for ours, theirs in zip(islice(prepared, 8), plain, strict=False):
            for one, other in zip(ours, theirs, strict=True):
                batch = batch_to_device(other.tensors, prepare, torch.device("cpu"))
                assert one.tensors.keys() == batch.keys() and np.array_equal(one.pairs, other.pairs)
                for name, tensor in batch.items():
                    assert tensor.dtype == one.tensors[name].dtype and torch.equal(
                        tensor, one.tensors[name]
                    )


@pytest.mark.parametrize("num_workers", [0, 1])
def test_micro_batch_loader_pins_each_step_once(monkeypatch, num_workers):
    """Torch pins with an accelerator only.

    With workers, another thread than the one that trains does so.
    """
    pinned = []
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cpu"))
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
    monkeypatch.setattr(torch.accelerator, "set_device_index", lambda index: None)
    monkeypatch.setattr(
        torch.Tensor,
        "pin_memory",
        lambda tensor: pinned.append(threading.current_thread()) or tensor.clone(),
    )
    count = 6
    with (
        closing(iter(loader(None, num_workers, pin_memory=True))) as steps,
        closing(iter(loader(None, 0))) as plain,
    ):
        for ours, theirs in islice(zip(steps, plain, strict=False), count):
            for one, other in zip(ours, theirs, strict=True):
                assert all(
                    torch.equal(one.tensors[name], tensor) for name, tensor in other.tensors.items()
                )
    assert len(pinned) >= count and (threading.main_thread() in pinned) == (num_workers == 0)
