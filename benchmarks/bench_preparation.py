"""
Measure how fast `prepare` cleans and tokenizes a corpus, beside the preparation of `train`.

    python -m benchmarks.bench_preparation
    python -m benchmarks.bench_preparation train.en train.de --pairs 1000000

The pairs are the first ones of two files or, without them, made-up sentences. Both ways work with
one task in a separate process, on one core, with empty folders, in turns. Seconds are of the
processor, since the machine may do other work.
"""

import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import accumulate, islice
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

from benchmarks.harness import (
    BenchmarkArguments,
    is_worker,
    peak_bytes,
    progress,
    read_arguments,
    run_worker,
    write_report,
)

_MIB = 2**20
_WAYS = ("prepare", "train")
_PARTS = ("read and clean", "train the vocabulary", "tokenize", "others")
# The part of each step of `prepare`
_PART_OF_STEP = {
    "split": "read and clean",
    "read": "read and clean",
    "check": "read and clean",
    "filter": "read and clean",
    "vocabulary": "train the vocabulary",
    "tokenize": "tokenize",
    "finish": "others",
}
_RULES = ["empty", "markup", "identical", "duplicates", "near_duplicates", "other_scripts"]
_WORDS, _MEAN_LENGTH, _SHARE_OF_COPIES = 20_000, 12, 0.02
_LETTERS = "eeeeeeaaaaiiiioooouunnnrrrtttssslllddmmppccgbhfvkwzyäöü"


@dataclass
class PreparationArguments(BenchmarkArguments):
    """How many pairs, and how often."""

    SHORT: ClassVar[dict[str, Any]] = {"pairs": 2000, "rounds": 1, "vocab_size": 500}

    pairs: int = field(default=100_000, metadata={"help": "Pairs of the text."})
    shard_pairs: int = field(default=200_000, metadata={"help": "Pairs of a shard."})
    rounds: int = field(default=3, metadata={"help": "Measurements of each way."})
    vocab_size: int = field(default=16_000, metadata={"help": "Entries of the vocabulary."})
    seed: int = field(default=0, metadata={"help": "Decides the made-up sentences."})


def make_up_pairs(seed: int) -> Iterator[tuple[str, str]]:
    """Yield made-up pairs without end: words are as frequent as Zipf's law says, and some pairs
    repeat an earlier one.
    """
    draw = random.Random(seed)
    words = []
    for _ in range(2 * _WORDS):
        length = 1 + min(14, int(draw.expovariate(1 / 5)))
        words.append("".join(draw.choices(_LETTERS, k=length)))
    ranks = range(1, _WORDS + 1)
    weights = [*accumulate(1 / rank for rank in ranks)]
    indices = range(_WORDS)
    earlier = list[tuple[str, str]]()
    while True:
        if earlier and draw.random() < _SHARE_OF_COPIES:
            yield draw.choice(earlier)
            continue
        length = 1 + min(80, int(draw.expovariate(1 / _MEAN_LENGTH)))
        drawn = draw.choices(indices, cum_weights=weights, k=length)
        source = " ".join(words[index] for index in drawn)
        draw.shuffle(drawn)
        target = " ".join(words[_WORDS + index] for index in drawn)
        pair = f"{source.capitalize()}.", f"{target.capitalize()}."
        if len(earlier) < 1000:
            earlier.append(pair)
        yield pair


