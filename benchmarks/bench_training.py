"""
Compare training speed and peak memory of this package, `Seq2SeqTrainer`, JoeyNMT and eole on the same text.

    python -m benchmarks.bench_training
    python -m benchmarks.bench_training train.en train.de --seconds 20 --repeats 3 --note "nothing else ran"

`Seq2SeqTrainer` trains `MarianMTModel`; JoeyNMT and eole train by their own commands in their own environments
(`toolkits`). All have the same model size, vocabulary, optimizer and label smoothing. Each measurement is a separate
process, and the systems take turns (A B A B …), so that other work on the machine affects all of them. No GPU is used.
"""

import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks import toolkits
from benchmarks.harness import describe_machine, run_worker, write_results
from benchmarks.toolkits import InstallationFailed, python_of
from vanilla_transformer.cli import run
from vanilla_transformer.cli.arguments import parse
from vanilla_transformer.data.tokenizer_extension import tokenizer_from_state
from vanilla_transformer.data.tokenizer_training import train_tokenizer
from vanilla_transformer.tokenization_vanilla_transformer import VanillaTransformerTokenizer

# System: (kind of training, whether in bfloat16).
SIDES = {
    "ours, float32": ("loop", False),
    "ours, bf16": ("loop", True),
    "VanillaSeq2SeqTrainer, float32": ("budget", False),
    "VanillaSeq2SeqTrainer, bf16": ("budget", True),
    "Seq2SeqTrainer + Marian, float32": ("random", False),
    "Seq2SeqTrainer + Marian, bf16": ("random", True),
    "Seq2SeqTrainer + Marian, group_by_length, float32": ("group_by_length", False),
    "Seq2SeqTrainer + Marian, group_by_length, bf16": ("group_by_length", True),
    "JoeyNMT, float32": ("joeynmt", False),
    "eole, float32": ("eole", False),
    "VanillaSeq2SeqTrainer + Marian, float32": ("budget_of_marian", False),
    "VanillaSeq2SeqTrainer + Marian, bf16": ("budget_of_marian", True),
}
_PEERS = {"random", "group_by_length", *toolkits.NAMES}
LEANEST = (
    *("ours, float32", "ours, bf16", "Seq2SeqTrainer + Marian, group_by_length, float32"),
    *("Seq2SeqTrainer + Marian, group_by_length, bf16", "JoeyNMT, float32", "eole, float32"),
)


@dataclass
class ModelArguments:
    """Model and vocabulary of all systems."""

    d_model: int = field(default=256, metadata={"help": "Width of the model."})
    heads: int = field(default=4, metadata={"help": "Attention heads per layer."})
    layers: int = field(default=3, metadata={"help": "Layers of the encoder and of the decoder each."})
    ffn_dim: int = field(default=1024, metadata={"help": "Width of the feed-forward layers."})
    vocab_size: int = field(default=8000, metadata={"help": "Maximum size of the joint vocabulary."})


@dataclass
class BenchmarkArguments(ModelArguments):
    """Model, batches, and length of the measurements."""

    fill_vocabulary: bool = field(
        default=False, metadata={"help": "Fill the vocabulary up to `vocab_size` with unused entries."}
    )
    max_tokens: int = field(
        default=2048, metadata={"help": "Maximum tokens per batch, for this package and the toolkits."}
    )
    seed: int = field(default=1, metadata={"help": "Random seed of the toolkits."})
    warmup_steps: int = field(
        default=4000, metadata={"help": "Warm-up updates of the learning rate, for all systems."}
    )
    sentences: int = field(default=128, metadata={"help": "Sentences per batch of `Seq2SeqTrainer`."})
    attn_implementation: str = field(default="sdpa", metadata={"help": "Attention of all systems: sdpa or eager."})
    sides: list[int] = field(
        default_factory=lambda: list(range(len(SIDES))),
        metadata={"help": "Numbers of the systems to measure: " + "; ".join(f"{i} {n}" for i, n in enumerate(SIDES))},
    )
    seconds: float = field(default=12.0, metadata={"help": "Seconds per measurement, without warm-up."})
    warm_up: int = field(default=5, metadata={"help": "Warm-up updates before each measurement."})
    updates: int = field(
        default=50,
        metadata={
            "help": "Minimum number of updates per measurement: `group_by_length` sorts so many batches "
            "at a time, the longest first."
        },
    )
    repeats: int = field(default=2, metadata={"help": "Measurements per system."})
    passive_wait: bool = field(
        default=False,
        metadata={
            "help": "Let waiting threads sleep (OMP_WAIT_POLICY=passive), so that CPU seconds count work only. By "
            "default they spin for a while, as in training outside of benchmarks, which is faster."
        },
    )
    note: str = field(default="", metadata={"help": "Note for the reader, such as other work on the machine."})
    name: str = field(default="training", metadata={"help": "Name of the result files."})
    output_dir: str = field(default="benchmarks/results", metadata={"help": "Folder of NAME.md and NAME.json."})


