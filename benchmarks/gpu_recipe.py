"""
The part `recipe` of `bench_gpu`: the command `train multi30k_en_de`, from its start to its final model.

    python -m benchmarks.gpu_recipe ROWS SECONDS [FOLDER]

`FOLDER` has the text of Multi30k, by default data/multi30k, which is downloaded if it does not exist. The run begins
with empty caches. Measured are the seconds to its first logged steps, the whole run, its steps per second after the
first minute, the seconds to the first logged steps of a second run, and validations by the final model. Each row is
written as soon as it is measured. The exit status is 1 if the package failed; without text, network or packages the
part is skipped, which a row says.
"""

import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.gpu_command import (
    FIRST_START,
    SECOND_START,
    RunRows,
    TrainCommand,
    check_packages,
    end_of_measurements,
    rates,
    steady_entries,
)
from benchmarks.gpu_rows import DEVICE, ON_GPU, Rows, synchronize
from benchmarks.harness import ROOT
from vanilla_transformer.data.download import download_corpus
from vanilla_transformer.resources import find_recipe

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
    sys.exit(main(sys.argv[1], float(sys.argv[2]), *sys.argv[3:]))
