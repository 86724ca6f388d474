"""
Kill training runs at random moments, resume them, and compare their weights with an uninterrupted
run, bit for bit.

    python -m tests.killed_runs 200 [--seed 7] [--processes 1 2]

kills so many runs by SIGKILL anywhere between their first and their last instant, starts each again
by the same arguments, compares the weights, and prints a line of JSON for each outcome. All runs
are forked from one process that has imported everything, so that a kill takes about a second. The
exit status is 1 if a run fails or differs.

The runs train a tiny model on demo text with dropout, BPE-dropout, gradient accumulation and EMA.
"""

import argparse
import json
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
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from vanilla_transformer.data.demo_corpus import write_demo_corpus
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.trainer import train

_RECIPE = {
    "vocab_size": 400,
    "max_tokens": 192,
    "bpe_dropout": 0.2,
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "dropout": 0.3,
    "warmup_steps": 10,
    "max_steps": 14,
    "gradient_accumulation_steps": 2,
    "dataloader_num_workers": 2,
    "ema_decay": 0.9,
    "logging_steps": 2,
    "eval_steps": 4,
    "best_metric": "loss",
    "save_steps": 1,
    "average_checkpoints": 3,
}


def run_flags(folder: Path) -> list[str]:
    corpus = folder.parent / "corpus"
    options = _RECIPE | {"output_dir": folder, "cache_dir": folder.parent / "cache"}
    for split in ("train", "validation"):
        options[f"{split}_source"] = corpus / f"{split}.en"
        options[f"{split}_target"] = corpus / f"{split}.de"
    words = list[str]()
    for name, value in options.items():
        words += [f"--{name}", str(value)]
    return words


def kill_at_random(folder: Path, processes: int, runs: int, seed: int) -> list[dict[str, Any]]:
    """Kill runs at random moments; return a row for each outcome, with the number of runs that had
    it.

    Args:
        folder: Has the text of the runs.
    """
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    torch.set_num_threads(1)
    moments = random.Random(seed + processes)
    run_uninterrupted(folder / f"first-{processes}", processes)  # fills the cache
    expected = folder / f"uninterrupted-{processes}"
    seconds = run_uninterrupted(expected, processes)
    outcomes: Counter[tuple[int, bool]] = Counter()
    for number in range(runs):
        moment = moments.uniform(0.0, 1.05 * seconds)
        killed = folder / f"killed-{processes}-{number}"
        outcomes[kill_and_resume(killed, processes, moment, expected)] += 1
    rows = []
    for (status, same), count in outcomes.items():
        row = {"processes": processes, "runs": count, "status": status, "weights": same}
        rows.append(row)
    return rows


def run_uninterrupted(folder: Path, processes: int) -> float:
    """Train to the end, and return the seconds."""
    started = time.monotonic()
    if wait(start(folder, processes)) != 0:
        raise RuntimeError(f"The uninterrupted run failed:\n{log_of(folder)}")
    return time.monotonic() - started


def kill_and_resume(
    folder: Path, processes: int, moment: float, expected: Path
) -> tuple[int, bool]:
    """Kill a run after `moment` seconds and run it to its end; return its status and whether its
    weights are equal.
    """
    pids = start(folder, processes)
    time.sleep(moment)
    for pid in pids:  # one that has ended is waited for below, so its number is still its own
        os.kill(pid, signal.SIGKILL)
    wait(pids)
    status = wait(start(folder, processes))
    if status != 0:
        sys.stderr.write(log_of(folder))
        return status, False
    for name in ("model.safetensors", "ema/model.safetensors"):
        if not equal_tensors(load_file(expected / name), load_file(folder / name)):
            return 0, False
    return 0, True


def equal_tensors(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> bool:
    if ours.keys() != theirs.keys():
        return False
    return all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())


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
        path = folder.with_suffix(f".{rank}.log")
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if processes > 1:
            os.environ |= dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank))
            os.environ |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(processes))
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        train(parse_recipe(run_flags(folder)))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def wait(pids: Sequence[int]) -> int:
    """Wait for processes and return the largest exit status, negative for a signal only if all were
    killed.
    """
    statuses = [os.waitpid(pid, 0)[1] for pid in pids]
    return max(map(os.waitstatus_to_exitcode, statuses))


def log_of(folder: Path) -> str:
    """Return the output of the processes of a run."""
    paths = sorted(folder.parent.glob(f"{folder.name}.*.log"))
    return "\n".join(path.read_text(errors="replace") for path in paths)


def main() -> int:
    description = "Kill training runs at random moments and resume them."
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("runs", type=int, help="number of runs to kill")
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments")
    numbers = {"type": int, "nargs": "+", "default": [1, 2]}
    parser.add_argument("--processes", **numbers, help="numbers of processes of the runs")
    options = parser.parse_args()
    least = len(options.processes)
    if options.runs < least:
        parser.error(f"runs must be {least} or more, one for each number of processes")
    equal = True
    with tempfile.TemporaryDirectory(prefix="killed-runs-") as folder:
        write_demo_corpus(Path(folder, "corpus"), train=120, validation=8, test=1)
        for processes in options.processes:
            runs = options.runs // least
            for row in kill_at_random(Path(folder), processes, runs, options.seed):
                sys.stdout.write(f"{json.dumps(row)}\n")
                sys.stdout.flush()
                equal = equal and row["weights"]
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
