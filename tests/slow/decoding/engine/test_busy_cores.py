"""On busy cores, more threads do not slow the engine down: few rows are computed on one."""

import subprocess
import sys
import time
from contextlib import ExitStack
from statistics import median

import pytest
import torch

from benchmarks.revision_worker import build_model
from vanilla_transformer import Engine
from vanilla_transformer.machine.cores import usable_cores


@pytest.mark.skipif(usable_cores() < 2, reason="threads wait for each other on several cores")
def test_all_threads_are_no_slower_than_one():
    engine = Engine(build_model("small").eval(), num_beams=1, compile=False, max_new_tokens=24)
    seconds: dict[int, list[float]] = {1: [], usable_cores(): []}
    with ExitStack() as stack:
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        for _ in range(usable_cores()):
            process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            burning = stack.enter_context(process)
            stack.callback(burning.kill)
        for _ in range(30):
            for threads, measured in seconds.items():
                torch.set_num_threads(threads)
                started = time.perf_counter()
                engine.decode([[*range(4, 18), 2]])
                measured.append(time.perf_counter() - started)
    one, several = map(median, seconds.values())
    assert several < 1.5 * one, (several, one)
