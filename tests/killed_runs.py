"""
Kill training runs, resume them, and compare them bit for bit with an uninterrupted one.

    python -m tests.killed_runs 200 [--seed 7] [--processes 1 2]

kills so many runs by SIGKILL anywhere between their first and their last instant, starts each again by the same
arguments, compares the weights, and prints a line of JSON for each outcome. All runs are forked from one process that
has imported everything, so that a kill takes about a second. The exit status is 1 if a run fails or differs.

The runs train a tiny model on demo text with dropout, BPE-dropout, gradient accumulation and EMA. [`compare_places`]
kills runs at exact places, in separate processes, and compares all that a run consists of. As a worker, this module
records each batch of a run and kills it at one exact place. The package is not changed for this: the worker observes
the order of updates, the model's `forward`, torch's dropout, and opened files.
"""

import argparse
import functools
import hashlib
import inspect
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter, deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from safetensors.torch import load_file

from benchmarks.harness import ROOT
from vanilla_transformer import VanillaTransformerModel
from vanilla_transformer.data.batches import MicroBatch
from vanilla_transformer.data.data_loader import MicroBatchLoader
from vanilla_transformer.data.demo_corpus import write_demo_corpus
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.trainer import train
from vanilla_transformer.utils.file_utils import HASHES_FILE

_SIDES = {"source": "en", "target": "de"}
_ACCUMULATION = 2
_UPDATES = 14
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
    "max_steps": _UPDATES,
    "gradient_accumulation_steps": _ACCUMULATION,
    "dataloader_num_workers": 2,
    "ema_decay": 0.9,
    "logging_steps": 2,
    "eval_steps": 4,
    "best_metric": "loss",
    "save_steps": 1,
    "average_checkpoints": 3,
}
# Metrics that depend on the clock or the machine.
_TIMES = {"minutes", "tokens_per_second", "peak_memory_gib"}
_MODELS = ("model.safetensors", "ema/model.safetensors")


@dataclass
class FinishedRun:
    """The folder of a run and the records of its processes, before and after the kill."""

    folder: Path
    records: list[list[list[dict[str, Any]]]]  # indexed by part of the run, process, batch

    def columns(self, *names: str) -> list[list[list[Any]]]:
        """Return the named fields of each batch."""
        return [[[[line[name] for name in names] for line in process] for process in part] for part in self.records]


def compare_places(folder: Path, processes: int) -> list[dict[str, Any]]:
    """Kill and resume a run at each place; return a row for each.

    Args:
        folder: Folder with the text that [`write_corpus`] writes.
    """
    uninterrupted_folder = folder / f"uninterrupted-{processes}"
    uninterrupted = FinishedRun(uninterrupted_folder, [train_and_record(uninterrupted_folder, processes, "never")])
    rows = []
    for number, (name, place) in enumerate(places(uninterrupted).items()):
        resumed_folder = folder / f"killed-{processes}-{number}"
        parts = [train_and_record(resumed_folder, processes, each) for each in (place, "never")]
        rows.append(describe_row(name, uninterrupted, FinishedRun(resumed_folder, parts)))
    return rows


def write_corpus(folder: Path) -> None:
    """Write the text of the runs in a folder."""
    write_demo_corpus(folder / "corpus", train=120, validation=8, test=1)


def places(uninterrupted: FinishedRun) -> dict[str, str]:
    """Return descriptions of the kills with the argument of the worker. Updates and batches count from 1."""
    epochs = [line["epoch"] for line in uninterrupted.records[0][0][::_ACCUMULATION]]  # of each update
    second = epochs.index(1) + 2  # the second update of epoch 2, counted from 1
    if epochs[second - 1] != 1 or second >= _UPDATES:
        raise RuntimeError(f"Epoch 2 must have several of the {_UPDATES} updates, got epochs {epochs}.")
    return {
        "after update 1": "2.1",
        "between two accumulated batches": "4.2",
        "inside epoch 2": f"{second}.1",
        "while a checkpoint is being written": "checkpoint-3",
    }


def train_and_record(folder: Path, processes: int, place: str) -> list[list[dict[str, Any]]]:
    """Run the training command until its end or kill, and return the records of each process."""
    record = folder.with_name(f"{folder.name}.{place}.record")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
    command = [sys.executable, *(launcher if processes > 1 else [])]
    command += ["-m", "tests.killed_runs", "--worker", str(record), place, *run_flags(folder)]
    ended = subprocess.run(command, env=_environment(folder.parent), capture_output=True, text=True)
    expected = 0 if place == "never" else -9
    if ended.returncode != expected:
        raise RuntimeError(f"Expected status {expected}, got {ended.returncode}, killed at {place}:\n{ended.stderr}")
    return [
        [json.loads(line) for line in Path(f"{record}.{rank}").read_text().splitlines()] for rank in range(processes)
    ]


