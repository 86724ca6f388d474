"""
The parts `recipe` and `corpus` of `bench_gpu`: the command `train`, on Multi30k and on a text of
the size of WMT14.

    python -m benchmarks.gpu_train_command recipe ROWS SECONDS [FOLDER]
    python -m benchmarks.gpu_train_command corpus ROWS SECONDS

Recipe: `train multi30k_en_de`, from its start to its final model. `FOLDER` has the text of
Multi30k, by default data/multi30k, which is downloaded if it does not exist. Measured are the
seconds to its first logged steps, the whole run, its steps per second after the first minute, the
seconds to the first logged steps of a second run, and validations by the final model.

Corpus: `train wmt14_en_de_base` on generated text of the lengths of WMT14, with a tokenizer of
32,000 words and a checkpoint every two minutes. The run takes the time that is left, up to ten
minutes from its first logged steps. Its rate, validations and checkpoints included, is compared
with the rate of updates on batches that are ready, of the same model in this process. Then a second
run starts.

Each run begins with empty caches. Each row is written as soon as it is measured. The exit status is
1 if the package failed; without text, network or packages a part is skipped, which a row says.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, BinaryIO, NamedTuple, Self

import numpy as np
import yaml
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from benchmarks.gpu_report import (
    DEVICE,
    ON_GPU,
    Rows,
    first_line,
    judge,
    release_memory,
    synchronize,
)
from benchmarks.gpu_training import (
    OURS,
    SETTING,
    TINY_MODELS,
    TINY_SETTING,
    Setting,
    measure_ours,
    mfu_cells,
)
from benchmarks.harness import ROOT
from vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.data.download import download_corpus
from vanilla_transformer.files.resources import find_recipe
from vanilla_transformer.training.metrics import read_entries

Entries = list[dict[str, Any]]
FIRST_START, SECOND_START = "first logged steps, empty caches", "first logged steps, second run"
# The command needs all requirements of the package, and `make gpu PYTHON=python3` may have fewer.
_REQUIREMENTS = ("datasets", "sacrebleu", "sentencepiece")
_SECONDS_BETWEEN_LOOKS = 0.1
# Seconds of a part for imports before its measurements, and for deleting files after them
_MARGIN = 15.0


def check_packages() -> None:
    """Check that this interpreter has the packages of the command.

    Raises:
        OSError: it lacks packages, which the text names.
    """
    missing = [name for name in _REQUIREMENTS if find_spec(name) is None]
    if missing:
        raise OSError(f"`train` needs {', '.join(missing)}, which {sys.executable} does not have")


def end_of_measurements(seconds: float) -> float:
    """Return the time of `time.monotonic` at which a part that takes some seconds must have
    measured everything.
    """
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
        """Add the row that a function returns, with a `value` in this unit, or its error; return
        whether it has one.

        A lack of time is no failure.
        """
        row: dict[str, Any] = {"run": self._run, "measured": measured, "unit": unit}
        try:
            row |= measure()
        except (
            Exception
        ) as error:  # of the command, a library or the driver: the other rows are measured
            row["error"] = first_line(error)
            self.failed += not isinstance(error, TimeoutError)
        self._rows.add(**judge(row, **self._goals.get(measured, {})))
        return "error" not in row

    def skip(self, reason: str) -> None:
        """Add a row that says why nothing is measured."""
        self._rows.add(run=self._run, measured="all", error=f"skipped: {reason}")


class TrainCommand:
    """
    Run `vanilla-transformer train` within a `with` block, at whose end it is killed if it still
    runs.

    Args:
        words: The recipe and flags, without `output_dir`.
        output_dir: The run's folder.
        caches: Folder of the code that torch and Triton compile; an empty one is that of a fresh
            machine.
    """

    def __init__(self, words: Sequence[str], output_dir: Path, caches: Path):
        self.output_dir, self._log = output_dir, output_dir.with_suffix(".log")
        folders = {
            "TORCHINDUCTOR_CACHE_DIR": caches / "inductor",
            "TRITON_CACHE_DIR": caches / "triton",
        }
        for folder in folders.values():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        command = [
            sys.executable,
            "-m",
            "vanilla_transformer",
            "train",
            *words,
            "--output_dir",
            str(output_dir),
        ]
        environment = os.environ | {name: str(folder) for name, folder in folders.items()}
        self._started = time.monotonic()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=subprocess.STDOUT
            )

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
                raise RuntimeError(
                    next((line for line in reversed(lines) if line.strip()), f"status {status}")
                )
            if status is not None or time.monotonic() > end:
                return status is not None and until is None
            time.sleep(_SECONDS_BETWEEN_LOOKS)

    def measure_start(self, end: float) -> dict[str, Any]:
        """Wait for the first logged steps, and return the seconds until then, and since the model
        was created.

        Raises:
            RuntimeError: the command failed.
            TimeoutError: no step was logged in time.
        """
        if not self.wait(end, until=bool):
            raise TimeoutError(f"no step was logged in {self.seconds:.0f} s")
        seconds, first = self.seconds, self.step_entries()[0]
        return {
            "value": round(seconds, 1),
            "compile_seconds": round(60 * first["minutes"], 1),
            "step": first["step"],
        }


def steady_entries(entries: Entries, minutes: float) -> Entries:
    """Return the logged steps after the first minutes of a run, or its second half if it is too
    short.

    Raises:
        ValueError: there are fewer than two.
    """
    later = [entry for entry in entries if entry["minutes"] >= minutes]
    chosen = later if len(later) > 1 else entries[len(entries) // 2 - 1 :]
    if len(entries) < 2:
        raise ValueError(f"a rate needs two lines of the log, got {len(entries)}")
    return chosen


def rates(entries: Entries) -> dict[str, float]:
    """Return seconds, steps, steps per second and target tokens per second from the first to the
    last logged step.

    The time includes validations, checkpoints and waiting for batches.
    """
    minutes = [entry["minutes"] for entry in entries]
    seconds, steps = 60 * (minutes[-1] - minutes[0]), entries[-1]["step"] - entries[0]["step"]
    # Each line has the mean rate since the line before it.
    intervals = [
        60 * (later - earlier) for earlier, later in zip(minutes, minutes[1:], strict=False)
    ]
    tokens = sum(
        entry["tokens_per_second"] * each
        for entry, each in zip(entries[1:], intervals, strict=True)
    )
    return {
        "seconds": round(seconds, 1),
        "steps": steps,
        "steps_per_second": round(steps / seconds, 2),
        "tokens_per_second": round(tokens / seconds),
    }


MULTI30K_RECIPE = "multi30k_en_de"
_FILES = {"train": "train", "validation": "val", "test": "test_2016_flickr"}
_SIDES = (("source", "en"), ("target", "de"))
TRAINING, WHOLE_RUN, VALIDATION = "training", "whole run", "validation"
_SPARE = 45.0  # seconds for a second start and the validations
_VALIDATIONS = 3


class RecipeSetting(NamedTuple):
    """Changes of the recipe, the minutes before its rate is measured, and the goals by row."""

    changes: dict[str, str]
    minutes: float
    goals: dict[str, dict[str, Any]]


RECIPE_GOALS: dict[str, dict[str, Any]] = {
    FIRST_START: {"at_most": {"compile_seconds": 30}},
    TRAINING: {"at_least": {"value": 120}},
    WHOLE_RUN: {"at_most": {"value": 150}},
    SECOND_START: {"at_most": {"compile_seconds": 10}},
    VALIDATION: {"at_most": {"value": 1}},
}
_SIZES = {"layers": "1", "attention_heads": "2", "ffn_dim": "16"}
_TINY_SIZES = {
    f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in _SIZES.items()
}
_TINY_SIZES |= {
    "d_model": "16",
    "vocab_size": "300",
    "max_tokens": "300",
    "warmup_steps": "10",
    "max_steps": "12",
}
_TINY_SIZES |= {"logging_steps": "2", "eval_steps": "6", "save_steps": "6", "mixed_precision": "no"}
TINY_RECIPE = RecipeSetting(_TINY_SIZES, 0.0, {})
RECIPE_SETTING = RecipeSetting({}, 1.0, RECIPE_GOALS) if ON_GPU else TINY_RECIPE


def measure_run(
    rows: RunRows, text: Path, folder: Path, end: float, setting: RecipeSetting
) -> None:
    """Run the command with the text of a folder twice, in another folder, and measure each row."""
    flags = {
        f"{part}_{side}": str(text / f"{_FILES[part]}.{ending}")
        for part in _FILES
        for side, ending in _SIDES
    }
    flags |= {"cache_dir": str(folder / "cache")} | setting.changes
    words = [
        str(find_recipe(MULTI30K_RECIPE)),
        *(word for name in flags for word in (f"--{name}", flags[name])),
    ]
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
    """Return the median seconds of greedy validations by a model on all validation pairs, as
    training makes them.
    """
    from transformers import AutoTokenizer

    from vanilla_transformer import VanillaTransformerForConditionalGeneration
    from vanilla_transformer.data.readers import read_text_files
    from vanilla_transformer.evaluation.scores import validation_scores
    from vanilla_transformer.machine.attention import without_cudnn_attention
    from vanilla_transformer.training.distributed import create_accelerator
    from vanilla_transformer.training.recipe import parse_recipe
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
    row = {
        "value": round(median(seconds[1:]), 3),
        "first_seconds": round(seconds[0], 3),
        "pairs": len(pairs),
    }
    return row | {"bleu": round(scores["bleu"], 2)}


def find_text(folder: str | None) -> Path:
    """Return the folder of the text, after downloading it if none is given and data/multi30k does
    not exist.

    Raises:
        OSError: it cannot be downloaded.
        ValueError: a downloaded file is damaged.
    """
    own = Path(folder) if folder is not None else ROOT / "data" / "multi30k"
    return own if own.is_dir() or folder is not None else download_corpus("multi30k", own)


WMT14_RECIPE = "wmt14_en_de_base"
TEXT, READY = "generation of the text", "updates on ready batches"
_OTHER_TEXT = (
    "dataset",
    "source_language",
    "target_language",
    "vocab_size",
    "report_to",
    "output_dir",
)
_SHAPE = [*TINY_MODELS["tiny"]]


class Corpus(NamedTuple):
    """A text, changes of the recipe, the most seconds from its first logged steps, the benchmark,
    and goals by row.
    """

    pairs: int
    validation_pairs: int
    vocab_size: int
    changes: dict[str, Any]
    seconds: float
    updates: Setting
    goals: dict[str, dict[str, Any]]


CORPUS_GOALS: dict[str, dict[str, Any]] = {
    FIRST_START: {"at_most": {"compile_seconds": 30}},
    TRAINING: {"at_least": {"ratio": 0.95, "seconds": 600, "validations": 1, "checkpoints": 1}},
    SECOND_START: {"at_most": {"compile_seconds": 10}},
}
_TINY_RUN = TINY_MODELS["tiny"] | {
    "tokens_per_step": TINY_SETTING.tokens,
    "mixed_precision": "no",
    "warmup_steps": 10,
}
_TINY_RUN |= {"logging_steps": 5, "eval_steps": 10, "save_minutes": 0.005}
TINY_CORPUS = Corpus(2_000, 10, 100, _TINY_RUN, 1.0, TINY_SETTING, {})
CORPUS = (
    Corpus(4_500_000, 3_000, 32_000, {"save_minutes": 2}, 600.0, SETTING, CORPUS_GOALS)
    if ON_GPU
    else TINY_CORPUS
)


class Cells:
    """Measure the rows one after another."""

    def __init__(self, rows: RunRows, folder: Path, end: float, corpus: Corpus):
        self._rows, self._folder, self._end, self._corpus = rows, folder, end, corpus
        self._recipe: dict[str, Any] = {}
        self._ready: dict[str, Any] = {}

    def measure_run(self) -> bool:
        """Measure all rows but the second start, and return whether the run has started."""
        add, end = self._rows.add, self._end - _SPARE
        if not add(TEXT, "s", self._write) or not add(READY, "tokens/s", self._measure_ready):
            return False
        with self._start("first") as command:
            if not add(FIRST_START, "s", lambda: command.measure_start(end)):
                return False
            add(TRAINING, "tokens/s", lambda: self._sustain(command, end))
        return True

    def measure_second_start(self) -> None:
        with self._start("second") as command:
            self._rows.add(SECOND_START, "s", lambda: command.measure_start(self._end))

    def _start(self, name: str) -> TrainCommand:
        return TrainCommand(
            [str(self._folder / "recipe.yaml")], self._folder / name, self._folder / "compiled"
        )

    def _write(self) -> dict[str, Any]:
        """Write text, tokenizer and recipe."""
        started, corpus, files = time.perf_counter(), self._corpus, dict[str, str]()
        for seed, (name, pairs) in enumerate(
            {"train": corpus.pairs, "validation": corpus.validation_pairs}.items()
        ):
            sides = write_text(self._folder, name, pairs, corpus.vocab_size, seed)
            files |= {f"{name}_{side}": str(path) for side, path in sides._asdict().items()}
        tokenizer = self._folder / "tokenizer"
        build_tokenizer(corpus.vocab_size).save_pretrained(tokenizer)
        known = yaml.safe_load(find_recipe(WMT14_RECIPE).read_text(encoding="utf-8"))
        self._recipe = {
            name: value for name, value in known.items() if name not in _OTHER_TEXT
        } | corpus.changes
        self._recipe |= files | {
            "tokenizer": str(tokenizer),
            "cache_dir": str(self._folder / "cache"),
        }
        recipe = dict(self._recipe)
        recipe.pop("vocab_size", None)  # which the tokenizer decides
        (self._folder / "recipe.yaml").write_text(json.dumps(recipe), encoding="utf-8")
        return {"value": round(time.perf_counter() - started, 1), "pairs": corpus.pairs}

    def _measure_ready(self) -> dict[str, Any]:
        shape = self._recipe | {"vocab_size": self._corpus.vocab_size}
        fields = {name: shape[name] for name in _SHAPE}
        self._ready = measure_ours(
            fields, self._recipe["tokens_per_step"], OURS, self._corpus.updates
        )
        release_memory()
        return {"value": self._ready["tokens_per_second"]} | self._ready

    def _sustain(self, command: TrainCommand, end: float) -> dict[str, Any]:
        command.wait(end, lambda entries: _span(entries) >= self._corpus.seconds)
        logged = command.step_entries()
        found = rates(logged)
        row = {"value": found["tokens_per_second"]} | found
        row["ratio"] = round(found["tokens_per_second"] / self._ready["tokens_per_second"], 3)
        steps = range(logged[0]["step"], logged[-1]["step"])
        row["validations"] = sum(
            "validation_loss" in entry and entry["step"] in steps
            for entry in read_entries(command.output_dir)
        )
        row["checkpoints"] = len([*command.output_dir.glob("checkpoint-*")])
        return row | mfu_cells(self._ready["parameters"], found["tokens_per_second"])


def _span(entries: Entries) -> float:
    """Return the seconds from the first to the last logged step."""
    return 60 * (entries[-1]["minutes"] - entries[0]["minutes"]) if entries else 0.0


_SPECIAL_TOKENS = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
_LETTERS = np.frombuffer(b"adeilnorst", np.uint8)
# The logarithms of WMT14's lengths in words: their mean, and the standard deviations of the part
# that both sides have in common and of the part that each has for itself.
_MEAN, _COMMON_DEVIATION, _OWN_DEVIATION = 3.07, 0.6, 0.15
_LONGEST = 249
_PAIRS_AT_A_TIME = 100_000


class TextFiles(NamedTuple):
    """The files of both sides."""

    source: Path
    target: Path


def write_text(folder: Path, name: str, pairs: int, vocab_size: int, seed: int) -> TextFiles:
    """Write lines of random words, as frequent as Zipf's law says.

    Each target word translates the source word at about the same place, so that a model learns when
    a line ends.

    Args:
        name: Begins the names of the files.
        vocab_size: Entries of the vocabulary, with special tokens.
        seed: Seed of the lines. The words and their translations are always the same.
    """
    words, random = _spell_words(vocab_size), np.random.default_rng(seed)
    translations = np.random.default_rng(0).permutation(len(words))
    common = random.normal(_MEAN, _COMMON_DEVIATION, pairs)
    sources, targets = (
        np.exp(common + random.normal(0.0, _OWN_DEVIATION, pairs))
        .round()
        .clip(1, _LONGEST)
        .astype(int)
        for _ in range(2)
    )
    files = TextFiles(folder / f"{name}.source", folder / f"{name}.target")
    with files.source.open("wb") as source_file, files.target.open("wb") as target_file:
        for first in range(0, pairs, _PAIRS_AT_A_TIME):
            source, target = (side[first : first + _PAIRS_AT_A_TIME] for side in (sources, targets))
            # With probability ∝ 1 / rank, the logarithm of a rank is uniform.
            ranks = np.exp(random.random(source.sum(), np.float32) * np.float32(np.log(len(words))))
            ids = np.minimum(ranks.astype(np.int32), len(words)) - 1
            _write_lines(source_file, words[ids], source)
            _write_lines(target_file, words[translations[ids[_aligned(source, target)]]], target)
    return files


def build_tokenizer(vocab_size: int) -> VanillaTransformerTokenizer:
    """Build a tokenizer whose tokens are the words."""
    words = [bytes(word[:-1]).decode() for word in _spell_words(vocab_size)]
    vocabulary = {word: number for number, word in enumerate([*_SPECIAL_TOKENS.values(), *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=_SPECIAL_TOKENS["bos_token"]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 2)]
    )
    return VanillaTransformerTokenizer(tokenizer_object=tokenizer, **_SPECIAL_TOKENS)


def _spell_words(vocab_size: int) -> np.ndarray:
    """Return the words as bytes, each with a space after it, `(words, letters + 1)`."""
    numbers = np.arange(vocab_size - len(_SPECIAL_TOKENS))[:, None]
    letters = _LETTERS[numbers // len(_LETTERS) ** np.arange(5) % len(_LETTERS)]
    return np.pad(letters, ((0, 0), (0, 1)), constant_values=ord(" "))


def _aligned(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the index of the source word of each target word, given the words of each line."""
    begins, own_begins = (np.cumsum(side) - side for side in (source, target))
    places = np.arange(target.sum()) - np.repeat(own_begins, target)  # in their lines
    return np.repeat(begins, target) + places * np.repeat(source, target) // np.repeat(
        target, target
    )


def _write_lines(file: BinaryIO, words: np.ndarray, lengths: np.ndarray) -> None:
    words[np.cumsum(lengths) - 1, -1] = ord("\n")
    file.write(words.tobytes())


def main(part: str, rows_file: str, seconds: float, text: str | None = None) -> int:
    end = end_of_measurements(seconds)
    run, goals = {
        "recipe": (MULTI30K_RECIPE, RECIPE_SETTING.goals),
        "corpus": ("generated text", CORPUS.goals),
    }[part]
    rows = RunRows(Rows(rows_file, part), run, goals)
    try:
        check_packages()
        found = find_text(text) if part == "recipe" else None
    except (OSError, ValueError) as error:
        rows.skip(str(error))
        return 0
    with tempfile.TemporaryDirectory(prefix=f"gpu-{part}-", ignore_cleanup_errors=True) as folder:
        if found is not None:
            measure_run(rows, found, Path(folder), end, RECIPE_SETTING)
        else:
            cells = Cells(rows, Path(folder), end, CORPUS)
            if cells.measure_run():
                cells.measure_second_start()
    return int(rows.failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), *sys.argv[4:]))
