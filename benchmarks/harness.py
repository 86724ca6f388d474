"""Shared by all benchmarks: worker processes, growth exponents, the machine's description, and files of results."""

import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from statistics import linear_regression
from typing import Any

ROOT = Path(__file__).parents[1]
# For workers that measure memory: glibc allocates each larger tensor on separate pages, which it returns to the
# system when the tensor is freed. Otherwise free blocks between live tensors count as resident memory.
RELEASE_FREED_PAGES = {"MALLOC_MMAP_THRESHOLD_": "32768"}


def run_command(command: Sequence[str], name: str, environment: Mapping[str, str], text: str | None = None) -> str:
    """
    Run a command with `text` as its standard input and return its standard output.

    Raises:
        RuntimeError: the command failed; the message ends with its standard error.
    """
    ended = subprocess.run(command, env={**os.environ, **environment}, input=text, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"{name} ended with status {ended.returncode}:\n{ended.stderr[-3000:]}")
    return ended.stdout


def run_worker(
    worker: str,
    request: Mapping[str, Any],
    name: str | None = None,
    environment: Mapping[str, str] | None = None,
    python: Path | str = sys.executable,
) -> dict[str, float]:
    """
    Run the module `benchmarks.{worker}` in its own process, on the CPU, and return the JSON of its last output line.

    Args:
        worker: Name of the module. Its only argument is `request` as JSON.
        name: Name of the measurement in error messages, by default the request.
        environment: Variables of the process, on top of this one's.
        python: Interpreter, for workers that run in another toolkit's environment.
    """
    text = json.dumps(request)
    variables = {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", **(environment or {})}
    output = run_command([str(python), "-m", f"benchmarks.{worker}", text], name or text, variables)
    return json.loads(output.splitlines()[-1])


def growth_exponent(points: Iterable[tuple[float, float]]) -> float:
    """Return the exponent a of the power law `y = b * x**a`, fitted by least squares to the logarithms of x and y."""
    logs = [(math.log(x), math.log(y)) for x, y in points]
    return linear_regression(*zip(*logs, strict=True)).slope


def describe_machine() -> dict[str, Any]:
    """Return the CPU's name, the number of cores, and the versions of Python and the libraries."""
    packages = {name: version(name) for name in ("torch", "transformers", "accelerate")}
    return {"cpu": cpu_name(), "cores": os.cpu_count(), "python": platform.python_version(), **packages}


def cpu_name() -> str:
    """Return the CPU's model name as the system knows it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def describe_processor() -> str:
    """Return the CPU's name and the instruction sets that matter here, the date, and the load before a benchmark."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    flags = next((line.split() for line in lines if line.startswith("flags")), [])  # other processors have none
    sets = [
        name for name in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8") if name in flags
    ]
    load = f"load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "load unknown"
    return f"{cpu_name()}, {os.cpu_count()} cores ({', '.join(sets) or 'unknown'}); {date.today()}, {load}"


def progress(message: str) -> None:
    """Print a line to standard error at once."""
    print(message, file=sys.stderr, flush=True)


def write_curves(
    name: str,
    words: Sequence[str],
    options: Any,
    known: Iterable[str],
    measure: Callable[[str], list[dict[str, Any]]],
    markdown: Callable[[str, list[dict[str, Any]]], list[str]],
    draw: Callable[[dict[str, Any], Path], None],
) -> None:
    """
    Measure the curves in `options.curves` (names separated by commas) and write their tables, JSON and picture.

    Raises:
        ValueError: a curve is unknown, or there are words besides the flags.
    """
    names = options.curves.split(",")
    if words or not set(names) <= set(known):
        raise ValueError(f"`curves` must be of {', '.join(known)}, got {options.curves!r}.")
    found = {curve: measure(curve) for curve in names}
    lines = (line for curve, points in found.items() for line in markdown(curve, points))
    write_results(options.output_dir, name, found, lines)
    draw(found, Path(options.output_dir, f"{name}.png"))


def write_results(output_dir: str, name: str, report: Any, lines: Iterable[str]) -> None:
    """Write `name.json` and `name.md` to `output_dir` and print the Markdown."""
    output = Path(output_dir)
    output.mkdir(parents=True, exist_ok=True)
    (output / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    table = "\n".join(lines) + "\n"
    (output / f"{name}.md").write_text(table, encoding="utf-8")
    print(table, end="")
