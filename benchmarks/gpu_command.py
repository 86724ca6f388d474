"""The command `train` in its own process, watched by the metrics that it writes, for parts of `bench_gpu`."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from benchmarks.gpu_rows import Rows, first_line, judge
from vanilla_transformer.training.metrics import read_entries

Entries = list[dict[str, Any]]
FIRST_START, SECOND_START = "first logged steps, empty caches", "first logged steps, second run"
# The command needs all requirements of the package, and `make gpu PYTHON=python3` may have fewer.
_REQUIREMENTS = ("datasets", "sacrebleu", "sentencepiece")
_SECONDS_BETWEEN_LOOKS = 0.1
_MARGIN = 15.0  # seconds of a part for imports before, and for deleting files after its measurements


def check_packages() -> None:
    """Check that this interpreter has the packages of the command.

    Raises:
        OSError: it lacks packages, which the text names.
    """
    missing = [name for name in _REQUIREMENTS if find_spec(name) is None]
    if missing:
        raise OSError(f"`train` needs {', '.join(missing)}, which {sys.executable} does not have")


def end_of_measurements(seconds: float) -> float:
    """Return the time of `time.monotonic` at which a part that takes some seconds must have measured everything."""
    return time.monotonic() + seconds - _MARGIN


class RunRows:
    """
    Add the rows of a run as soon as they are measured, with their goals, and count failures.

    Args:
        run: The run's name.
        goals: Keywords of [`judge`] by the measurement.
    """

    def __init__(self, rows: Rows, run: str, goals: Mapping[str, Mapping[str, Any]]):
        self._rows, self._run, self._goals, self.failed = rows, run, goals, 0

    def add(self, measured: str, unit: str, measure: Callable[[], dict[str, Any]]) -> bool:
        """Add the row that a function returns, with a `value` in this unit, or its error; return whether it has one.

        A lack of time is no failure.
        """
        row: dict[str, Any] = {"run": self._run, "measured": measured, "unit": unit}
        try:
            row |= measure()
        except Exception as error:  # of the command, a library or the driver: the other rows are measured
            row["error"] = first_line(error)
            self.failed += not isinstance(error, TimeoutError)
        self._rows.add(**judge(row, **self._goals.get(measured, {})))
        return "error" not in row

    def skip(self, reason: str) -> None:
        """Add a row that says why nothing is measured."""
        self._rows.add(run=self._run, measured="all", error=f"skipped: {reason}")


class TrainCommand:
    """
    Run `vanilla-transformer train` within a `with` block, at whose end it is killed if it still runs.

    Args:
        words: The recipe and flags, without `output_dir`.
        output_dir: The run's folder.
        caches: Folder of the code that torch and Triton compile; an empty one is that of a fresh machine.
    """

    def __init__(self, words: Sequence[str], output_dir: Path, caches: Path):
        self.output_dir, self._log = output_dir, output_dir.with_suffix(".log")
        folders = {"TORCHINDUCTOR_CACHE_DIR": caches / "inductor", "TRITON_CACHE_DIR": caches / "triton"}
        for folder in folders.values():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        command = [sys.executable, "-m", "vanilla_transformer", "train", *words, "--output_dir", str(output_dir)]
        environment = os.environ | {name: str(folder) for name, folder in folders.items()}
        self._started = time.monotonic()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: Any) -> None:
        self._process.kill()  # its workers end with it
        self._process.wait()

    @property
    def seconds(self) -> float:
        """The seconds since the start."""
        return time.monotonic() - self._started

    def step_entries(self) -> Entries:
        """Return the logged steps so far."""
        return [entry for entry in read_entries(self.output_dir) if "tokens_per_second" in entry]

    def wait(self, end: float, until: Callable[[Entries], bool] | None = None) -> bool:
        """Wait for the end of the command, or until a condition holds for the logged steps.

        Args:
            end: A time of `time.monotonic` at which waiting ends.

        Returns:
            Whether the command has ended, or the condition holds.

        Raises:
            RuntimeError: the command failed; the text is its last line.
        """
        while True:
            status = self._process.poll()
            if until is not None and until(self.step_entries()):
                return True
            if status:
                lines = self._log.read_text(encoding="utf-8", errors="replace").split("\n")
                raise RuntimeError(next((line for line in reversed(lines) if line.strip()), f"status {status}"))
            if status is not None or time.monotonic() > end:
                return status is not None and until is None
            time.sleep(_SECONDS_BETWEEN_LOOKS)

    def measure_start(self, end: float) -> dict[str, Any]:
        """Wait for the first logged steps, and return the seconds until then, and since the model was created.

        Raises:
            RuntimeError: the command failed.
            TimeoutError: no step was logged in time.
        """
        if not self.wait(end, until=bool):
            raise TimeoutError(f"no step was logged in {self.seconds:.0f} s")
        seconds, first = self.seconds, self.step_entries()[0]
        return {"value": round(seconds, 1), "compile_seconds": round(60 * first["minutes"], 1), "step": first["step"]}


def steady_entries(entries: Entries, minutes: float) -> Entries:
    """Return the logged steps after the first minutes of a run, or its second half if it is too short.

    Raises:
        ValueError: there are fewer than two.
    """
    later = [entry for entry in entries if entry["minutes"] >= minutes]
    chosen = later if len(later) > 1 else entries[len(entries) // 2 - 1 :]
    if len(entries) < 2:
        raise ValueError(f"a rate needs two lines of the log, got {len(entries)}")
    return chosen


def rates(entries: Entries) -> dict[str, float]:
    """Return seconds, steps, steps per second and target tokens per second from the first to the last logged step.

    The time includes validations, checkpoints and waiting for batches.
    """
    minutes = [entry["minutes"] for entry in entries]
    seconds, steps = 60 * (minutes[-1] - minutes[0]), entries[-1]["step"] - entries[0]["step"]
    # Each line has the mean rate since the line before it.
    intervals = [60 * (later - earlier) for earlier, later in zip(minutes, minutes[1:], strict=False)]
    tokens = sum(entry["tokens_per_second"] * each for entry, each in zip(entries[1:], intervals, strict=True))
    return {
        "seconds": round(seconds, 1),
        "steps": steps,
        "steps_per_second": round(steps / seconds, 2),
        "tokens_per_second": round(tokens / seconds),
    }
