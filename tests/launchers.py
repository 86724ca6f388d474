"""Start several processes on this machine.

None of the launchers uses a fixed port: many tests run at a time.
"""

import socket

import psutil


def torchrun(processes: int, *options: object) -> list[str]:
    """Return the words after `python -m` that start `processes` processes.

    On a CPU, `accelerate launch` starts only one.
    """
    return [
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node",
        str(processes),
        *map(str, options),
    ]


def torchrun_on_two_nodes(*options: object) -> list[str]:
    """Return the words that start one process.

    To be started twice, as on two machines with a shared disk.
    """
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        port = listener.getsockname()[1]
    nodes = ["--nnodes", "2", "--nproc_per_node", "1", "--rdzv_backend", "c10d", "--rdzv_id", "run"]
    return [
        "torch.distributed.run",
        *nodes,
        "--rdzv_endpoint",
        f"localhost:{port}",
        *map(str, options),
    ]


def find_rank(launcher: int, rank: int) -> psutil.Process | None:
    """Return the process of `rank` that the launcher of this process number has started."""
    workers = psutil.Process(launcher).children(recursive=True)
    return next((worker for worker in workers if worker.environ().get("RANK") == str(rank)), None)
