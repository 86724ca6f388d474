"""What the benchmarks share: a process for each measurement, how it grows, and the files of results."""

import json
import math
import os
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import linear_regression
from typing import Any

# For a process whose memory is measured: a larger tensor has pages of its own, which go when it goes. Free places
# between others would count as taken.
OWN_PAGES = {"MALLOC_MMAP_THRESHOLD_": "32768"}


def run_apart(command: Sequence[str], name: str, environment: Mapping[str, str], text: str | None = None) -> str:
    """
    The standard output of a command, which gets `text` as its input.

    Raises:
        RuntimeError: it failed.
    """
    ended = subprocess.run(command, env={**os.environ, **environment}, input=text, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"{name} ended with status {ended.returncode}:\n{ended.stderr[-3000:]}")
    return ended.stdout


def measure_apart(command: Sequence[str], name: str, environment: Mapping[str, str]) -> dict[str, float]:
    """What a command prints as JSON, in its last line."""
    return json.loads(run_apart(command, name, environment).splitlines()[-1])


def exponent(points: Iterable[tuple[float, float]]) -> float:
    """The power with which y grows with x, both above 0, by least squares of their logarithms."""
    logs = [(math.log(x), math.log(y)) for x, y in points]
    return linear_regression(*zip(*logs, strict=True)).slope


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
    Measures the `curves` of the options, names with commas, and writes their tables, JSON and picture.

    Raises:
        ValueError: one of them is not known, or words stand beside the flags.
    """
    names = options.curves.split(",")
    if words or not set(names) <= set(known):
        raise ValueError(f"`curves` must be of {', '.join(known)}, got {options.curves!r}.")
    found = {curve: measure(curve) for curve in names}
    lines = (line for curve, points in found.items() for line in markdown(curve, points))
    write_results(options.output_dir, name, found, lines)
    draw(found, Path(options.output_dir, f"{name}.png"))


def write_results(output_dir: str, name: str, report: Any, lines: Iterable[str]) -> None:
    """Writes NAME.json and NAME.md, and prints the latter."""
    output = Path(output_dir)
    output.mkdir(parents=True, exist_ok=True)
    (output / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    table = "\n".join(lines) + "\n"
    (output / f"{name}.md").write_text(table, encoding="utf-8")
    print(table, end="")
