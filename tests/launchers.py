"""Start several processes on this machine, by torchrun or joined by gloo.

None of the launchers uses a fixed port: many tests run at a time.
"""

import os
import socket

import psutil
import torch

from tests.processes import fork_context


def torchrun(processes: int, *options: object) -> list[str]:
    """Return the words after `python -m` that start `processes` processes.

    On a CPU, `accelerate launch` starts only one.
    """
    words = ["torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
    return [*words, *map(str, options)]


def torchrun_on_two_nodes(*options: object) -> list[str]:
    """Return the words that start one process.

    To be started twice, as on two machines with a shared disk.
    """
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        port = listener.getsockname()[1]
    words = ["torch.distributed.run", "--nnodes", "2", "--nproc_per_node", "1"]
    words += ["--rdzv_backend", "c10d", "--rdzv_id", "run"]
    return [*words, "--rdzv_endpoint", f"localhost:{port}", *map(str, options)]


def find_rank(launcher: int, rank: int) -> psutil.Process | None:
    """Return the process of `rank` that the launcher of this process number has started."""
    workers = psutil.Process(launcher).children(recursive=True)
    for worker in workers:
        if worker.environ().get("RANK") == str(rank):
            return worker
    return None


def run_two_processes(function, folder):
    """Call `function(rank, folder, results)` in each of two processes, and return what they put into
    `results`.
    """
    with fork_context() as context, context.Manager() as manager:
        results = manager.dict()
        arguments = function, str(folder), results
        torch.multiprocessing.start_processes(_join, arguments, nprocs=2, start_method="forkserver")
        return dict(results)


def _join(rank, function, folder, results):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1")
    torch.set_num_threads(1)
    store = torch.distributed.FileStore(f"{folder}/store", 2)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    function(rank, folder, results)
    if torch.distributed.is_initialized():  # and not ended by a whole training
        torch.distributed.destroy_process_group()
