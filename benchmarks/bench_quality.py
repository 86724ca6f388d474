r"""
Compare choices of a recipe, and other toolkits: short training runs, scored on a test set.

    python -m benchmarks.bench_quality recipes/multi30k_en_de.yaml --max_steps 1500 \
        --test_source test.en --test_target test.de --change label_smoothing=0 dropout=0.1 seed=1
    python -m benchmarks.bench_quality recipes/multi30k_en_de.yaml --max_minutes 10 --peers all \
        --test_source test.en --test_target test.de

The unchanged recipe, with `--max_steps` or `--max_minutes`, is the baseline. Each change is trained after it and
compared with it by paired bootstrap resampling. The baseline's last checkpoint, EMA and best validation checkpoint are
scored as well. `--peers` trains `Seq2SeqTrainer` with Marian, JoeyNMT and eole on the recipe's text for as many
minutes, with the same subwords, model size, label smoothing and learning rate (equation 3); each translates with its
own beam search, beam 4. Finished runs in `--output_dir` are not repeated, and an interrupted run resumes. The table is
rewritten after every run.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.bench_training import PEERS, TrainingArguments, prepare
from benchmarks.harness import ROOT, BenchmarkArguments, progress, read_arguments, write_report
from benchmarks.peers import InstallationFailed, Peer
from vanilla_transformer.cli import run
from vanilla_transformer.data.readers import read_lines
from vanilla_transformer.evaluation.significance import build_report
from vanilla_transformer.training.recipe import Recipe, flatten, parse_recipe

_BASELINE = "the recipe"
_WARMUP_STEPS = 800  # of other systems, if the recipe leaves them to be derived
OTHERS = ("Seq2SeqTrainer + Marian, group_by_length, bf16", "JoeyNMT, float32", "eole, float32")


@dataclass
class QualityArguments(BenchmarkArguments):
    """The runs, their length, and the test text."""

    SHORT: ClassVar[dict[str, Any]] = {"max_minutes": 0.25, "max_steps": None, "bootstrap_samples": 100}

    test_source: str = field(default="", metadata={"help": "Test text, source side."})
    test_target: str = field(default="", metadata={"help": "Test text, target side."})
    change: list[str] = field(
        default_factory=list, metadata={"help": "FLAG=VALUE: a run with this flag; join several flags by +."}
    )
    set: list[str] = field(default_factory=list, metadata={"help": "FLAG=VALUE: a flag of all runs."})
    peers: list[str] = field(
        default_factory=list, metadata={"help": f"Other systems to train: all, or of {'; '.join(OTHERS)}."}
    )
    max_steps: int | None = field(default=None, metadata={"help": "Updates per run."})
    max_minutes: float | None = field(default=None, metadata={"help": "Minutes per run."})
    bootstrap_samples: int = field(default=1000, metadata={"help": "Resamples for intervals and p-values."})
    output_dir: str = field(default="runs/quality", metadata={"help": "Folder of the runs and the table."})


def main(arguments: Sequence[str]) -> None:
    (recipe,), options = read_arguments(QualityArguments, arguments, "bench_quality RECIPE", (1,))
    check(options)
    folder = Path(options.output_dir)
    flags = {name: run_flags(name, recipe, folder, options) for name in [_BASELINE, *dict.fromkeys(options.change)]}
    recipes = {name: parse_recipe(each) for name, each in flags.items()}  # refuse an unknown flag before training
    others = [PEERS[name] for name in (OTHERS if options.peers == ["all"] else options.peers)]
    notes, rows = [_scored_on(recipe, options)], list[dict[str, Any]]()
    for name, each in flags.items():
        rows += train_and_score(name, each, folder, options)
        write_report("quality", options, rows, notes)
    for peer in others:
        try:
            rows.append(train_peer(peer, recipes[_BASELINE], folder, options))
        except (InstallationFailed, RuntimeError) as error:
            notes.append(f"{peer.name}: {str(error).splitlines()[0]}")
        write_report("quality", options, rows, notes)


def check(options: QualityArguments) -> None:
    """Check the flags of the benchmark itself.

    Raises:
        ValueError: one is missing, or two exclude each other.
    """
    if not (options.test_source and options.test_target):
        raise ValueError("Name the test text by --test_source FILE and --test_target FILE.")
    if (options.max_steps is None) == (options.max_minutes is None):
        raise ValueError("Give the length of a run by either --max_steps N or --max_minutes N.")
    if options.peers and options.max_minutes is None:
        raise ValueError("Other systems train for --max_minutes, which is missing.")
    if options.peers != ["all"] and not set(options.peers) <= set(OTHERS):
        raise ValueError(f"--peers must be all, or of {'; '.join(OTHERS)}, got {'; '.join(options.peers)}.")


def _scored_on(recipe: str, options: QualityArguments) -> str:
    budget = f"{options.max_steps} updates" if options.max_steps else f"{options.max_minutes:g} minutes"
    more = f", all with {', '.join(options.set)}" if options.set else ""
    return (
        f"`{recipe}`{more}, {budget} each. Scores on {Path(options.test_source).name}, ± half of the 95 % interval; "
        f"p-values of paired bootstrap resampling, {options.bootstrap_samples} samples."
    )


def _flags_of(change: str) -> list[str]:
    """Return `label_smoothing=0+dropout=0.1` as flags of training."""
    flags = []
    for part in change.split("+"):
        name, equals, value = part.partition("=")
        if not (name and equals and value):
            raise ValueError(f"A change must be FLAG=VALUE, such as label_smoothing=0, got {part!r}.")
        flags += [f"--{name.removeprefix('--')}", value]
    return flags


def run_flags(name: str, recipe: str, folder: Path, options: QualityArguments) -> list[str]:
    """Return the recipe and the flags of a run; the flags of its change come last and override the others."""
    # A year, because no flag removes the recipe's time limit.
    minutes = 525600.0 if options.max_minutes is None else options.max_minutes
    flags = [recipe, "--max_minutes", str(minutes)]
    flags += [] if options.max_steps is None else ["--max_steps", str(options.max_steps)]
    for change in options.set:
        flags += _flags_of(change)
    flags += ["--output_dir", str(folder / _folder_name(name))]
    return flags if name == _BASELINE else [*flags, *_flags_of(name)]


def _folder_name(name: str) -> str:
    return "baseline" if name == _BASELINE else name.replace("/", "_")


def train_and_score(name: str, flags: list[str], folder: Path, options: QualityArguments) -> list[dict[str, Any]]:
    """Train and score one run; return the rows of its final model and of the baseline's other models."""
    output = folder / _folder_name(name)
    if is_finished(output, flags):
        progress(f"Already trained: {name}")
    else:
        progress(f"Training: {name}")
        _call("train", *flags)
    models = {name: output}
    if name == _BASELINE:
        models |= {f"{_BASELINE}, {kind}": model for kind, model in other_models(output).items()}
    rows = []
    for each, model in models.items():
        found = score(translate(model, each, folder, options), each, folder, options)
        rows.append({"system": each, **(read_training(output) if each == name else {}), **found})
    return rows