def read_pairs(paths: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of two files."""
    from vanilla_transformer.data.readers import read_text_files

    yield from read_text_files(*map(Path, paths))


def write_pairs(folder: Path, pairs: Iterator[tuple[str, str]], count: int) -> None:
    """Write so many pairs to two files."""
    with ExitStack() as stack:
        files = []
        for name in ("train.en", "train.de"):
            files.append(stack.enter_context(open(folder / name, "w", encoding="utf-8")))
        for pair in islice(pairs, count):
            for file, text in zip(files, pair, strict=True):
                file.write(f"{text}\n")


def processor_seconds() -> float:
    """Return the seconds of the processor that this process and its ended children took."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class Stopwatch:
    """The seconds of each part of the work."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(_PARTS, 0.0)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        started = processor_seconds()
        yield
        self.seconds[name] += processor_seconds() - started


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """Return the pairs, the seconds of each part and the memory of a way, in this process."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    from vanilla_transformer.training.recipe import parse_recipe

    keys = {"train_source": "train.en", "train_target": "train.de", "output_dir": "unused"}
    flags = ["--drop", f"[{', '.join(_RULES)}]", "--max_character_ratio", "3"]
    flags += ["--max_length", "100", "--vocab_size", str(request["vocab_size"])]
    for name, value in keys.items():
        flags += [f"--{name}", str(Path(request["folder"], value))]
    watch, imported = Stopwatch(), peak_bytes()
    with tempfile.TemporaryDirectory(dir=request["folder"]) as work:
        recipe = parse_recipe([*flags, "--cache_dir", f"{work}/cache"])
        if request["way"] == "prepare":
            pairs = run_prepare(recipe, Path(work), request["shard_pairs"], watch)
        else:
            pairs = run_train(recipe, watch)
    memory = {"MiB of imports": imported // _MIB, "MiB": peak_bytes() // _MIB}
    return {"pairs left": pairs, **watch.seconds, **memory}


def run_prepare(recipe: Any, work: Path, shard_pairs: int, watch: Stopwatch) -> int:
    """Run the steps of `prepare`, and return how many pairs are left."""
    from vanilla_transformer.data.prepared_corpus import read_manifest
    from vanilla_transformer.extensions.preparation.preparation import plan_preparation

    with watch.part("others"):
        steps = plan_preparation(recipe, work / "prepared", shard_pairs)
    for step in steps:
        # Steps on repetitions are named by their rule.
        with watch.part(_PART_OF_STEP.get(step.name, "read and clean")):
            step()
    return read_manifest(work / "prepared").pairs


def run_train(recipe: Any, watch: Stopwatch) -> int:
    """Prepare the text as `train` does, and return how many pairs are left."""
    from vanilla_transformer.data.prepare_data import load_texts, tokenize
    from vanilla_transformer.data.tokenizer_training import load_or_train_tokenizer

    with watch.part("read and clean"):
        texts = load_texts(recipe.data)
    with watch.part("train the vocabulary"):
        tokenizer = load_or_train_tokenizer(texts)
    with watch.part("tokenize"):
        corpus = tokenize(texts, tokenizer, recipe.optimization.seed)
    return len(corpus.epoch(0))


def summarize(way: str, answers: Sequence[dict[str, Any]], pairs: int) -> dict[str, Any]:
    """Return the row of a way, with medians of its measurements."""
    row: dict[str, Any] = {"way": way, "pairs": pairs, "pairs left": answers[0]["pairs left"]}
    for name in _PARTS:
        row[name] = median(answer[name] for answer in answers)
    totals = []
    for answer in answers:
        totals.append(sum(answer[name] for name in _PARTS))
    row["all"] = median(totals)
    row["from"], row["to"] = min(totals), max(totals)
    row["pairs a second"] = round(pairs / row["all"])
    row["without the vocabulary"] = round(pairs / (row["all"] - row["train the vocabulary"]))
    row["MiB of imports"] = median(answer["MiB of imports"] for answer in answers)
    row["MiB"] = max(answer["MiB"] for answer in answers)
    return row


def main(arguments: Sequence[str]) -> None:
    usage = "bench_preparation [SOURCE TARGET]"
    paths, options = read_arguments(PreparationArguments, arguments, usage, (0, 2))
    answers: dict[str, list[dict[str, Any]]] = {way: [] for way in _WAYS}
    with tempfile.TemporaryDirectory() as folder:
        pairs = read_pairs(paths) if paths else make_up_pairs(options.seed)
        write_pairs(Path(folder), pairs, options.pairs)
        started = time.monotonic()
        for number in range(options.rounds):
            for way in _WAYS[:: -1 if number % 2 else 1]:
                request = {"folder": folder, "way": way, "vocab_size": options.vocab_size}
                request["shard_pairs"] = options.shard_pairs
                environment = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
                answer = run_worker("bench_preparation", request, environment=environment)
                answers[way].append(answer)
                progress(f"{time.monotonic() - started:.0f} s: {way}: {json.dumps(answer)}")
    left = {answer["pairs left"] for way in _WAYS for answer in answers[way]}
    if len(left) > 1:
        raise RuntimeError(f"Both ways must leave the same pairs, got {sorted(left)}.")
    rows = [summarize(way, answers[way], options.pairs) for way in _WAYS]
    write_report("preparation", options, rows)


if __name__ == "__main__":
    if is_worker():
        print(json.dumps(measure(json.loads(sys.argv[2]))))
    else:
        main(sys.argv[1:])
