"""Processes that are started again meet in a store that dead ones have used."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch
from torch.distributed import HashStore

from tests.sweeps import rare
from vanilla_transformer.errors import UserError
from vanilla_transformer.training import distributed
from vanilla_transformer.training.distributed import (
    agree_on_attempt,
    connect_processes,
    report_lost_processes,
)


@pytest.fixture(autouse=True)
def _short_timeout(monkeypatch):
    monkeypatch.setattr(distributed, "_START_TIMEOUT", timedelta(seconds=1))


def start_attempt(store, world_size, first):
    """Return the names that the processes agree on, if process `first` starts before all others."""
    order = [first, *(rank for rank in range(world_size) if rank != first)]
    with ThreadPoolExecutor(world_size) as processes:
        return set(processes.map(lambda rank: agree_on_attempt(store, rank, world_size), order))


@pytest.fixture
def asked(monkeypatch):
    """Return the backends and devices that torch gets, in a process that a launcher has started."""
    calls = []
    variables = {"LOCAL_RANK": "3", "RANK": "11", "WORLD_SIZE": "12"}
    variables |= {"MASTER_ADDR": "a", "MASTER_PORT": "1"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    def rendezvous(url, timeout):
        yield HashStore(), 0, 1

    def init_process_group(backend, device_id=None, **_):
        calls.append((backend, device_id))

    monkeypatch.setattr(distributed, "rendezvous", rendezvous)
    monkeypatch.setattr(torch.distributed, "init_process_group", init_process_group)
    return calls


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        (0, ("gloo", None)),
        (8, ("cpu:gloo,cuda:nccl", torch.device("cuda", 3))),
        (1, ("cpu:gloo,cuda:nccl", torch.device("cuda", 0))),
    ],
)
def test_connect_processes_uses_gloo_on_the_cpu(monkeypatch, asked, gpus, expected):
    """Builds of PyTorch for CUDA answer `cuda` on every machine, unless they are to check."""

    def current_accelerator(check_available=False):
        return None if check_available and not gpus else torch.device("cuda")

    monkeypatch.setattr(torch.accelerator, "current_accelerator", current_accelerator)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: gpus)
    connect_processes()
    assert asked == [expected]


@pytest.mark.parametrize("missing", ["RANK", "LOCAL_RANK", "MASTER_ADDR"])
def test_connect_processes_leaves_a_single_process_alone(monkeypatch, asked, missing):
    monkeypatch.delenv(missing)
    connect_processes()
    assert not asked


@pytest.mark.parametrize("first", [rare(0), 1, rare(2)])
def test_agree_on_attempt_gives_each_attempt_its_own_name(first):
    store = HashStore()
    attempts = [start_attempt(store, 3, first) for _ in range(3)]
    assert [len(names) for names in attempts] == [1, 1, 1]
    assert len(set.union(*attempts)) == 3


def test_agree_on_attempt_ignores_the_name_of_a_dead_process():
    """The main process was killed after it had set its name, and before the others read it."""
    store = HashStore()
    store.set("attempt/1", "dead")
    (attempt,) = start_attempt(store, 2, first=1)
    assert attempt != "dead"
    assert agree_on_attempt(HashStore(), rank=0, world_size=1)  # which needs no other


def test_agree_on_attempt_names_the_first_missing_process(monkeypatch):
    monkeypatch.setattr(distributed, "_START_TIMEOUT", timedelta(0))
    message = "All 3 processes must start .* the first of them process 1"
    with pytest.raises(ChildProcessError, match=message):
        agree_on_attempt(HashStore(), rank=0, world_size=3)


NCCL = (
    "NCCL error in: /torch/ProcessGroupNCCL.cpp:3690, {}, NCCL version 2.27.5\n{}\nLast error:\n{}"
)
REMOTE = NCCL.format(
    "remote process exited", "ncclRemoteError: A call failed.", "socketProgress: Connection closed"
)
DUPLICATE = NCCL.format(
    "invalid usage",
    "ncclInvalidUsage: This reflects invalid usage.",
    "Duplicate GPU detected : rank 1 and rank 0",
)
CLOSED = "[/torch/gloo/transport/tcp/pair.cc:1] Connection closed by peer [::1]:1"
ABORTED = "NCCL communicator was aborted on rank 1.\nOriginal reason for failure was: timeout"
RESUMES = "The same command resumes"
NEEDS_A_GPU = r"^Process 0 must have a GPU .* NCCL cannot use it: Duplicate GPU detected : rank 1 and rank 0\. Start "


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RuntimeError(CLOSED), RESUMES),
        (torch.distributed.DistBackendError(REMOTE), RESUMES),
        (torch.distributed.DistNetworkError("failed to recv, got 0 bytes"), RESUMES),
        (RuntimeError(ABORTED), RESUMES),
        (RuntimeError(REMOTE), RESUMES),
        (torch.distributed.DistBackendError(DUPLICATE), NEEDS_A_GPU),
    ],
)
def test_report_lost_processes_has_one_line(error, words):
    with pytest.raises(ChildProcessError, match=words) as caught, report_lost_processes():
        raise error
    assert "\n" not in str(caught.value)


def test_processes_end_with_the_refusal_of_another_one(monkeypatch):
    monkeypatch.setattr(distributed, "_stores", [HashStore()])
    with pytest.raises(UserError, match="The text is missing"), report_lost_processes():
        raise UserError("The text is missing.")
    with pytest.raises(UserError, match="The text is missing") as caught, report_lost_processes():
        raise RuntimeError(CLOSED)
    assert not isinstance(caught.value, ChildProcessError)


OTHERS = ["shape mismatch", "Distributed package doesn't have NCCL built in"]


@pytest.mark.parametrize("text", OTHERS)
def test_report_lost_processes_leaves_other_errors_alone(text):
    with pytest.raises(RuntimeError, match=text), report_lost_processes():
        raise RuntimeError(text)
