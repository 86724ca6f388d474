"""
Measure startup time: imports, `--help` of commands, and the first translation compared with the second.

    python -m benchmarks.bench_startup [FOLDER]

FOLDER is a trained model; by default a model with random weights.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.bench_decoding import random_model
from benchmarks.harness import ROOT, write_results
from vanilla_transformer.cli import run
from vanilla_transformer.cli.arguments import parse
from vanilla_transformer.data.demo_corpus import read_demo_corpus
from vanilla_transformer.data.tokenizer_training import train_tokenizer
from vanilla_transformer.file_utils import save_model_folder

_COMMANDS = ("--help", "--version", "train --help", "translate --help", "serve --help")
_TRANSLATE = """
import sys, time, vanilla_transformer
from transformers import pipeline
translate = pipeline("translation", model=sys.argv[1])
for _ in range(2):
    started = time.perf_counter()
    translate("The old woman buys a red apple.", max_new_tokens=16)
    print(time.perf_counter() - started)
"""


@dataclass
class StartupArguments:
    """Number of rounds and the output folder."""

    rounds: int = field(default=5, metadata={"help": "Rounds of each measurement; the best counts."})
    output_dir: str = field(default="benchmarks/results", metadata={"help": "Folder of startup.md and .json."})


def main(arguments: Sequence[str]) -> None:
    folders, options = parse(StartupArguments, arguments, "bench_startup.py [FOLDER] [--flags]")
    if len(folders) > 1:
        raise ValueError(f"Name at most one model folder, got {len(folders)}.")
    with tempfile.TemporaryDirectory() as made:
        folder = folders[0] if folders else _make_model(made)
        found = measure(folder, options.rounds)
    write_results(options.output_dir, "startup", found, markdown(found))


def _make_model(folder: str) -> str:
    texts = [text for pair in read_demo_corpus("train", 500) for text in (pair.source, pair.target)]
    tokenizer = train_tokenizer(texts, vocab_size=1000)
    return str(save_model_folder(random_model("small", vocab_size=len(tokenizer)), tokenizer, Path(folder, "model")))


def measure(folder: str, rounds: int) -> dict[str, float]:
    """Return the best seconds of each measurement."""
    programs = {
        "`import torch`": ["-c", "import torch"],
        "`import transformers`": ["-c", "import transformers"],
        "`import vanilla_transformer`": ["-c", "import vanilla_transformer"],
        "`from vanilla_transformer import …`": ["-c", "from vanilla_transformer import TranslationPipeline"],
    }
    program = str(Path(sys.executable).with_name("vanilla-transformer"))
    programs |= {f"`vanilla-transformer {words}`": [program, *words.split()] for words in _COMMANDS}
    found = {name: min(_seconds(words) for _ in range(rounds)) for name, words in programs.items()}
    translations = [_translations(folder) for _ in range(rounds)]
    found["first translation"], found["second translation"] = (min(times) for times in zip(*translations, strict=True))
    return found


def _seconds(words: Sequence[str]) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, *words], check=True, capture_output=True, cwd=ROOT)
    return time.perf_counter() - started


def _translations(folder: str) -> list[float]:
    command = [sys.executable, "-c", _TRANSLATE, str(Path(folder).absolute())]
    ended = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    return [float(line) for line in ended.stdout.splitlines()]


def markdown(found: dict[str, float]) -> list[str]:
    """Return a table with a row for each measurement."""
    lines = ["| command | seconds |", "|---|---|", *(f"| {name} | {value:.2f} |" for name, value in found.items())]
    ratio = found["first translation"] / found["second translation"]
    return [*lines, "", f"The first translation takes {ratio:.2f} times as long as the second."]


if __name__ == "__main__":
    sys.exit(run(main))