def main(arguments: Sequence[str]) -> None:
    files, options = parse(BenchmarkArguments, arguments, "bench_training.py [SOURCE TARGET] [--flags]")
    if options.updates < 1 or options.warm_up < 1:
        raise ValueError(f"`updates` and `warm_up` must be at least 1, got {options.updates} and {options.warm_up}.")
    if len(files) not in (0, 2) or not set(options.sides) <= set(range(len(SIDES))):
        raise ValueError(
            f"Give a source and a target file or none, and sides from 0 to {len(SIDES) - 1}, got {files} and sides "
            f"{options.sides}."
        )
    with tempfile.TemporaryDirectory(prefix="training-") as folder:
        results = measure_sides(Path(folder), files, options)
    text = " and ".join(Path(name).name for name in files) or "the demo corpus"
    missing = [reason for reason in results.values() if isinstance(reason, str)]
    results = {name: found for name, found in results.items() if not isinstance(found, str)}
    report = {"machine": describe_machine(), "text": text, **asdict(options), "results": results, "missing": missing}
    write_results(options.output_dir, options.name, report, markdown(report))


def measure_sides(folder: Path, files: list[str], options: BenchmarkArguments) -> dict[str, Any]:
    """Return the measurements of each system, or the reason why it cannot be installed."""
    prepare(folder, files, options.vocab_size, options.fill_vocabulary)
    toolkits.write_subwords(folder, ["train.en", "train.de"])
    names = [list(SIDES)[number] for number in options.sides]
    missing = {name: reason for name in names if (reason := _reason_to_leave_out(name)) is not None}
    names = [name for name in names if name not in missing]
    results: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for turn in range(-1, options.repeats):
        # Turn -1 fills the caches of tokens and bytecode and is not counted.
        for name in names if turn >= 0 else (names[0], names[-1]):
            shortened = {} if turn >= 0 else {"seconds": 0.0, "warm_up": 1, "updates": 1}
            found = _measure_side(folder, name, asdict(options) | shortened)
            if turn >= 0:
                results[name].append(found)
                print(f"{turn + 1}/{options.repeats} {name}: {found['tokens_per_second']:.0f}", file=sys.stderr)
    sizes = [one["parameters"] for found in results.values() for one in found]
    if max(sizes) > 1.005 * min(sizes):  # some have biases or a normalization that others lack
        raise RuntimeError(f"The models differ in size: {results}")
    return results | missing


def _reason_to_leave_out(name: str) -> str | None:
    toolkit = SIDES[name][0]
    if toolkit not in toolkits.NAMES:
        return None
    try:
        python_of(toolkit)
    except InstallationFailed as error:
        return str(error)
    return None


def prepare(folder: Path, files: list[str], vocab_size: int, fill: bool = False) -> None:
    """Write the shared vocabulary and text, as text files and as a dataset."""
    from vanilla_transformer.data.demo_corpus import write_demo_corpus
    from vanilla_transformer.training.seq2seq_trainer import encoded_dataset

    if not files:
        write_demo_corpus(folder, validation=1, test=1)
    for end, name in zip(("en", "de"), files, strict=False):
        (folder / f"train.{end}").write_text(Path(name).read_text(encoding="utf-8"), encoding="utf-8")
    sides = [folder / "train.en", folder / "train.de"]
    texts = chain.from_iterable(side.read_text(encoding="utf-8").splitlines() for side in sides)
    tokenizer = train_tokenizer(texts, vocab_size=vocab_size)
    if fill:
        tokenizer = fill_vocabulary(tokenizer, vocab_size)
    tokenizer.save_pretrained(folder / "tokenizer")
    encoded_dataset(tokenizer, *sides).save_to_disk(folder / "dataset")


