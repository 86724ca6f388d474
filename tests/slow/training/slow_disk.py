"""Train with a disk so slow that shards are written only after the next step, and kill a process meanwhile.

The first argument names the process that is killed while it writes checkpoint 5, unless it was started again.
"""

import os
import re
import signal
import sys

from torch.distributed.checkpoint import FileSystemWriter

from tests.waiting import wait_until
from vanilla_transformer.cli import run
from vanilla_transformer.cli.train import main
from vanilla_transformer.training import trainer

LAST_STEP = 8
killed, *arguments = sys.argv[1:]
train_step, write_data = trainer.train_step, FileSystemWriter.write_data
steps = [0]


def count_step(state, batches):
    norm = train_step(state, batches)
    steps.append(state.step)
    return norm


def write_after_next_step(writer, plan, planner):
    step = int(re.search(r"checkpoint-(\d+)", str(writer.path))[1])
    if step < LAST_STEP:
        wait_until(lambda: steps[-1] > step, seconds=20)
    if step == 5 and (os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]) == (killed, "0"):
        os.kill(os.getpid(), signal.SIGKILL)
    return write_data(writer, plan, planner)


trainer.train_step, FileSystemWriter.write_data = count_step, write_after_next_step
sys.exit(run(main, arguments))
