"""What a run records of itself: sums over updates, lines of `metrics.jsonl`, and one line for people."""

import json
import math
import resource
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch

from vanilla_transformer.file_utils import write_text_atomically

METRICS_FILE = "metrics.jsonl"


class UpdateSums(NamedTuple):
    """Sums over the batches of one update, in all processes: losses in nats, tokens of both sides."""

    plain_loss: float
    smoothed_loss: float
    target_tokens: float
    tokens: float
    padded_tokens: float


class StepLog:
    """Sums over the updates since it was last read."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._sums = [0.0] * len(UpdateSums._fields)
        self._since = time.monotonic()

    def state_dict(self) -> dict[str, Any]:
        return {"sums": self._sums, "seconds": time.monotonic() - self._since}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._sums, self._since = state["sums"], time.monotonic() - state["seconds"]

    def add(self, update: UpdateSums) -> None:
        """Counts one update."""
        self._sums = [total + value for total, value in zip(self._sums, update, strict=True)]

    def pop(self) -> dict[str, float]:
        """
        Losses in nats a target token, perplexity, target tokens a second, and the share of padding in both sides'
        tokens.
        """
        sums = UpdateSums(*self._sums)
        loss = sums.plain_loss / sums.target_tokens
        entry = {
            "loss": loss,
            "smoothed_loss": sums.smoothed_loss / sums.target_tokens,
            "perplexity": math.exp(min(loss, 100.0)),
            "tokens_per_second": sums.target_tokens / (time.monotonic() - self._since),
            "padding": 1.0 - sums.tokens / sums.padded_tokens,
        }
        self._reset()
        return entry


def peak_memory_gib(device: torch.device) -> float:
    """Most memory in use so far: of the GPU where there is one, of the process otherwise, in GiB."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    status = Path("/proc/self/status")
    if status.exists():  # what `getrusage` gives is at least what the parent process had when it started this one
        lines = status.read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**20  # KiB
    unit = 1 if sys.platform == "darwin" else 2**10  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def append_entry(folder: Path, entry: dict[str, Any]) -> None:
    """Adds a line to the metrics of a run."""
    with (folder / METRICS_FILE).open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")


def read_entries(folder: Path) -> list[dict[str, Any]]:
    """The lines of the metrics; one that was cut off at the end is left out."""
    path = folder / METRICS_FILE
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def forget_entries_after(folder: Path, step: int) -> None:
    """Takes out what was logged behind update `step`, which a run that goes on from there logs again."""
    kept = [json.dumps(entry) + "\n" for entry in read_entries(folder) if entry["step"] <= step]
    write_text_atomically(folder / METRICS_FILE, "".join(kept))


def describe(entry: dict[str, Any]) -> str:
    """One line for people: names and values of an entry of the metrics."""
    values = {name: f"{value:.2f}" if isinstance(value, float) else str(value) for name, value in entry.items()}
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in values.items())