def _environment(folder: Path) -> dict[str, str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    if environment.pop("PYTHONDONTWRITEBYTECODE", None):  # share compiled bytecode between the processes
        environment["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    return environment


def run_flags(folder: Path) -> list[str]:
    corpus = folder.parent / "corpus"
    options = _RECIPE | {"output_dir": folder, "cache_dir": folder.parent / "cache"}
    for split in ("train", "validation"):
        options |= {f"{split}_source": corpus / f"{split}.en", f"{split}_target": corpus / f"{split}.de"}
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


def describe_row(name: str, uninterrupted: FinishedRun, resumed: FinishedRun) -> dict[str, Any]:
    """Return a row of the table: descriptions, and a bool for each compared item."""
    again = len(resumed.records[-1][0]) // _ACCUMULATION
    begin = {
        "killed": name,
        "processes": len(uninterrupted.records[0]),
        "resumed from update": _UPDATES - again,
    }
    return begin | compare(uninterrupted, resumed)


def compare(uninterrupted: FinishedRun, resumed: FinishedRun) -> dict[str, bool]:
    """Compare two runs bit for bit and return whether each item is equal."""
    folders = uninterrupted.folder, resumed.folder
    states, logs = [_read_state(folder) for folder in folders], [_read_log(folder) for folder in folders]
    models = [_checkpoints(folder) for folder in folders]
    progress = [state["progress"] for state in states]

    def same_file(name: str) -> bool:
        return same_tensors(uninterrupted.folder / name, resumed.folder / name)

    def same_in_checkpoints(name: str) -> bool:
        return models[0] == models[1] and all(same_file(f"{checkpoint}/{name}") for checkpoint in models[0])

    def same_batches(*names: str) -> bool:
        return covers(uninterrupted.columns(*names)[0], resumed.columns(*names))

    return {
        "weights": same_in_checkpoints("model.safetensors"),
        "optimizer": same_in_checkpoints("optimizer.safetensors") and _equal(states, "param_groups"),
        "schedule": _equal(progress, "lr_scheduler") and _rates(logs[0]) == _rates(logs[1]),
        "dropout": same_batches("dropped", "generator_before", "generator_after"),
        "BPE-dropout": same_batches("tokens"),
        "batch order": same_batches("pairs", "epoch") and _equal(progress, "batch_sampler"),
        "average of checkpoints": same_file("model.safetensors"),
        "moving average": same_in_checkpoints("ema.safetensors") and same_file("ema/model.safetensors"),
        "logged steps": logs[0] == logs[1],
    }


def same_tensors(ours: Path, theirs: Path) -> bool:
    """Return whether two safetensors files have the same tensors: names, types, shapes and bytes."""
    first, second = load_file(ours), load_file(theirs)
    return first.keys() == second.keys() and all(_same_bits(first[name], second[name]) for name in first)


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    return one.numpy().tobytes() == other.numpy().tobytes()


def covers(whole: list[list[Any]], parts: list[list[list[Any]]]) -> bool:
    """
    Return whether the records before the kill are the start of the uninterrupted run's records and those after it are
    the end, with no batch missing in between.
    """
    for rank, expected in enumerate(whole):
        first, *rest = (part[rank] for part in parts)
        again = [line for part in rest for line in part]
        if first != expected[: len(first)] or again != expected[len(expected) - len(again) :]:
            return False
        if len(first) + len(again) < len(expected):
            return False
    return True


def _read_state(folder: Path) -> dict[str, Any]:
    return json.loads((folder / _checkpoints(folder)[-1] / "training_state.json").read_text())


def _checkpoints(folder: Path) -> list[str]:
    return sorted((path.name for path in folder.glob("checkpoint-*")), key=lambda name: int(name.split("-")[1]))


def _read_log(folder: Path) -> list[dict[str, Any]]:
    """Read the lines of the metrics without times."""
    entries = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in entry.items() if name not in _TIMES} for entry in entries]


def _rates(log: list[dict[str, Any]]) -> list[Any]:
    return [entry.get("learning_rate") for entry in log]


def _equal(pair: Sequence[dict[str, Any]], name: str) -> bool:
    return pair[0][name] == pair[1][name]