def fill_vocabulary(tokenizer: VanillaTransformerTokenizer, vocab_size: int) -> VanillaTransformerTokenizer:
    """Return a tokenizer with further entries that no merge makes, so that no text has them.

    Added tokens would do the same, but each text is searched for them, which takes minutes.
    """
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    state["model"]["vocab"] |= {f"filler{number}": number for number in range(len(tokenizer), vocab_size)}
    return tokenizer_from_state(state, tokenizer)


def _measure_side(folder: Path, name: str, options: dict[str, Any]) -> dict[str, float]:
    kind, bf16 = SIDES[name]
    environment = {"OMP_WAIT_POLICY": "passive"} if options["passive_wait"] else {}
    if kind in toolkits.NAMES:
        config = toolkits.write_config(kind, folder, folder / kind, options)
        return toolkits.train(kind, config, options, environment)
    request = {"folder": str(folder), "kind": kind, "bf16": bf16, "options": options}
    if os.environ.get("PYTHONDONTWRITEBYTECODE"):  # share compiled bytecode between the processes
        environment |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    return run_worker("training_worker", request, name, environment)


def markdown(report: dict[str, Any]) -> Iterator[str]:
    """Yield a description of the measurement and a table with a row for each system."""
    results, about = report["results"], report["machine"]
    every = [one for found in results.values() for one in found]
    busy = sorted(one["cores_busy_with_others"] for one in every)
    yield f"Training on {report['text']}."
    yield f"{about['cores']} cores of {about['cpu']}; " + ", ".join(
        f"{name} {about[name]}" for name in ("python", "torch", "transformers", "accelerate")
    )
    sizes = sorted(one["parameters"] for one in every)
    yield f"Models of {sizes[0]:,} to {sizes[-1]:,} parameters; attention {report['attn_implementation']}; batches of"
    yield f"{report['max_tokens']} tokens, for Seq2SeqTrainer of {report['sentences']} sentences."
    yield from report["missing"]
    yield f"{report['repeats']} × {report['seconds']:g} s for each system, at least {report['updates']} updates,"
    yield "taking turns; min – median – max. Other work kept"
    yield f"{busy[0]:.1f} – {statistics.median(busy):.1f} – {busy[-1]:.1f} cores busy. {report['note']}".rstrip()
    yield ""
    columns = ["system", "target tokens/s", "relative to the best other"]
    if report["passive_wait"]:
        columns += ["target tokens per CPU second", "relative to the best other"]
    columns += [
        "peak memory, MiB",
        "relative to the leanest other",
        "added by training, MiB",
        "padding",
        "target tokens per update",
        "updates",
    ]
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for name, found in results.items():
        yield f"| {name} | {' | '.join(_cells(found, results, report['passive_wait']))} |"


def _cells(
    found: list[dict[str, float]], results: dict[str, list[dict[str, float]]], passive_wait: bool
) -> Iterator[str]:
    for name in ("tokens_per_second", *(["tokens_per_cpu_second"] if passive_wait else [])):
        best = max((_median(one, name) for side, one in results.items() if SIDES[side][0] in _PEERS), default=None)
        yield _spread(found, name)
        yield "" if best is None else f"{_median(found, name) / best:.2f}"
    least = min((_median(one, "peak_mib") for side, one in results.items() if SIDES[side][0] in _PEERS), default=None)
    yield _spread(found, "peak_mib")
    yield "" if least is None else f"{_median(found, 'peak_mib') / least:.2f}"
    yield _spread(found, "peak_over_resident_mib")
    yield f"{_median(found, 'target_padding'):.1%}"
    yield f"{_median(found, 'target_tokens_an_update'):,.0f}"
    yield f"{_median(found, 'updates'):,.0f}"


def _median(found: list[dict[str, float]], name: str) -> float:
    return statistics.median(one[name] for one in found)


def _spread(found: list[dict[str, float]], name: str) -> str:
    values = sorted(one[name] for one in found)
    return f"{values[0]:,.0f} – {statistics.median(values):,.0f} – {values[-1]:,.0f}"


if __name__ == "__main__":
    sys.exit(run(main))
