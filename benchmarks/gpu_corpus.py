"""
The part `corpus` of `bench_gpu`: the command `train` on a generated text of the size and the lengths of WMT14.

    python -m benchmarks.gpu_corpus corpus ROWS SECONDS

The recipe is wmt14_en_de_base with another text, a tokenizer of 32,000 words, and a checkpoint every two minutes. The
run begins with empty caches, and takes the time that is left, up to ten minutes from its first logged steps. Its rate,
validations and checkpoints included, is compared with the rate of updates on batches that are ready, of the same model
in this process. Then a second run starts. Each row is written as soon as it is measured. The exit status is 1 if the
package failed; without its packages the part is skipped, which a row says.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import yaml
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from benchmarks.gpu_recipe import (
    FIRST_START,
    SECOND_START,
    Entries,
    RunRows,
    TrainCommand,
    check_packages,
    end_of_measurements,
    rates,
)
from benchmarks.gpu_report import ON_GPU, Rows, release_memory
from benchmarks.gpu_training import OURS, SETTING, TINY_MODELS, TINY_SETTING, Setting, measure_ours, mfu_cells
from vanilla_transformer import VanillaTransformerTokenizer
from vanilla_transformer.resources import find_recipe
from vanilla_transformer.training.metrics import read_entries

RECIPE = "wmt14_en_de_base"
TEXT, READY, SUSTAINED = "generation of the text", "updates on ready batches", "training"
_SPARE = 45.0  # seconds for a second start
_OTHER_TEXT = ("dataset", "source_language", "target_language", "vocab_size", "report_to", "output_dir")
_SHAPE = [*TINY_MODELS["tiny"]]


class Corpus(NamedTuple):
    """A text, changes of the recipe, the most seconds from its first logged steps, the benchmark, and goals by row."""

    pairs: int
    validation_pairs: int
    vocab_size: int
    changes: dict[str, Any]
    seconds: float
    updates: Setting
    goals: dict[str, dict[str, Any]]


GOALS: dict[str, dict[str, Any]] = {
    FIRST_START: {"at_most": {"compile_seconds": 60}},
    SUSTAINED: {"at_least": {"ratio": 0.95, "seconds": 600, "validations": 1, "checkpoints": 1}},
    SECOND_START: {"at_most": {"compile_seconds": 10}},
}
_TINY = TINY_MODELS["tiny"] | {"tokens_per_step": TINY_SETTING.tokens, "mixed_precision": "no", "warmup_steps": 10}
_TINY |= {"logging_steps": 5, "eval_steps": 10, "save_minutes": 0.005}
TINY = Corpus(2_000, 10, 100, _TINY, 1.0, TINY_SETTING, {})
CORPUS = Corpus(4_500_000, 3_000, 32_000, {"save_minutes": 2}, 600.0, SETTING, GOALS) if ON_GPU else TINY


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
            add(SUSTAINED, "tokens/s", lambda: self._sustain(command, end))
        return True

    def measure_second_start(self) -> None:
        with self._start("second") as command:
            self._rows.add(SECOND_START, "s", lambda: command.measure_start(self._end))

    def _start(self, name: str) -> TrainCommand:
        return TrainCommand([str(self._folder / "recipe.yaml")], self._folder / name, self._folder / "compiled")

    def _write(self) -> dict[str, Any]:
        """Write text, tokenizer and recipe."""
        started, corpus, files = time.perf_counter(), self._corpus, dict[str, str]()
        for seed, (name, pairs) in enumerate({"train": corpus.pairs, "validation": corpus.validation_pairs}.items()):
            sides = write_text(self._folder, name, pairs, corpus.vocab_size, seed)
            files |= {f"{name}_{side}": str(path) for side, path in sides._asdict().items()}
        tokenizer = self._folder / "tokenizer"
        build_tokenizer(corpus.vocab_size).save_pretrained(tokenizer)
        known = yaml.safe_load(find_recipe(RECIPE).read_text(encoding="utf-8"))
        self._recipe = {name: value for name, value in known.items() if name not in _OTHER_TEXT} | corpus.changes
        self._recipe |= files | {"tokenizer": str(tokenizer), "cache_dir": str(self._folder / "cache")}
        self._recipe["vocab_size"] = corpus.vocab_size
        (self._folder / "recipe.yaml").write_text(json.dumps(self._recipe), encoding="utf-8")
        return {"value": round(time.perf_counter() - started, 1), "pairs": corpus.pairs}

    def _measure_ready(self) -> dict[str, Any]:
        fields = {name: self._recipe[name] for name in _SHAPE}
        self._ready = measure_ours(fields, self._recipe["tokens_per_step"], OURS, self._corpus.updates)
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
            "validation_loss" in entry and entry["step"] in steps for entry in read_entries(command.output_dir)
        )
        row["checkpoints"] = len([*command.output_dir.glob("checkpoint-*")])
        return row | mfu_cells(self._ready["parameters"], found["tokens_per_second"])


def _span(entries: Entries) -> float:
    """Return the seconds from the first to the last logged step."""
    return 60 * (entries[-1]["minutes"] - entries[0]["minutes"]) if entries else 0.0


def main(rows_file: str, seconds: float) -> int:
    rows, end = RunRows(Rows(rows_file, "corpus"), "generated text", CORPUS.goals), end_of_measurements(seconds)
    try:
        check_packages()
    except OSError as error:
        rows.skip(str(error))
        return 0
    with tempfile.TemporaryDirectory(prefix="gpu-corpus-", ignore_cleanup_errors=True) as folder:
        cells = Cells(rows, Path(folder), end, CORPUS)
        if cells.measure_run():
            cells.measure_second_start()
    return int(rows.failed > 0)


_SPECIAL_TOKENS = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
_LETTERS = np.frombuffer(b"adeilnorst", np.uint8)
# The logarithms of WMT14's lengths in words: their mean, and the standard deviations of the part that both sides have
# in common and of the part that each has for itself.
_MEAN, _COMMON_DEVIATION, _OWN_DEVIATION = 3.07, 0.6, 0.15
_LONGEST = 249
_PAIRS_AT_A_TIME = 100_000


class TextFiles(NamedTuple):
    """The files of both sides."""

    source: Path
    target: Path


def write_text(folder: Path, name: str, pairs: int, vocab_size: int, seed: int) -> TextFiles:
    """Write lines of random words, as frequent as Zipf's law says.

    Each target word translates the source word at about the same place, so that a model learns when a line ends.

    Args:
        name: Begins the names of the files.
        vocab_size: Entries of the vocabulary, with special tokens.
        seed: Of the lines. The words and their translations are always the same.
    """
    words, random = _spell_words(vocab_size), np.random.default_rng(seed)
    translations = np.random.default_rng(0).permutation(len(words))
    common = random.normal(_MEAN, _COMMON_DEVIATION, pairs)
    sources, targets = (
        np.exp(common + random.normal(0.0, _OWN_DEVIATION, pairs)).round().clip(1, _LONGEST).astype(int)
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
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
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
    return np.repeat(begins, target) + places * np.repeat(source, target) // np.repeat(target, target)


def _write_lines(file: BinaryIO, words: np.ndarray, lengths: np.ndarray) -> None:
    words[np.cumsum(lengths) - 1, -1] = ord("\n")
    file.write(words.tobytes())


if __name__ == "__main__":
    sys.exit(main(sys.argv[2], float(sys.argv[3])))
