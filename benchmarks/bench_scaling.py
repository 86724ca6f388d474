"""
Measure how time and memory grow with the task, for this package and MarianMTModel of transformers.

    python -m benchmarks.bench_scaling --curves "source length,beams"

Decoding: against the source length, the number of sentences, beams, and the vocabulary; by the small model with random
weights, 32 tokens per sentence. Data: from text files to the first update of training, against the size of the corpus.
Each point is a separate process.
"""

import math
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from benchmarks.harness import run_worker, write_curves
from vanilla_transformer.cli import run
from vanilla_transformer.cli.arguments import parse
from vanilla_transformer.data.tokenizer_training import train_tokenizer

SIDES = ("ours", "Marian")
# Name of a curve: its values, and changes of the defaults (32 sentences of 24 tokens, greedy, vocabulary of 8,000).
CURVES: dict[str, tuple[list[int], dict[str, int]]] = {
    "source length": ([64, 128, 256, 512, 1024, 2048, 4096, 8192], {"sentences": 1}),
    "sentences": ([1, 4, 16, 64, 256], {}),
    "beams": ([1, 2, 4, 8, 16], {"sentences": 16}),
    "vocabulary": ([1024, 4096, 16384, 65536], {}),
    "pairs of text": ([1_000, 10_000, 100_000, 400_000], {}),
}


@dataclass
class ScalingArguments:
    """Curves, points and rounds."""

    curves: str = field(default=",".join(CURVES), metadata={"help": "Names of curves, separated by commas."})
    points: int | None = field(
        default=None, metadata={"help": "Points per curve, from the smallest on; by default all."}
    )
    rounds: int = field(default=3, metadata={"help": "Rounds per point; the best counts."})
    output_dir: str = field(default="benchmarks/results", metadata={"help": "Folder of scaling.md, .json and .png."})


def main(arguments: Sequence[str]) -> None:
    words, options = parse(ScalingArguments, arguments, "bench_scaling.py [--flags]")
    write_curves("scaling", words, options, CURVES, lambda name: measure_curve(name, options), markdown, draw)


def measure_curve(name: str, options: ScalingArguments) -> list[dict[str, Any]]:
    """Measure both systems at each point, taking turns."""
    values, fixed = CURVES[name]
    with tempfile.TemporaryDirectory() as folder:
        request: dict[str, Any] = {"curve": name, "rounds": options.rounds} | fixed
        if name == "pairs of text":
            _write_text(Path(folder), values[: options.points])
            request["folder"] = folder
        points = []
        for value in values[: options.points]:
            sides = {side: _point(request | {"side": side, "value": value}) for side in SIDES}
            print(f"{name} {value}: {sides}", file=sys.stderr)
            points.append({"value": value} | sides)
        return points


def _point(request: dict[str, Any]) -> dict[str, float]:
    return run_worker("scaling_worker", request)


def _write_text(folder: Path, sizes: Sequence[int]) -> None:
    """Repeat the demo corpus up to each size, with a different number in each line."""
    from vanilla_transformer.data.demo_corpus import write_demo_corpus

    write_demo_corpus(folder / "corpus", train=10_000, validation=1, test=1)
    for end in ("en", "de"):
        lines = (folder / "corpus" / f"train.{end}").read_text(encoding="utf-8").splitlines()
        for size in sizes:
            text = (f"{line} {number}" for number, line in enumerate(islice(cycle(lines), size)))
            (folder / f"{size}.{end}").write_text("\n".join(text) + "\n", encoding="utf-8")
    train_tokenizer(lines, vocab_size=2000).save_pretrained(folder / "tokenizer")


def slope(points: Sequence[dict[str, Any]], side: str, what: str) -> float:
    """Return the exponent of growth between the last two points."""
    last, before = points[-1], points[-2]
    if min(last[side][what], before[side][what]) <= 0.0:
        return 0.0
    return math.log(last[side][what] / before[side][what]) / math.log(last["value"] / before["value"])


def markdown(name: str, points: Sequence[dict[str, Any]]) -> list[str]:
    """Return a table with a row for each point, and the growth exponents at its end."""
    lines = [f"| {name} | speedup over Marian | ours, MiB | Marian, MiB |", "|---|---|---|---|"]
    for point in points:
        ours, marian = point["ours"], point["Marian"]
        lines.append(
            f"| {point['value']:,} | {marian['seconds'] / ours['seconds']:.2f} | {ours['mib']:,.0f} | "
            f"{marian['mib']:,.0f} |"
        )
    if len(points) > 1:
        grows = ", ".join(f"{side} {slope(points, side, 'seconds'):.2f}" for side in SIDES)
        lines += ["", f"Exponent of the growth of time between the last two rows: {grows}."]
    return [*lines, ""]


def draw(found: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Draw time above memory, one column per curve, on logarithmic axes."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, len(found), figsize=(3.4 * len(found), 6), squeeze=False)
    for column, (name, points) in enumerate(found.items()):
        for row, (what, label) in enumerate((("seconds", "seconds"), ("mib", "MiB"))):
            for side, style in zip(SIDES, ("o-", "s--"), strict=True):
                values = [point["value"] for point in points]
                axes[row][column].plot(values, [max(point[side][what], 0.1) if what == "mib" else point[side][what]
                                                for point in points], style, label=side)  # fmt: skip
            axes[row][column].set(xscale="log", yscale="log", xlabel=name, ylabel=label)
            axes[row][column].grid(alpha=0.3)
    axes[0][0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    sys.exit(run(main))
