"""Train with a disk so slow that checkpoints are written only after the next step, and kill a
process meanwhile.

The first argument names the process that is killed while it writes checkpoint 5, unless it was
started again.
"""

import os
import re
import signal
import sys

from torch.distributed.checkpoint import FileSystemWriter

from tests.processes import wait_until
from vanilla_transformer.cli import run
from vanilla_transformer.cli.train import train_command
from vanilla_transformer.training import checkpoint, trainer

LAST_STEP = 8
killed, *arguments = sys.argv[1:]
train_step, write_data, write_hashes = (
    trainer.train_step,
    FileSystemWriter.write_data,
    checkpoint.write_hashes,
)
steps = [0]


def count_step(state, batches):
    norm = train_step(state, batches)
    steps.append(state.step)
    return norm


def wait_for_next_step(path):
    step = int(re.search(r"checkpoint-(\d+)", str(path))[1])
    if step < LAST_STEP:
        wait_until(lambda: steps[-1] > step, seconds=20)
    if step == 5 and (
        os.environ.get("RANK", "0"),
        os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"),
    ) == (killed, "0"):
        os.kill(os.getpid(), signal.SIGKILL)


def write_shards(writer, plan, planner):
    wait_for_next_step(writer.path)
    return write_data(writer, plan, planner)


def write_last_file(folder):
    """Hash the files of a checkpoint, all of which are written."""
    wait_for_next_step(folder)
    write_hashes(folder)


trainer.train_step, FileSystemWriter.write_data = count_step, write_shards
checkpoint.write_hashes = write_last_file
sys.exit(run(train_command, arguments))