def is_finished(output: Path, flags: list[str]) -> bool:
    """
    Return whether the folder holds the finished run of these flags.

    Raises:
        ValueError: it holds a run of other flags.
    """
    if not (output / "recipe.json").exists():
        return False  # training itself refuses to resume a run of other flags
    trained, requested = json.loads((output / "recipe.json").read_text(encoding="utf-8")), flatten(parse_recipe(flags))
    # The run derives the flags that were left out.
    differing = [name for name in requested if requested[name] not in (None, trained.get(name))]
    if differing:
        name = differing[0]
        raise ValueError(
            f"{output} holds a model with {name}={trained.get(name)!r}, but this run has {requested[name]!r}. "
            "Choose another --output_dir, or delete that folder."
        )
    return True


def other_models(output: Path) -> dict[str, Path]:
    """Return the models of a run besides the final one, which is the average of its checkpoints."""

    def last(prefix: str) -> list[Path]:
        return sorted(output.glob(f"{prefix}-*"), key=lambda path: int(path.name.split("-")[1]))[-1:]

    found = {"last checkpoint alone": last("checkpoint"), "EMA": [output / "ema"]}
    found["best validation"] = last("best")
    return {kind: path for kind, paths in found.items() for path in paths if path.is_dir()}


def read_training(output: Path) -> dict[str, Any]:
    """Return updates, minutes including validation, and target tokens per second from the metrics of a run."""
    entries = [json.loads(line) for line in (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    speeds = sorted(entry["tokens_per_second"] for entry in entries if "tokens_per_second" in entry)
    return {
        "updates": entries[-1]["step"],
        "minutes": entries[-1]["minutes"],
        "target tokens/s": speeds[len(speeds) // 2] if speeds else None,
    }


def train_peer(peer: Peer, recipe: Recipe, folder: Path, options: QualityArguments) -> dict[str, Any]:
    """Train another system on the recipe's text and in its sizes; return its row."""
    text = folder / "text"
    if not (text / "dataset").exists():
        text.mkdir(parents=True, exist_ok=True)
        prepare(text, [str(recipe.data.train_source), str(recipe.data.train_target)], recipe.data.vocab_size)
    (text / "test.en").write_text("\n".join(read_lines(options.test_source)) + "\n", encoding="utf-8")
    model, minutes = recipe.model, options.max_minutes or 0.0
    sizes = {"d_model": model.d_model, "heads": model.encoder_attention_heads, "layers": model.encoder_layers}
    request = asdict(TrainingArguments(**sizes, ffn_dim=model.encoder_ffn_dim))
    request |= {
        "warmup_steps": recipe.optimization.warmup_steps or _WARMUP_STEPS,
        "max_tokens": recipe.data.max_tokens,
    }
    output = folder / f"peer-{peer.toolkit or 'marian'}"
    request |= {"output": str(output), "seconds": 60 * minutes, "warm_up": 0, "updates": 1}
    progress(f"Training: {peer.name}")
    found = peer.measure_training(text, request, {})
    row = {"system": peer.name, "updates": found["updates"], "minutes": minutes}
    row |= {"target tokens/s": found["tokens_per_second"]}
    return row | score(peer.translate_file(text, output, "test.en"), peer.name, folder, options)


def score(translations: Sequence[str], name: str, folder: Path, options: QualityArguments) -> dict[str, Any]:
    """Score translations by BLEU and chrF with intervals, and compare them with the baseline's."""
    references = read_lines(options.test_target)
    baseline = None if name == _BASELINE else _read(_translations(_BASELINE, folder, options))
    report = build_report(translations, references, baseline, samples=options.bootstrap_samples).as_dict()
    row = {
        title: f"{report['scores'][metric]['score']:.2f} ± {report['scores'][metric]['margin']:.2f}"
        for metric, title in (("bleu", "BLEU"), ("chrf", "chrF"))
    }
    if report["comparison"] is None:
        return row
    against = report["comparison"]["bleu"]
    difference = report["scores"]["bleu"]["score"] - against["baseline"]["score"]
    return row | {"BLEU difference": f"{difference:+.2f}", "p-value": f"{against['p_value']:.3f}"}


def translate(model: Path, name: str, folder: Path, options: QualityArguments) -> list[str]:
    """Translate the test text, or read the translations of an earlier call."""
    path = _translations(name, folder, options)
    if not path.exists():
        progress(f"Translating: {name}")
        test = ["--source", options.test_source, "--target", options.test_target, "--bootstrap_samples", "1"]
        _call("evaluate", str(model), *test, "--output_file", str(path))
    return _read(path)


def _read(path: Path) -> list[str]:
    """Read translations, which may all be blank early in training."""
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def _translations(name: str, folder: Path, options: QualityArguments) -> Path:
    text = hashlib.sha256(Path(options.test_source).read_bytes()).hexdigest()[:8]
    return folder / f"translations-{text}" / f"{name.replace('/', '_')}.txt"


def _call(command: str, *arguments: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "vanilla_transformer", command, *arguments]
    status = subprocess.run(words, env=environment).returncode
    if status:
        raise OSError(f"`{command}` ended with status {status}. Run the same command again to resume.")


if __name__ == "__main__":
    sys.exit(run(main))
