"""
What conversions change: a model folder written in every format, and what came back, against the model itself.

    python -m benchmarks.bench_conversion runs/multi30k_en_de --sentences test_2016_flickr.en

Greedy search on both sides, in batches of 16 and on one machine; speed is that of the converted model over the
original's, which is torch in float32.
"""

import platform
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vanilla_transformer.cli import run
from vanilla_transformer.cli.arguments import parse
from vanilla_transformer.conversion import READERS, WRITERS
from vanilla_transformer.conversion.comparison import Comparison
from vanilla_transformer.data.readers import read_lines

# Formats of which one direction writes what the other reads.
_BOTH_WAYS = ("marian",)


@dataclass
class BenchmarkArguments:
    """What is translated, and where the table goes."""

    sentences: str = field(metadata={"help": "Text of the source language, one sentence a line."})
    count: int = field(default=200, metadata={"help": "Sentences compared."})
    output_file: str | None = field(default=None, metadata={"help": "Write the table there as well."})


def main(arguments: Sequence[str]) -> None:
    words, options = parse(BenchmarkArguments, arguments, "conversions.py FOLDER --sentences FILE [--flags]")
    if len(words) != 1:
        raise ValueError(f"Name one model folder before the flags, got {len(words)} names.")
    sentences = read_lines(options.sentences)[: options.count]
    rows = []
    with tempfile.TemporaryDirectory() as aside:
        for name, convert in WRITERS.items():
            rows.append(_row(f"out: {name}", convert(words[0], f"{aside}/{name}", sentences)))
        for name in _BOTH_WAYS:
            rows.append(_row(f"in: {name}", READERS[name](f"{aside}/{name}", f"{aside}/back-{name}", sentences)))
    text = "\n".join([_about(), "", *_HEAD, *rows]) + "\n"
    print(text, end="")
    if options.output_file is not None:
        Path(options.output_file).write_text(text, encoding="utf-8")


_HEAD = (
    "| conversion | identical outputs | largest logit difference | speedup (higher is better) |",
    "|---|---|---|---|",
)


def _row(name: str, found: Comparison | None) -> str:
    assert found, "all formats here have both sides"
    logits = "not shown" if found.max_logit_difference is None else f"{found.max_logit_difference:.1e}"
    return f"| {name} | {found.num_identical} of {found.num_sentences} | {logits} | × {found.speedup:.2f} |"


def _about() -> str:
    return f"{platform.machine()}, Python {platform.python_version()}"


if __name__ == "__main__":
    sys.exit(run(main))
