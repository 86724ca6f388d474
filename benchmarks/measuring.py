"""What the benchmarks share: a process for each measurement, and the files of results."""

import json
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any


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


def write_results(output_dir: str, name: str, report: Any, lines: Iterable[str]) -> None:
    """Writes NAME.json and NAME.md, and prints the latter."""
    output = Path(output_dir)
    output.mkdir(parents=True, exist_ok=True)
    (output / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    table = "\n".join(lines) + "\n"
    (output / f"{name}.md").write_text(table, encoding="utf-8")
    print(table, end="")
