"""
Test that a resumed run equals an uninterrupted one: kill runs at exact places, resume them, and compare bit for bit.

    python -m benchmarks.bench_resume
    python -m benchmarks.bench_resume --processes 1 2 4 --output resume.md

Trains a tiny model on generated text with dropout, BPE-dropout, gradient accumulation and EMA, in separate processes,
and prints a Markdown table with a row for each place and number of processes. The exit status is 1 if an item differs.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from benchmarks.harness import ROOT, progress
from vanilla_transformer.cli import run
from vanilla_transformer.cli.arguments import parse
from vanilla_transformer.data.demo_corpus import write_demo_corpus

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


@dataclass
class BenchmarkArguments:
    """Numbers of processes and the output file."""

    processes: list[int] = field(default_factory=lambda: [1, 2], metadata={"help": "Numbers of processes to test."})
    output: str | None = field(default=None, metadata={"help": "Write the Markdown table to this file, too."})


@dataclass
class FinishedRun:
    """The folder of a run and the records of its processes, before and after the kill."""

    folder: Path
    records: list[list[list[dict[str, Any]]]]  # indexed by part of the run, process, batch

    def columns(self, *names: str) -> list[list[list[Any]]]:
        """Return the named fields of each batch."""
        return [[[[line[name] for name in names] for line in process] for process in part] for part in self.records]


def main(arguments: Sequence[str]) -> None:
    words, options = parse(BenchmarkArguments, arguments, "bench_resume.py [--flags]")
    if words:
        raise ValueError(f"This command takes only flags, got {words[0]!r}.")
    if min(options.processes) < 1:
        raise ValueError(f"`processes` must be at least 1, got {min(options.processes)}.")
    rows = []
    with tempfile.TemporaryDirectory(prefix="resuming-") as folder:
        write_demo_corpus(Path(folder) / "corpus", train=120, validation=8, test=1)
        for processes in options.processes:
            rows += compare_places(Path(folder), processes)
    table = "\n".join(markdown(rows)) + "\n"
    print(table, end="")
    if options.output is not None:
        Path(options.output).write_text(table, encoding="utf-8")
    if any(not same for row in rows for same in row.values() if isinstance(same, bool)):
        sys.exit(1)


def compare_places(folder: Path, processes: int) -> list[dict[str, Any]]:
    """Kill and resume a run at each place; return a row for each."""
    uninterrupted_folder = folder / f"uninterrupted-{processes}"
    uninterrupted = FinishedRun(uninterrupted_folder, [train(uninterrupted_folder, processes, "never")])
    rows = []
    for number, (name, place) in enumerate(places(uninterrupted).items()):
        progress(f"Processes: {processes}. Killed {name} ...")
        resumed_folder = folder / f"killed-{processes}-{number}"
        parts = [train(resumed_folder, processes, place), train(resumed_folder, processes, "never")]
        rows.append(describe_row(name, uninterrupted, FinishedRun(resumed_folder, parts)))
    return rows


def places(uninterrupted: FinishedRun) -> dict[str, str]:
    """Return descriptions of the kills with the argument of `resume_worker`. Updates and batches count from 1."""
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


def train(folder: Path, processes: int, place: str) -> list[list[dict[str, Any]]]:
    """Run the training command until its end or kill, and return the records of each process."""
    record = folder.with_name(f"{folder.name}.{place}.record")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
    command = [sys.executable, *(launcher if processes > 1 else [])]
    command += ["-m", "benchmarks.resume_worker", str(record), place, *run_flags(folder)]
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
        "processes": str(len(uninterrupted.records[0])),
        "resumed from update": f"{_UPDATES - again}",
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


def markdown(rows: list[dict[str, Any]]) -> list[str]:
    words = {True: "equal", False: "**DIFFERS**"}
    cells = [[words[value] if isinstance(value, bool) else value for value in row.values()] for row in rows]
    return [f"| {' | '.join(row)} |" for row in (list(rows[0]), ["---"] * len(rows[0]), *cells)]


if __name__ == "__main__":
    sys.exit(run(main))
