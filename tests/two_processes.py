"""Run a function in two processes that gloo joins."""

import os

import torch

from tests.forked import fork_context


def run_two_processes(function, folder):
    """Call `function(rank, folder, found)` in each of two processes, and return what they put into
    `found`.
    """
    with fork_context().Manager() as manager:
        found = manager.dict()
        arguments = function, str(folder), found
        torch.multiprocessing.start_processes(_join, arguments, nprocs=2, start_method="forkserver")
        return dict(found)


def _join(rank, function, folder, found):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1")
    torch.set_num_threads(1)
    store = torch.distributed.FileStore(f"{folder}/store", 2)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    function(rank, folder, found)
    torch.distributed.destroy_process_group()
