"""
Convert a model folder to every format, and back where possible, and compare the results with the model.

    python -m benchmarks.bench_conversion runs/multi30k_en_de --sentences test_2016_flickr.en

Both sides use greedy search in batches of 16. The speedup is relative to the original model in float32.
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

# Formats that can be both written and read.
_BOTH_WAYS = ("marian",)


@dataclass
class BenchmarkArguments:
    """Text and output file."""

    sentences: str = field(metadata={"help": "Source text, one sentence per line."})
    count: int = field(default=200, metadata={"help": "Number of sentences to compare."})
    output_file: str | None = field(default=None, metadata={"help": "Write the table to this file, too."})


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
