"""Run code in another process that kills itself, as `kill -9` does, at the n-th call of a
function.
"""

import os
import signal
import subprocess
import sys

_PATCH = """
import importlib, os, signal, sys

module, path, calls, *words = sys.argv[1:]
owner, (*parts, name) = importlib.import_module(module), path.split(".")
for part in parts:
    owner = getattr(owner, part)
unpatched, made = getattr(owner, name), []

def killing(*arguments, **options):
    made.append(arguments)
    if len(made) == int(calls):
        os.kill(os.getpid(), signal.SIGKILL)
    return unpatched(*arguments, **options)

setattr(owner, name, killing)
"""


def run_until_killed(code: str, words: list[str], module: str, function: str, calls: int) -> None:
    """Run `code`, which may use the list `words`, until the n-th call of a function of a module."""
    command = [sys.executable, "-c", _PATCH + code, module, function, str(calls), *words]
    environment = os.environ | {
        "OMP_NUM_THREADS": "1"
    }  # as in this process, for sums in the same order
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert finished.returncode == -signal.SIGKILL, finished.stderr
