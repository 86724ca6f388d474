"""Connect the processes that a launcher has started, also after it started them again, and report a lost one."""

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
from torch.distributed import PrefixStore, Store, is_torchelastic_launched
from torch.distributed.rendezvous import rendezvous

_START_TIMEOUT = timedelta(minutes=10)
_SECONDS_BETWEEN_LOOKS = 0.05


def connect_processes() -> None:
    """Create the process group of a process that `torchrun` or `accelerate launch` started.

    Both keep one store for all attempts, so a process that is started again can read the address of a dead one there
    (pytorch/pytorch#135712). Each attempt therefore gets a part of the store for itself.
    """
    if not is_torchelastic_launched() or torch.distributed.is_initialized():
        return
    store, rank, world_size = next(rendezvous("env://", timeout=_START_TIMEOUT))
    attempt = agree_on_attempt(store, rank, world_size)
    # A build of PyTorch for CUDA names its accelerator also on a machine without a GPU, unless it is to check.
    device = torch.accelerator.current_accelerator(check_available=True) or "cpu"
    backend = torch.distributed.get_default_backend_for_device(device)
    torch.distributed.init_process_group(backend, store=PrefixStore(attempt, store), rank=rank, world_size=world_size)


def agree_on_attempt(store: Store, rank: int, world_size: int) -> str:
    """Return a name that all processes of this attempt have in common and no earlier attempt had.

    The number of restarts is not such a name, since each node counts its own. An earlier attempt may have ended
    anywhere in this function, so each process deletes its remains, and the main process repeats the name until
    all have read it.

    Raises:
        ConnectionError: a process has not started in time.
    """
    if rank != 0:
        store.delete_key(f"attempt/{rank}")
        attempt = store.get(f"attempt/{rank}").decode()
        store.set(f"{attempt}/{rank}", "joined")
        return attempt
    attempt = uuid.uuid4().hex
    deadline = time.monotonic() + _START_TIMEOUT.total_seconds()
    while missing := [other for other in range(1, world_size) if not store.check([f"{attempt}/{other}"])]:
        if time.monotonic() > deadline:
            raise ConnectionError(
                f"All {world_size} processes must start within {_START_TIMEOUT.total_seconds() / 60:.0f} minutes, but "
                f"{len(missing)} did not, the first of them process {missing[0]}. Look at its messages and its node."
            )
        for other in missing:
            store.set(f"attempt/{other}", attempt)
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    return attempt


@contextmanager
def report_lost_processes() -> Iterator[None]:
    """Turn the failure of an exchange with another process of the run, at any place in the block, into one line.

    Raises:
        ConnectionError: another process was killed, has failed or cannot be reached.
    """
    try:
        yield
    except RuntimeError as error:  # gloo has no other type
        if not (isinstance(error, torch.distributed.DistError) or "/gloo/" in str(error)):
            raise
        raise ConnectionError(
            f"Process {os.environ.get('RANK', '0')} lost the connection to another process of the run, which was "
            "killed or has failed: look at its messages. The same command resumes from the last checkpoint."
        ) from error
