r"""
Compare choices of a recipe: short training runs that differ in one flag each, scored on a test set.

    python -m benchmarks.bench_ablations recipes/multi30k_en_de.yaml --max_steps 1500 \
        --test_source test.en --test_target test.de --change label_smoothing=0 --change dropout=0.1 --change seed=1

The unchanged recipe (with --max_steps or --max_minutes) is the baseline. Each change is trained after it and compared
with it by paired bootstrap resampling. The baseline's last checkpoint, EMA and best validation checkpoint are scored
as well. Finished runs in --output_dir are not repeated, and an interrupted run resumes. The tables are rewritten after
every run.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, progress
from vanilla_transformer.cli import run
from vanilla_transformer.data.readers import read_lines
from vanilla_transformer.evaluation.report import build_report
from vanilla_transformer.training.arguments import flatten, parse_recipe

_BASELINE = "the recipe"


def main(arguments: Sequence[str]) -> None:
    options = parse(arguments)
    folder = Path(options.output_dir)
    names = [_BASELINE, *dict.fromkeys(options.change)]
    rows: list[dict[str, Any]] = []
    flags = {name: run_flags(name, folder, options) for name in names}
    for name in names:  # refuse an unknown flag before training anything
        parse_recipe(flags[name])
    for name in names:
        rows += train_and_score(name, flags[name], folder, options)
        write_tables(folder, options, rows)
    print((folder / "choices.md").read_text(encoding="utf-8"), end="")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench_ablations", allow_abbrev=False, description=__doc__.split("\n")[1])
    parser.add_argument("recipe", help="YAML file of the baseline")
    parser.add_argument("--test_source", required=True, help="test text, source side")
    parser.add_argument("--test_target", required=True, help="test text, target side")
    parser.add_argument(
        "--change",
        action="append",
        default=[],
        metavar="FLAG=VALUE",
        help="a run with this flag; join several flags by +",
    )
    budget = parser.add_mutually_exclusive_group(required=True)
    budget.add_argument("--max_steps", type=int, help="updates per run")
    budget.add_argument("--max_minutes", type=float, help="minutes per run")
    parser.add_argument("--set", action="append", default=[], metavar="FLAG=VALUE", help="a flag for all runs")
    parser.add_argument("--output_dir", default="runs/choices", help="folder of the runs, choices.md and choices.json")
    parser.add_argument(
        "--bootstrap_samples", type=int, default=1000, help="bootstrap resamples for intervals and p-values"
    )
    options = parser.parse_args(arguments)
    for change in (*options.change, *options.set):
        _flags_of(change)
    return options


def _flags_of(change: str) -> list[str]:
    """Return `label_smoothing=0+dropout=0.1` as flags of training."""
    flags = []
    for part in change.split("+"):
        name, equals, value = part.partition("=")
        if not (name and equals and value):
            raise ValueError(f"A change must be FLAG=VALUE, such as label_smoothing=0, got {part!r}.")
        flags += [f"--{name.removeprefix('--')}", value]
    return flags


def run_flags(name: str, folder: Path, options: argparse.Namespace) -> list[str]:
    """Return the recipe and the flags of a run; the flags of its change come last and override the others."""
    # A year, because no flag removes the recipe's time limit.
    minutes = 525600.0 if options.max_minutes is None else options.max_minutes
    flags = [options.recipe, "--max_minutes", str(minutes)]
    flags += [] if options.max_steps is None else ["--max_steps", str(options.max_steps)]
    for change in options.set:
        flags += _flags_of(change)
    flags += ["--output_dir", str(folder / _folder_name(name))]
    return flags if name == _BASELINE else [*flags, *_flags_of(name)]


def _folder_name(name: str) -> str:
    return "baseline" if name == _BASELINE else name.replace("/", "_")


def train_and_score(name: str, flags: list[str], folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Train and score one run; return the rows of its final model and of the baseline's other models."""
    output = folder / _folder_name(name)
    if is_finished(output, flags):
        progress(f"Already trained: {name}")
    else:
        progress(f"Training: {name}")
        _call("train.py", *flags)
    rows = [{"choice": name, **read_training(output), **score(output, name, folder, options)}]
    if name == _BASELINE:
        for kind, model in other_models(output).items():
            other = f"{_BASELINE}, {kind}"
            rows.append({"choice": other, **score(model, other, folder, options)})
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
    differing = [name for name in requested if requested[name] != trained.get(name)]
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
        "tokens_per_second": speeds[len(speeds) // 2] if speeds else None,
    }


def score(model: Path, name: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Score a model by BLEU and chrF with intervals, and compare it with the baseline unless it is the baseline."""
    references = read_lines(options.test_target)
    translations = translate(model, name, folder, options)
    baseline = None if name == _BASELINE else _read(_translations(_BASELINE, folder, options))
    found = build_report(translations, references, baseline, samples=options.bootstrap_samples).as_dict()
    return {"scores": found["scores"], "comparison": found["comparison"]}


def translate(model: Path, name: str, folder: Path, options: argparse.Namespace) -> list[str]:
    """Translate the test text, or read the translations of an earlier call."""
    path = _translations(name, folder, options)
    if not path.exists():
        progress(f"Translating: {name}")
        test = ["--source", options.test_source, "--target", options.test_target, "--bootstrap_samples", "1"]
        _call("evaluate.py", str(model), *test, "--output_file", str(path))
    return _read(path)


def _read(path: Path) -> list[str]:
    """Read translations, which may all be blank early in training."""
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def _translations(name: str, folder: Path, options: argparse.Namespace) -> Path:
    text = hashlib.sha256(Path(options.test_source).read_bytes()).hexdigest()[:8]
    return folder / f"translations-{text}" / f"{name.replace('/', '_')}.txt"


def _call(script: str, *arguments: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    status = subprocess.run([sys.executable, str(ROOT / "scripts" / script), *arguments], env=environment).returncode
    if status:
        raise OSError(f"{script} ended with status {status}. Run the same command again to resume.")


def write_tables(folder: Path, options: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    results = {**vars(options), "rows": rows}
    (folder / "choices.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (folder / "choices.md").write_text("\n".join(markdown(results)) + "\n", encoding="utf-8")


def markdown(results: dict[str, Any]) -> Iterator[str]:
    """Yield a table with a row for each scored model."""
    budget = f"{results['max_steps']} updates" if results["max_steps"] else f"{results['max_minutes']:g} minutes"
    more = f", all with {', '.join(results['set'])}" if results["set"] else ""
    yield f"`{results['recipe']}`{more}, {budget} each. Scores on {Path(results['test_source']).name}, ± half of the"
    yield f"95 % interval; p-values of paired bootstrap resampling, {results['bootstrap_samples']} samples."
    yield ""
    yield "| recipe | updates | minutes | target tokens/s | BLEU | chrF | BLEU difference | p-value |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in results["rows"]:
        yield f"| {' | '.join(_cells(row))} |"


def _cells(row: dict[str, Any]) -> Iterator[str]:
    yield row["choice"]
    formats = {"updates": ",", "minutes": ".1f", "tokens_per_second": ",.0f"}
    yield from (format(row[name], shape) if row.get(name) is not None else "" for name, shape in formats.items())
    for metric in ("bleu", "chrf"):
        yield f"{row['scores'][metric]['score']:.2f} ± {row['scores'][metric]['margin']:.2f}"
    if row["comparison"] is None:
        yield from ("", "")
        return
    against = row["comparison"]["bleu"]
    yield f"{row['scores']['bleu']['score'] - against['baseline']['score']:+.2f}"
    yield f"{against['p_value']:.3f}"


if __name__ == "__main__":
    sys.exit(run(main))
