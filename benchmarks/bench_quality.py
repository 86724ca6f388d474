"""
Compare the BLEU that this package, `Seq2SeqTrainer`, JoeyNMT and eole reach after the same time of training.

    python -m benchmarks.bench_quality train.en train.de test.en test.de --minutes 10 --at_once 2

All systems have the same subwords, model size, label smoothing, dropout and learning rate (equation 3), and batches
with about the same number of tokens. The time limit covers updates, not the preparation of the text. Each system
decodes with its own beam search, beam 4. Several training runs may share the cores.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from transformers import AutoTokenizer, MarianMTModel, pipeline

from benchmarks import toolkits
from benchmarks.bench_decoding import in_file_order
from benchmarks.bench_training import ModelArguments, prepare
from benchmarks.harness import ROOT, cpu_name, describe_machine, run_command, run_worker, write_results
from benchmarks.toolkits import InstallationFailed
from benchmarks.training_worker import shape
from vanilla_transformer.cli import run
from vanilla_transformer.cli.arguments import parse
from vanilla_transformer.data.readers import read_lines
from vanilla_transformer.evaluation.scores import score

_PEERS = ("Seq2SeqTrainer + Marian", "JoeyNMT", "eole")


@dataclass
class QualityArguments(ModelArguments):
    """Model, batches, and training time."""

    max_tokens: int = field(default=2048, metadata={"help": "Maximum tokens per batch."})
    sentences: int = field(default=128, metadata={"help": "Sentences per batch of Seq2SeqTrainer."})
    warmup_steps: int = field(default=800, metadata={"help": "Warm-up updates of the learning rate, for all systems."})
    minutes: float = field(default=10.0, metadata={"help": "Minutes of each training run."})
    seeds: int = field(default=3, metadata={"help": "Training runs of this package; the other systems have one each."})
    at_once: int = field(default=2, metadata={"help": "Training runs at the same time; they share the cores."})
    count: int | None = field(default=None, metadata={"help": "Sentences of the test set to score; by default all."})
    folder: str = field(default="runs/quality", metadata={"help": "Folder of the prepared text and the models."})
    output_dir: str = field(default="benchmarks/results", metadata={"help": "Folder of quality.md and .json."})


def main(arguments: Sequence[str]) -> None:
    files, options = parse(QualityArguments, arguments, "quality.py TRAIN.en TRAIN.de TEST.en TEST.de [--flags]")
    if len(files) != 4:
        raise ValueError(
            f"Name four files before the flags, source and target of training and test text, got {len(files)}."
        )
    results = measure(files, options)
    report = {"machine": describe_machine(), **asdict(options), "results": results}
    write_results(options.output_dir, "quality", report, markdown(results, options))


def measure(files: Sequence[str], options: QualityArguments) -> list[dict[str, Any]]:
    """Train and score all systems; return a row for each training run, in the order of their starts."""
    folder = Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    prepare(folder, list(files[:2]), options.vocab_size)
    (folder / "test.en").write_text("\n".join(read_lines(files[2])[: options.count]) + "\n", encoding="utf-8")
    toolkits.write_subwords(folder, ["train.en", "train.de", "test.en"])
    sides: list[tuple[str, int]] = [("ours, bf16", seed) for seed in range(1, options.seeds + 1)]
    for place, peer in enumerate(_PEERS):  # alternate, so that other work on the machine affects all systems
        sides.insert(2 * place + 1, (peer, 1))
    environment = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // options.at_once))}
    environment |= {"OMP_WAIT_POLICY": "passive", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}

    def train_one(side: tuple[str, int]) -> tuple[str, int, dict[str, Any]]:
        name, seed = side
        print(f"{name}, seed {seed} ...", file=sys.stderr)
        request = asdict(options) | {"seed": seed, "seconds": 60 * options.minutes, "warm_up": 0, "updates": 1}
        try:
            return name, seed, _SIDES[name].train(folder, request | {"attn_implementation": "sdpa"}, environment)
        except (RuntimeError, InstallationFailed) as error:
            return name, seed, {"failed": str(error)}

    with ThreadPoolExecutor(options.at_once) as pool:
        trained = list(pool.map(train_one, sides))
    references, rows = read_lines(files[3])[: options.count], []
    for name, seed, found in trained:
        row = {"side": name, "seed": seed} | found
        if "failed" not in found:
            scores = score(_SIDES[name].translate(folder, seed), references)
            row |= {"BLEU": scores.bleu, "signature": scores.bleu_signature}
        rows.append(row)
    return rows


class Side(NamedTuple):
    """Functions of one system: `train` returns measurements, `translate` the translations of the test set."""

    train: Callable[[Path, dict[str, Any], dict[str, str]], dict[str, Any]]
    translate: Callable[[Path, int], list[str]]


def _train_ours(folder: Path, request: dict[str, Any], environment: dict[str, str]) -> dict[str, Any]:
    output = folder / f"ours-{request['seed']}"
    flags = shape(request) | {name: request[name] for name in ("max_tokens", "warmup_steps", "seed")}
    flags |= {"train_source": folder / "train.en", "train_target": folder / "train.de", "max_steps": 10**6}
    flags |= {"tokenizer": folder / "tokenizer", "mixed_precision": "bf16", "max_minutes": request["seconds"] / 60}
    flags |= {"save_minutes": request["seconds"] / 1200, "average_checkpoints": 5, "keep_last": 5, "logging_steps": 10}
    flags |= {"output_dir": output, "overwrite_output_dir": True, "cache_dir": folder / "cache"}
    words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    run_command([sys.executable, str(ROOT / "scripts" / "train.py"), *words], "training", environment)
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    return {"updates": max(line["step"] for line in lines)}


def _translate_ours(folder: Path, seed: int) -> list[str]:
    translate = pipeline("translation", model=str(folder / f"ours-{seed}"))
    answers = translate(read_lines(folder / "test.en"), batch_size=64, num_beams=4)
    return [answer["translation_text"] for answer in answers]


def _train_marian(folder: Path, request: dict[str, Any], environment: dict[str, str]) -> dict[str, Any]:
    options = request | {"save_to": str(folder / "marian")}
    request = {"folder": str(folder), "kind": "group_by_length", "bf16": True, "options": options}
    return run_worker("training_worker", request, "Seq2SeqTrainer", environment)


def _translate_with_marian(folder: Path, _: int) -> list[str]:
    model = MarianMTModel.from_pretrained(folder / "marian").eval()
    return in_file_order(model, AutoTokenizer.from_pretrained(folder / "tokenizer"), read_lines(folder / "test.en"), 4)


def _toolkit(name: str) -> Side:
    def train(folder: Path, request: dict[str, Any], environment: dict[str, str]) -> dict[str, Any]:
        config = toolkits.write_config(name, folder, folder / name, request)
        return toolkits.train(name, config, request, environment)

    def translate(folder: Path, _: int) -> list[str]:
        answers = toolkits.translate(name, folder / name, folder / "subwords" / "test.en")
        return toolkits.as_text(folder, answers)

    return Side(train, translate)


_SIDES = {
    "ours, bf16": Side(_train_ours, _translate_ours),
    "Seq2SeqTrainer + Marian": Side(_train_marian, _translate_with_marian),
    "JoeyNMT": _toolkit("joeynmt"),
    "eole": _toolkit("eole"),
}


def markdown(results: Sequence[dict[str, Any]], options: QualityArguments) -> list[str]:
    """Return a table with a row for each training run."""
    lines = [f"| system | seed | BLEU after {options.minutes:g} minutes | updates |", "|---|---|---|---|"]
    for row in results:
        if "failed" in row:
            lines.append(f"| {row['side']} | {row['seed']} | {row['failed'].splitlines()[0]} | |")
        else:
            lines.append(f"| {row['side']} | {row['seed']} | {row['BLEU']:.1f} | {row['updates']:,} |")
    return [*lines, "", f"{options.at_once} training runs at a time on {os.cpu_count()} cores of {cpu_name()}."]


if __name__ == "__main__":
    sys.exit(run(main))
