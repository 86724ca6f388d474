"""Run work in a forked process whose time and memory are limited, also in C and Rust."""

import os
import signal
import traceback
from collections.abc import Callable
from typing import Any

import psutil
import torch


def run_limited(work: Callable[[], Any], seconds: int, mebibytes: int) -> None:
    """Call a function in a fork of this process, which an alarm of the system ends.

    Raises:
        AssertionError: It raised an error, did not end, or took more memory beside that of this
            process.
    """
    before = psutil.Process().memory_info().rss
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        signal.signal(
            signal.SIGALRM, signal.SIG_DFL
        )  # ends the process in the middle of a library's loop, too
        signal.alarm(seconds)
        # The threads of this process are not in a fork, which would wait for them.
        torch.set_num_threads(1)
        os.environ |= {
            "TOKENIZERS_PARALLELISM": "false",
            "OMP_NUM_THREADS": "1",
        }  # CTranslate2 reads the second
        try:
            work()
        except BaseException:  # of any kind: the parent reports it
            os.write(writing, traceback.format_exc().encode()[-4000:])
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as file:
        failure = file.read().decode(errors="replace")
    _, status, usage = os.wait4(process, 0)
    assert not failure, failure
    code = os.waitstatus_to_exitcode(status)
    assert code != -signal.SIGALRM, f"It did not end in {seconds} s."
    assert code == 0, f"It ended with {code}."
    added = (usage.ru_maxrss * 1024 - before) / 2**20
    assert added < mebibytes, f"It took {added:.0f} MiB, more than {mebibytes}."
