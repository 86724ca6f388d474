"""Shared by the parts of `bench_gpu`: the device, rows of results that survive a kill, and timing."""

import gc
import json
import platform
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import torch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ON_GPU = DEVICE.type == "cuda"
# Peak of dense products in bf16, in FLOP/s, by a part of the device's name.
_PEAKS = {"H200": 989e12, "H100 80GB HBM3": 989e12}


class Rows:
    """Append each row to a file as soon as it is measured, and print it with the time since the part began.

    Args:
        path: The file, with one JSON object in each line.
        part: Name of the part, for the printed lines.
    """

    def __init__(self, path: str | Path, part: str):
        self._path, self._part, self._started = Path(path), part, time.monotonic()

    def add(self, **row: Any) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        values = ", ".join(f"{name} {value}" for name, value in row.items() if value is not None)
        print(f"{self._part} [{time.monotonic() - self._started:5.1f} s] {values}", file=sys.stderr, flush=True)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a file, without a truncated last line."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def describe_device() -> dict[str, str]:
    """Return the names of the device and the releases that a figure depends on."""
    name = torch.cuda.get_device_name() if ON_GPU else f"no GPU ({platform.machine()})"
    releases = {name: version(name) for name in ("torch", "transformers")}
    return {"device": name, "cuda": torch.version.cuda or "none", "python": platform.python_version(), **releases}


def model_flops_utilization(parameters: int, pairs_per_second: float, device: str) -> float | None:
    """Return the share of a device's peak in bf16 that training uses, or None if the peak is not known.

    Each pair of a source and a target token takes 6 operations for each parameter. Tied embeddings count once.
    """
    peak = _peak(device)
    return None if peak is None else 6 * parameters * pairs_per_second / peak


def describe_utilization(parameters: int, pairs_per_second: float, device: str) -> str | None:
    """Return the formula of `model_flops_utilization` with its numbers, or None if the peak is not known."""
    peak = _peak(device)
    return None if peak is None else f"6 × {parameters:,} × {pairs_per_second:,.0f} / {peak:.4g}"


def _peak(device: str) -> float | None:
    return next((peak for name, peak in _PEAKS.items() if name in device), None)


def judge(
    row: dict[str, Any], at_least: Mapping[str, float] | None = None, at_most: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """Return a row with its goals, if it has any, and whether all of them that it has a number for are met."""
    goals = {"at_least": dict(at_least or {}), "at_most": dict(at_most or {})}
    reached = [row[name] >= goal for name, goal in goals["at_least"].items() if row.get(name) is not None]
    reached += [row[name] <= goal for name, goal in goals["at_most"].items() if row.get(name) is not None]
    given = {kind: values for kind, values in goals.items() if values}
    return row | given | ({"met": bool(reached) and all(reached)} if given else {})


def synchronize() -> None:
    """Wait until the device has computed everything."""
    if ON_GPU:
        torch.cuda.synchronize()


def median_seconds(function: Callable[[], Any], warm_ups: int = 2, least: int = 3, most: int = 10) -> float:
    """Return the median time of a function after warm-up calls: of `least` rounds, or more of short ones."""
    for _ in range(warm_ups):
        function()
    seconds: list[float] = []
    while len(seconds) < least or (len(seconds) < most and sum(seconds) < 1.0):
        synchronize()
        started = time.perf_counter()
        function()
        synchronize()
        seconds.append(time.perf_counter() - started)
    return median(seconds)


def first_line(error: BaseException) -> str:
    """Return an error as one short line for a table."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}"[:120] if lines else type(error).__name__


def is_out_of_memory(error: BaseException | None) -> bool:
    """Tell whether an error, or one that it was raised from, is the device's lack of memory."""
    return error is not None and (isinstance(error, torch.OutOfMemoryError) or is_out_of_memory(error.__cause__))


def release_memory() -> None:
    """Return unused memory to the device, so that one measurement does not limit the next one."""
    gc.collect()
    if ON_GPU:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