def kill_at_random(folder: Path, processes: int, runs: int, seed: int) -> list[dict[str, Any]]:
    """Kill runs at random moments; return a row for each outcome, with the number of runs that had it.

    Args:
        folder: Folder with the text that [`write_corpus`] writes.
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
        outcomes[kill_and_resume(folder / f"killed-{processes}-{number}", processes, moment, expected)] += 1
    return [
        {"processes": processes, "runs": count, "status": status, "weights": same}
        for (status, same), count in outcomes.items()
    ]


def run_uninterrupted(folder: Path, processes: int) -> float:
    """Train to the end, and return the seconds."""
    started = time.monotonic()
    if wait(start(folder, processes)) != 0:
        raise RuntimeError(f"The uninterrupted run failed:\n{log_of(folder)}")
    return time.monotonic() - started


def kill_and_resume(folder: Path, processes: int, moment: float, expected: Path) -> tuple[int, bool]:
    """Kill a run after `moment` seconds and run it to its end; return its status and whether its weights are equal."""
    pids = start(folder, processes)
    time.sleep(moment)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)  # one that has ended is waited for below, so its number is still its own
    wait(pids)
    status = wait(start(folder, processes))
    if status != 0:
        sys.stderr.write(log_of(folder))
        return status, False
    return 0, all(same_tensors(expected / name, folder / name) for name in _MODELS)


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


def work(arguments: Sequence[str]) -> None:
    """Train, record each batch, and send SIGKILL at one exact place.

    Args:
        arguments: The file of the records, to which the rank is added; the place, which is `2.1` for the moment before
            the first batch of the second update, `checkpoint-3` for the moment while that folder is being written, or
            `never`; and the flags of training.
    """
    record, place, *flags = arguments
    BatchRecord(Path(f"{record}.{os.environ.get('RANK', '0')}"), place).watch()
    if place.startswith("checkpoint-"):
        kill_while_writing(place)
    train(parse_recipe(flags), evaluate=lambda *_, **__: {})


class BatchRecord:
    """Write a line of JSON for each training batch: its pairs, its tokens and its random draws."""

    def __init__(self, path: Path, place: str):
        self.path, self.place = path, place
        self.updates = 0
        self.coming: deque[dict[str, Any]] = deque()
        self.dropped = hashlib.sha256()

    def watch(self) -> None:
        """Wrap the loader of batches and the model's `forward`, and hook torch's dropout."""
        iterate, forward = MicroBatchLoader.__iter__, VanillaTransformerModel.forward

        def recorded_updates(order: MicroBatchLoader) -> Generator[Any, None, None]:
            for update in iterate(order):
                self._expect(order.position.epoch, update)
                yield update

        @functools.wraps(forward)
        def recorded_forward(model: Any, *arguments: Any, **tensors: Any) -> Any:
            return self._record(forward, model, *arguments, **tensors)

        MicroBatchLoader.__iter__ = recorded_updates  # type: ignore[method-assign]
        VanillaTransformerModel.forward = recorded_forward  # type: ignore[method-assign]
        torch.nn.modules.module.register_module_forward_hook(self._add_mask)

    def _expect(self, epoch: int, update: Sequence[MicroBatch]) -> None:
        self.updates += 1
        for number, batch in enumerate(update, start=1):
            place = f"{self.updates}.{number}"
            self.coming.append({"place": place, "epoch": epoch, "pairs": batch.pairs.tolist()})

    def _record(self, forward: Any, model: Any, *arguments: Any, **tensors: Any) -> Any:
        if not model.training:
            return forward(model, *arguments, **tensors)
        line = self.coming.popleft()
        if line.pop("place") == self.place:
            kill_all_processes()
        given = inspect.signature(forward).bind(model, *arguments, **tensors).arguments  # by position or by name
        source = given["inputs_embeds" if given.get("input_ids") is None else "input_ids"]
        line["tokens"] = digest(source, given["decoder_input_ids"])
        line["generator_before"] = digest(torch.get_rng_state())
        self.dropped = hashlib.sha256()
        outputs = forward(model, *arguments, **tensors)
        line |= {"dropped": self.dropped.hexdigest(), "generator_after": digest(torch.get_rng_state())}
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        return outputs

    def _add_mask(self, module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: Any) -> None:
        if isinstance(module, torch.nn.Dropout) and module.training:
            self.dropped.update(np.packbits(((output == 0) & (inputs[0] != 0)).numpy()).tobytes())


def digest(*tensors: torch.Tensor) -> str:
    """Return a hash of the shapes and values of tensors."""
    content = hashlib.sha256()
    for tensor in tensors:
        content.update(str(tuple(tensor.shape)).encode() + tensor.numpy(force=True).tobytes())
    return content.hexdigest()


def kill_while_writing(checkpoint: str) -> None:
    """Kill the run when it opens the last file of a checkpoint: that file is empty, the others are complete."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or "w" not in str(arguments[1]):
            return
        path = Path(str(arguments[0]))
        if path.name == HASHES_FILE and path.parent.name.startswith(f".{checkpoint}."):
            kill_all_processes()

    sys.addaudithook(hook)


def kill_all_processes() -> None:
    """Send SIGKILL to the launcher, if any, which would stop the other processes in order, to these, and to itself."""
    this = psutil.Process()
    launched = "TORCHELASTIC_RUN_ID" in os.environ
    launcher = this.parent() if launched else None
    others = [] if launcher is None else [launcher, *(child for child in launcher.children() if child != this)]
    for process in [*others, this]:
        process.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill training runs at random moments and resume them.")
    parser.add_argument("runs", type=int, help="number of runs to kill")
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2], help="numbers of processes of the runs")
    options = parser.parse_args()
    if options.runs < len(options.processes):
        parser.error(f"runs must be {len(options.processes)} or more, one for each number of processes")
    equal = True
    with tempfile.TemporaryDirectory(prefix="killed-runs-") as folder:
        write_corpus(Path(folder))
        for processes in options.processes:
            for row in kill_at_random(Path(folder), processes, options.runs // len(options.processes), options.seed):
                sys.stdout.write(f"{json.dumps(row)}\n")
                sys.stdout.flush()
                equal = equal and row["weights"]
    return 0 if equal else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        work(sys.argv[2:])
    else:
        sys.exit(main())
