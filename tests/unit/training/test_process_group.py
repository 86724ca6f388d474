"""Processes that are started again meet in a store that dead ones have used."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch
from torch.distributed import HashStore

from vanilla_transformer.training import process_group
from vanilla_transformer.training.process_group import agree_on_attempt, connect_processes, report_lost_processes


@pytest.fixture(autouse=True)
def _short_timeout(monkeypatch):
    monkeypatch.setattr(process_group, "_START_TIMEOUT", timedelta(seconds=1))


def start_attempt(store, world_size, first):
    """Return the names that the processes agree on, if process `first` starts before all others."""
    order = [first, *(rank for rank in range(world_size) if rank != first)]
    with ThreadPoolExecutor(world_size) as processes:
        return set(processes.map(lambda rank: agree_on_attempt(store, rank, world_size), order))


def test_connect_processes_takes_gloo_without_a_gpu(monkeypatch):
    """Builds of PyTorch for CUDA answer `cuda` on every machine."""
    found = []
    monkeypatch.setattr(process_group, "is_torchelastic_launched", lambda: True)
    monkeypatch.setattr(process_group, "rendezvous", lambda url, timeout: iter([(HashStore(), 0, 1)]))
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda backend, **options: found.append(backend))
    monkeypatch.setattr(
        torch.accelerator,
        "current_accelerator",
        lambda check_available=False: None if check_available else torch.device("cuda"),
    )
    connect_processes()
    assert found == ["gloo"]


@pytest.mark.parametrize("first", [0, 1, 2])
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


def test_agree_on_attempt_of_one_process_needs_no_other():
    assert agree_on_attempt(HashStore(), rank=0, world_size=1)


def test_agree_on_attempt_names_the_first_missing_process(monkeypatch):
    monkeypatch.setattr(process_group, "_START_TIMEOUT", timedelta(0))
    with pytest.raises(ConnectionError, match="All 3 processes must start .* the first of them process 1"):
        agree_on_attempt(HashStore(), rank=0, world_size=3)


def test_report_lost_processes_tells_how_to_resume():
    error = RuntimeError("[/torch/third_party/gloo/gloo/transport/tcp/pair.cc:1] Connection closed by peer [::1]:1")
    with pytest.raises(ConnectionError, match="The same command resumes"), report_lost_processes():
        raise error


def test_report_lost_processes_leaves_other_errors_alone():
    with pytest.raises(RuntimeError, match="shape"), report_lost_processes():
        raise RuntimeError("shape mismatch")
