"""
Measure startup time and memory: imports, `--help` of commands, and the first translation compared with the second.

    python -m benchmarks.bench_startup [FOLDER]

FOLDER is a trained model; by default a small model with random weights. Each measurement is a separate process.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.bench_service import save_random_model
from benchmarks.harness import ROOT, BenchmarkArguments, read_arguments, write_report
from vanilla_transformer.cli import run

_TRANSLATE = """
import sys, time, vanilla_transformer
from transformers import pipeline
translate = pipeline("translation", model=sys.argv[1])
for _ in range(2):
    started = time.perf_counter()
    translate("The old woman buys a red apple.", max_new_tokens=16)
    print(time.perf_counter() - started)
"""
_PEAK = "; from benchmarks.harness import peak_bytes; print(peak_bytes() / 2**20)"
STATEMENTS = [f"import {name}" for name in ("torch", "transformers", "vanilla_transformer")]
STATEMENTS.append("from vanilla_transformer import TranslationPipeline")
COMMANDS = (["--help"], ["train", "--help"], ["translate", "--help"], ["serve", "--help"])


@dataclass
class StartupArguments(BenchmarkArguments):
    """Number of rounds."""

    SHORT: ClassVar[dict[str, Any]] = {"rounds": 1}

    rounds: int = field(default=5, metadata={"help": "Rounds of each measurement; the best counts."})


def main(arguments: Sequence[str]) -> None:
    folders, options = read_arguments(StartupArguments, arguments, "bench_startup FOLDER", (0, 1))
    with tempfile.TemporaryDirectory() as made:
        folder = Path(folders[0]).absolute() if folders else save_random_model(Path(made))
        write_report("startup", options, measure(folder, options.rounds))


def measure(folder: Path, rounds: int) -> list[dict[str, Any]]:
    """Return the best seconds and the peak memory of each program."""
    rows = []
    for statement in STATEMENTS:
        found = [_run(["-c", statement + _PEAK]) for _ in range(rounds)]
        seconds, printed = min(found)
        rows.append({"what": f"`{statement}`", "seconds": seconds, "peak memory, MiB": float(printed)})
    for words in COMMANDS:
        seconds = min(_run(["-m", "vanilla_transformer", *words])[0] for _ in range(rounds))
        rows.append({"what": f"`vanilla-transformer {' '.join(words)}`", "seconds": seconds})
    printed_lines = [_run(["-c", _TRANSLATE + _PEAK[2:], str(folder)])[1].split() for _ in range(rounds)]
    first, second, peak = (min(map(float, values)) for values in zip(*printed_lines, strict=True))
    rows.append({"what": "first translation", "seconds": first, "peak memory, MiB": peak})
    rows.append({"what": "second translation", "seconds": second, "peak memory, MiB": peak})
    return rows


def _run(words: Sequence[str]) -> tuple[float, str]:
    """Run a program and return its seconds and what it printed."""
    started = time.perf_counter()
    ended = subprocess.run([sys.executable, *words], check=True, capture_output=True, text=True, cwd=ROOT)
    return time.perf_counter() - started, ended.stdout


if __name__ == "__main__":
    sys.exit(run(main))
