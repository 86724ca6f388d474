"""
Kill training runs at random moments, start them again, and compare the results with an uninterrupted run.

    python -m benchmarks.bench_random_kills
    python -m benchmarks.bench_random_kills --kills 100 --processes 1 2 --seed 7

Each run is killed once by SIGKILL, anywhere between its first and its last instant, and then started again by the same
arguments, which must end with status 0 and the same weights, bit for bit. Runs are forked from one process that has
imported everything, so that a kill takes about a second. The exit status is 1 if a run fails or differs.
"""

import os
import random
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from benchmarks.bench_resume import run_flags, same_tensors
from benchmarks.harness import progress
from vanilla_transformer.cli import run
from vanilla_transformer.cli.arguments import parse, require_no_words
from vanilla_transformer.data.demo_corpus import write_demo_corpus
from vanilla_transformer.training.arguments import parse_recipe
from vanilla_transformer.training.trainer import train

_MODELS = ("model.safetensors", "ema/model.safetensors")


@dataclass
class BenchmarkArguments:
    """How many runs to kill."""

    kills: int = field(default=200, metadata={"help": "Number of runs to kill, in all."})
    processes: list[int] = field(default_factory=lambda: [1, 2], metadata={"help": "Numbers of processes of a run."})
    seed: int = field(default=0, metadata={"help": "Seed of the moments of the kills."})


def main(arguments: Sequence[str]) -> None:
    words, options = parse(BenchmarkArguments, arguments, "bench_random_kills.py [--flags]")
    require_no_words(words)
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    torch.set_num_threads(1)
    moments = random.Random(options.seed)
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        folder = Path(name)
        write_demo_corpus(folder / "corpus", train=120, validation=8, test=1)
        for processes in options.processes:
            run_uninterrupted(folder / f"first-{processes}", processes)  # fills the cache
            expected = folder / f"uninterrupted-{processes}"
            seconds = run_uninterrupted(expected, processes)
            for number in range(options.kills // len(options.processes)):
                moment = moments.uniform(0.0, 1.05 * seconds)
                progress(f"Processes: {processes}. Kill {number + 1} after {moment:.2f} s of {seconds:.2f} s ...")
                outcome = kill_and_resume(folder / f"killed-{processes}-{number}", processes, moment, expected)
                outcomes[f"processes: {processes}, {outcome}"] += 1
    for outcome, count in sorted(outcomes.items()):
        print(f"{count:5}  {outcome}")
    if any(not outcome.endswith("same weights") for outcome in outcomes):
        sys.exit(1)


def run_uninterrupted(folder: Path, processes: int) -> float:
    """Train to the end, and return the seconds."""
    started = time.monotonic()
    if wait(start(folder, processes)) != 0:
        raise RuntimeError(f"The uninterrupted run failed:\n{log_of(folder)}")
    return time.monotonic() - started


def kill_and_resume(folder: Path, processes: int, moment: float, expected: Path) -> str:
    """Kill a run after `moment` seconds, run it to its end, and describe the result."""
    pids = start(folder, processes)
    time.sleep(moment)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)  # one that has ended is waited for below, so its number is still its own
    wait(pids)
    status = wait(start(folder, processes))
    if status != 0:
        print(log_of(folder), file=sys.stderr)
        return f"status {status}"
    same = all(same_tensors(expected / name, folder / name) for name in _MODELS)
    return f"status 0, {'same' if same else 'other'} weights"


def start(folder: Path, processes: int) -> list[int]:
    """Fork the processes of a run and return their numbers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    return [_fork(folder, rank, processes, port) for rank in range(processes)]


def _fork(folder: Path, rank: int, processes: int, port: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        log = os.open(folder.with_suffix(f".{rank}.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if processes > 1:
            names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes}
            os.environ |= {name: str(value) for name, value in names.items()}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        train(parse_recipe(run_flags(folder)), evaluate=lambda *_, **__: {})
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def wait(pids: Sequence[int]) -> int:
    """Wait for processes and return the largest exit status, negative for a signal only if all were killed."""
    return max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids)


def log_of(folder: Path) -> str:
    """Return the output of the processes of a run."""
    return "\n".join(path.read_text(errors="replace") for path in sorted(folder.parent.glob(f"{folder.name}.*.log")))


if __name__ == "__main__":
    sys.exit(run(main))
