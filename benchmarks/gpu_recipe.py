"""
The part `recipe` of `bench_gpu`: the command `train multi30k_en_de`, from its start to its final model.

    python -m benchmarks.gpu_recipe recipe ROWS SECONDS [FOLDER]

`FOLDER` has the text of Multi30k, by default data/multi30k, which is downloaded if it does not exist. The run begins
with empty caches. Measured are the seconds to its first logged steps, the whole run, its steps per second after the
first minute, the seconds to the first logged steps of a second run, and validations by the final model. Each row is
written as soon as it is measured. The exit status is 1 if the package failed; without text, network or packages the
part is skipped, which a row says.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, Self

from benchmarks.gpu_report import DEVICE, ON_GPU, Rows, first_line, judge, synchronize
from benchmarks.harness import ROOT
from vanilla_transformer.data.download import download_corpus
from vanilla_transformer.resources import find_recipe
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


RECIPE, CORPUS = "multi30k_en_de", "multi30k"
_FILES = {"train": "train", "validation": "val", "test": "test_2016_flickr"}
_SIDES = (("source", "en"), ("target", "de"))
TRAINING, WHOLE_RUN, VALIDATION = "training", "whole run", "validation"
_SPARE = 45.0  # seconds for a second start and the validations
_VALIDATIONS = 3


class Setting(NamedTuple):
    """Changes of the recipe, the minutes before its rate is measured, and the goals by row."""

    changes: dict[str, str]
    minutes: float
    goals: dict[str, dict[str, Any]]


GOALS: dict[str, dict[str, Any]] = {
    FIRST_START: {"at_most": {"compile_seconds": 60}},
    TRAINING: {"at_least": {"value": 120}},
    WHOLE_RUN: {"at_most": {"value": 240}},
    SECOND_START: {"at_most": {"compile_seconds": 10}},
    VALIDATION: {"at_most": {"value": 1}},
}
_SIZES = {"layers": "1", "attention_heads": "2", "ffn_dim": "16"}
_TINY = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in _SIZES.items()}
_TINY |= {"d_model": "16", "vocab_size": "300", "max_tokens": "300", "warmup_steps": "10", "max_steps": "12"}
_TINY |= {"logging_steps": "2", "eval_steps": "6", "save_steps": "6", "mixed_precision": "no"}
TINY = Setting(_TINY, 0.0, {})
SETTING = Setting({}, 1.0, GOALS) if ON_GPU else TINY


def measure_run(rows: RunRows, text: Path, folder: Path, end: float, setting: Setting) -> None:
    """Run the command with the text of a folder twice, in another folder, and measure each row."""
    flags = {f"{part}_{side}": str(text / f"{_FILES[part]}.{ending}") for part in _FILES for side, ending in _SIDES}
    flags |= {"cache_dir": str(folder / "cache")} | setting.changes
    words = [str(find_recipe(RECIPE)), *(word for name in flags for word in (f"--{name}", flags[name]))]
    first, caches, end_of_first = folder / "first", folder / "compiled", end - _SPARE
    with TrainCommand(words, first, caches) as command:
        if not rows.add(FIRST_START, "s", lambda: command.measure_start(end_of_first)):
            return
        finished = rows.add(WHOLE_RUN, "s", lambda: _finish(command, end_of_first))
        rows.add(TRAINING, "steps/s", lambda: _measure_rate(command, setting.minutes))
    with TrainCommand(words, folder / "second", caches) as command:
        rows.add(SECOND_START, "s", lambda: command.measure_start(end))
    if finished:
        rows.add(VALIDATION, "s", lambda: measure_validation(first, words, text))


def _finish(command: TrainCommand, end: float) -> dict[str, Any]:
    if not command.wait(end):
        raise TimeoutError(f"the run did not end in {command.seconds:.0f} s")
    return {"value": round(command.seconds, 1)}


def _measure_rate(command: TrainCommand, minutes: float) -> dict[str, Any]:
    found = rates(steady_entries(command.step_entries(), minutes))
    return {"value": found["steps_per_second"]} | found


def measure_validation(folder: Path, words: list[str], text: Path) -> dict[str, Any]:
    """Return the median seconds of greedy validations by a model on all validation pairs, as training makes them."""
    from transformers import AutoTokenizer

    from vanilla_transformer import VanillaTransformerForConditionalGeneration
    from vanilla_transformer.data.readers import read_text_files
    from vanilla_transformer.device_utils import without_cudnn_attention
    from vanilla_transformer.evaluation.scores import validation_scores
    from vanilla_transformer.training.recipe import parse_recipe
    from vanilla_transformer.training.setup import create_accelerator
    from vanilla_transformer.training.validation import Validation

    recipe = parse_recipe([*words, "--output_dir", str(folder)])
    model = VanillaTransformerForConditionalGeneration.from_pretrained(folder).to(DEVICE)
    pairs = read_text_files(text / "val.en", text / "val.de")
    accelerator, max_tokens = create_accelerator(recipe), recipe.data.max_tokens
    tokenizer = AutoTokenizer.from_pretrained(folder)
    validation = Validation(pairs, tokenizer, validation_scores, accelerator, max_tokens)
    seconds = []
    with without_cudnn_attention():
        for _ in range(1 + _VALIDATIONS):
            synchronize()
            started = time.perf_counter()
            scores = validation.measure(model, num_beams=1)
            synchronize()
            seconds.append(time.perf_counter() - started)
    row = {"value": round(median(seconds[1:]), 3), "first_seconds": round(seconds[0], 3), "pairs": len(pairs)}
    return row | {"bleu": round(scores["bleu"], 2)}


def find_text(folder: str | None) -> Path:
    """Return the folder of the text, after downloading it if none is given and data/multi30k does not exist.

    Raises:
        OSError: it cannot be downloaded.
        ValueError: a downloaded file is damaged.
    """
    own = Path(folder) if folder is not None else ROOT / "data" / CORPUS
    return own if own.is_dir() or folder is not None else download_corpus(CORPUS, own)


def main(rows_file: str, seconds: float, text: str | None = None) -> int:
    rows, end = RunRows(Rows(rows_file, "recipe"), RECIPE, SETTING.goals), end_of_measurements(seconds)
    try:
        check_packages()
        found = find_text(text)
    except (OSError, ValueError) as error:
        rows.skip(str(error))
        return 0
    with tempfile.TemporaryDirectory(prefix="gpu-recipe-", ignore_cleanup_errors=True) as folder:
        measure_run(rows, found, Path(folder), end, SETTING)
    return int(rows.failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[2], float(sys.argv[3]), *sys.argv[4:]))
