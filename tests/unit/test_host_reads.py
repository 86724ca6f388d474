"""The modes that find waits for a GPU: every kind of wait, and nothing else."""

import pytest
import torch

from tests.devices import GPU, NoHostReads, gpu_stand_in

READS = {
    "item": lambda values: values[1].item(),
    "condition": lambda values: bool(values[1] > 0),
    "equal": lambda values: torch.equal(values, values),
    "nonzero": lambda values: values.nonzero(),
    "where": lambda values: torch.where(values > 1),
    "masked_select": lambda values: values.masked_select(values > 1),
    "unique": lambda values: values.unique(),
    "repeats": lambda values: values.repeat_interleave(values.long()),
    "mask": lambda values: values[values > 1],
    "assignment by mask": lambda values: values.clone().__setitem__(values > 1, values[2:]),
    "constant": lambda values: torch.tensor([1, 2], device=values.device),
    "to": lambda values: values.to("meta" if values.device.type == "cpu" else "cpu"),
    "copy_": lambda values: (
        torch.empty(3).copy_(values) if values.device == GPU else values.copy_(values.to(GPU))
    ),
}
# These are no operations on a CPU.
READS_OF_GPU = {
    "tolist": lambda values: values.tolist(),
    "cpu": lambda values: values.cpu(),
    "numpy": lambda values: values.numpy(force=True),
    "index on the host": lambda values: values[torch.tensor([1])],
    "list as an index": lambda values: values[[0, 2]],
    "number at indices": lambda values: values.__setitem__(values.long(), 1.0),
    "assignment by a list": lambda values: values.__setitem__([0, 2], 1.0),
    "source on the host": lambda values: values.copy_(torch.ones(3)),
}


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_no_host_reads_finds_every_read(read, inference):
    values = torch.arange(3.0)
    with pytest.raises(AssertionError), torch.inference_mode(inference), NoHostReads():
        read(values)


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("read", (READS | READS_OF_GPU).values(), ids=READS | READS_OF_GPU)
def test_gpu_stand_in_finds_every_wait(read, inference):
    values = torch.ones(3, device=GPU)
    with pytest.raises(AssertionError), torch.inference_mode(inference), gpu_stand_in():
        read(values)


def test_modes_allow_a_constant_without_values():
    with NoHostReads():
        torch.tensor([])
    with gpu_stand_in():
        torch.tensor([], device=GPU)


@torch.inference_mode()
def test_gpu_stand_in_allows_copies_that_do_not_wait():
    with gpu_stand_in() as copies:
        there = torch.tensor([1, 2, 3]).to(GPU, non_blocking=True)
        here = there[there].repeat_interleave(2, dim=0).to("cpu", non_blocking=True)
    assert (
        there.device == GPU
        and here is copies.arrived[0]
        and here.shape == (6,)
        and here.device.type == "cpu"
    )
