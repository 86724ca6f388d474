"""Run a function in two processes that gloo joins."""

import os

import torch


def run_two_processes(function, folder):
    """Call `function(rank, folder, found)` in each of two processes, and return what they put into `found`."""
    with torch.multiprocessing.Manager() as manager:
        found = manager.dict()
        torch.multiprocessing.spawn(_join, (function, str(folder), found), nprocs=2)
        return dict(found)


def _join(rank, function, folder, found):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1")
    torch.set_num_threads(1)
    store = torch.distributed.FileStore(f"{folder}/store", 2)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    function(rank, folder, found)
    torch.distributed.destroy_process_group()
