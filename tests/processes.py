"""Run programs and functions in other processes: forked, killed or limited ones.

`Forked` forks a process from one that has imported torch and transformers. An interpreter takes
seconds of a core to import them, and a fork none. A program meets this package unimported, as in a
new interpreter, and the Hub's client reads the environment again. What other libraries read from it
while they are imported must not differ, so tests of imports and of launchers start an interpreter.
"""

import importlib
import multiprocessing
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import types
from collections.abc import Callable
from contextlib import contextmanager
from functools import cache
from multiprocessing import forkserver
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import torch

ROOT = Path(__file__).parents[1]
_WRITING = os.O_WRONLY | os.O_APPEND | os.O_CREAT


@cache
def _fork_server():
    """Start the process to fork from. `multiprocessing` has another one for the package, which
    imports other modules, without which each document would take seconds.
    """
    server = forkserver.ForkServer()
    server.set_forkserver_preload(["tests.preloaded"])
    with mock.patch.dict(os.environ, {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}):
        server.ensure_running()
    return server


@contextmanager
def fork_context():
    """Yield a context of `multiprocessing` that forks from [`_fork_server`] meanwhile."""
    connect = _fork_server().connect_to_new_process
    with mock.patch.object(forkserver, "connect_to_new_process", connect):
        yield multiprocessing.get_context("forkserver")


class Forked:
    """A process that runs `python ARGUMENTS`, with the interface of `subprocess.Popen`.

    It has its own session.
    """

    def __init__(self, arguments, env=None, cwd=None, input=""):
        self._folder = tempfile.TemporaryDirectory()
        files = [Path(self._folder.name, name) for name in ("input", "output", "errors")]
        files[0].write_text(input)
        self._printed = files[1:]
        words = [*map(str, arguments)]
        environment = dict(os.environ if env is None else env)
        program = (words, environment, os.fspath(cwd or os.getcwd()), files)
        with fork_context() as context:
            self._process = context.Process(target=_run, args=program)
            self._process.start()
        self.pid = self._process.pid

    @property
    def returncode(self):
        return self._process.exitcode

    def poll(self):
        return self._process.exitcode

    def wait(self, timeout=300):
        self._process.join(timeout)
        if self.returncode is None:
            self.kill()
            raise subprocess.TimeoutExpired("a forked process", timeout)
        return self.returncode

    def send_signal(self, number):
        os.kill(self.pid, number)

    def kill(self):
        if self._process.is_alive():
            os.killpg(self.pid, signal.SIGKILL)
            self._process.join()

    def communicate(self, timeout=300):
        self.wait(timeout)
        return tuple(path.read_text() if path.exists() else "" for path in self._printed)


class TwoProcesses:
    """Two processes of `python ARGUMENTS` that meet as those that torchrun starts."""

    def __init__(self, arguments, env=None):
        with socket.socket() as listener:
            listener.bind(("localhost", 0))
            port = listener.getsockname()[1]
        shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        shared |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
        shared |= {"OMP_NUM_THREADS": "1", "TORCHELASTIC_RUN_ID": "run"}
        self.processes = []
        for rank in ("0", "1"):
            environment = (env or os.environ) | shared | {"RANK": rank, "LOCAL_RANK": rank}
            self.processes.append(Forked(arguments, environment))

    @property
    def returncode(self):
        one, other = (process.returncode for process in self.processes)
        return one or other or 0

    def communicate(self, timeout=300):
        """Return the outputs and the errors of both, one after the other."""
        printed = [process.communicate(timeout) for process in self.processes]
        return tuple(map("".join, zip(*printed, strict=True)))


def run_python(*arguments, env=None, cwd=None, input="", timeout=300):
    """Run `python ARGUMENTS` and return it as `subprocess.run` does."""
    process = Forked(arguments, env, cwd, input)
    output, errors = process.communicate(timeout)
    return subprocess.CompletedProcess(arguments, process.returncode, output, errors)


def _run(arguments, environment, folder, files):
    os.setsid()
    modes = (os.O_RDONLY, _WRITING, _WRITING)
    for descriptor, (path, mode) in enumerate(zip(files, modes, strict=True)):
        os.dup2(os.open(path, mode), descriptor)
    sys.stdin = os.fdopen(0, closefd=False)  # `multiprocessing` has replaced it by an empty one
    os.environ.clear()
    os.environ.update(environment)
    _reread_environment()
    os.chdir(folder)
    sys.path[:] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    sys.path += sys.modules["tests.preloaded"].PATHS
    program, *words = arguments
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if program == "-c":
        code, *words = words
        sys.path.insert(0, "")
        sys.argv = ["-c", *words]
        exec(compile(code, "<string>", "exec"), vars(main))
    elif program == "-m":
        sys.path.insert(0, "")
        sys.argv = words
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(program)))
        sys.argv = arguments
        runpy.run_path(program, run_name="__main__")


def _reread_environment():
    """Let the Hub's client read addresses and caches again, which it reads when it is imported."""
    import huggingface_hub
    import transformers

    constants = importlib.reload(huggingface_hub.constants)
    huggingface_hub.hf_api.api.endpoint = constants.ENDPOINT
    modules = os.environ.get("HF_MODULES_CACHE", os.path.join(constants.HF_HOME, "modules"))
    for reader in (transformers.utils, transformers.utils.hub, transformers.dynamic_module_utils):
        reader.HF_MODULES_CACHE = modules


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
    # As in this process, for sums in the same order.
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    options = {"env": environment, "capture_output": True, "text": True, "timeout": 300}
    finished = subprocess.run(command, **options)
    assert finished.returncode == -signal.SIGKILL, finished.stderr


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
        # It ends the process in the middle of a library's loop, too.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(seconds)
        # The threads of this process are not in a fork, which would wait for them.
        torch.set_num_threads(1)
        # CTranslate2 reads the second.
        os.environ |= {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
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


def wait_until(condition, seconds=120):
    """Wait until `condition()` is true, or fail after so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "It took too long."
        time.sleep(0.01)
