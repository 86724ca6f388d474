"""
Run every comparison with other toolkits, or the parts named.

    python -m benchmarks.bench_all [PART ...] [--short] [--data FOLDER] [--model FOLDER] [--output_dir FOLDER]

Parts: decoding (random weights), stream (translation of real text by a trained model), training (speed), memory (of
training with a vocabulary of 32,000), quality (BLEU after minutes of training), startup (imports and the first
translation). long_sequences runs only if it is named. Each part writes a table and JSON; `benchmark.md` collects all
tables.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vanilla_transformer.cli import run
from vanilla_transformer.cli.arguments import parse


@dataclass
class BenchmarkArguments:
    """Data, model and length of the benchmarks."""

    short: bool = field(default=False, metadata={"help": "Fewer rounds, sizes and seconds."})
    data: str | None = field(
        default=None,
        metadata={"help": "Folder with train.en, train.de, test.en and test.de; by default the demo corpus."},
    )
    model: str | None = field(
        default=None, metadata={"help": "Trained model for `stream`; by default the one that `quality` trained."}
    )
    output_dir: str = field(
        default="benchmarks/results", metadata={"help": "Folder of the tables, JSON files and pictures."}
    )


def main(arguments: Sequence[str]) -> None:
    names, options = parse(BenchmarkArguments, arguments, "bench_all.py [PART ...] [--flags]")
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise ValueError(f"There is no part {unknown[0]!r}. The parts are {', '.join(PARTS)}.")
    from benchmarks.harness import describe_machine

    output = Path(options.output_dir)
    output.mkdir(parents=True, exist_ok=True)
    data = Path(options.data) if options.data is not None else _demo_corpus(output / "text")
    for name in names or [part for part in PARTS if part not in _ONLY_IF_NAMED]:
        print(f"\n== {name}", file=sys.stderr)
        PARTS[name](data, options)
    tables = [path for name in PARTS if (path := output / f"{name}.md").exists()]
    parts = [f"## {path.stem}\n\n{path.read_text(encoding='utf-8')}" for path in tables]
    about = ", ".join(f"{name} {value}" for name, value in describe_machine().items())
    (output / "benchmark.md").write_text(f"# Benchmark tables\n\n{about}\n\n" + "\n".join(parts), encoding="utf-8")
    print(f"\nAll tables are in {output / 'benchmark.md'}.")


def _demo_corpus(folder: Path) -> Path:
    from vanilla_transformer.data.demo_corpus import write_demo_corpus

    if not folder.exists():
        write_demo_corpus(folder, train=10_000)
    return folder


def _decoding(_: Path, options: BenchmarkArguments) -> None:
    from benchmarks import bench_decoding

    flags = ["--rounds", "2", "--sizes", "small"] if options.short else []
    bench_decoding.main([*flags, "--output_file", f"{options.output_dir}/decoding.md"])


def _stream(data: Path, options: BenchmarkArguments) -> None:
    from benchmarks import bench_decoding

    model = options.model or str(_quality_folder(options) / "ours-1")
    if not Path(model).exists():
        raise ValueError(
            f"`stream` needs a trained model, but {model} does not exist. Pass --model FOLDER or run the part "
            "`quality` first."
        )
    text = ["--sentences", str(data / "test.en"), "--references", str(data / "test.de")]
    flags = ["--rounds", "1", "--count", "200"] if options.short else ["--rounds", "2"]
    bench_decoding.main(["--folder", model, *text, *flags, "--output_file", f"{options.output_dir}/stream.md"])


def _training(data: Path, options: BenchmarkArguments, *more: str, name: str = "training") -> None:
    from benchmarks import bench_training

    files = [str(data / "train.en"), str(data / "train.de")]
    flags = ["--seconds", "5", "--updates", "5", "--repeats", "1"] if options.short else []
    if options.short and "--sides" not in more:
        flags += ["--sides", *_numbers(bench_training.LEANEST)]
    bench_training.main([*files, *more, *flags, "--name", name, "--output_dir", options.output_dir])


def _memory(data: Path, options: BenchmarkArguments) -> None:
    """Measure memory, which needs a few updates only, with the leanest sides."""
    from benchmarks.bench_training import LEANEST

    flags = ["--vocab_size", "32000", "--fill_vocabulary", "--seconds", "10", "--updates", "10", "--repeats", "1"]
    _training(data, options, *flags, "--sides", *_numbers(LEANEST), name="memory")


def _numbers(sides: Sequence[str]) -> list[str]:
    from benchmarks.bench_training import SIDES

    return [str(number) for number, side in enumerate(SIDES) if side in sides]


def _quality(data: Path, options: BenchmarkArguments) -> None:
    from benchmarks import bench_quality

    files = [str(data / f"{part}.{end}") for part in ("train", "test") for end in ("en", "de")]
    flags = ["--minutes", "0.25", "--seeds", "1", "--count", "50"] if options.short else []
    bench_quality.main([*files, *flags, "--folder", str(_quality_folder(options)), "--output_dir", options.output_dir])


def _quality_folder(options: BenchmarkArguments) -> Path:
    return Path(options.output_dir) / "quality"


def _startup(_: Path, options: BenchmarkArguments) -> None:
    from benchmarks import bench_startup

    bench_startup.main([*(["--rounds", "1"] if options.short else []), "--output_dir", options.output_dir])


def _long_sequences(_: Path, options: BenchmarkArguments) -> None:
    from benchmarks import bench_long_sequences

    flags = ["--points", "2", "--rounds", "1"] if options.short else []
    bench_long_sequences.main([*flags, "--output_dir", options.output_dir])


PARTS: dict[str, Callable[[Path, BenchmarkArguments], None]] = {
    "decoding": _decoding,
    "training": _training,
    "memory": _memory,
    "quality": _quality,
    "stream": _stream,
    "startup": _startup,
    "long_sequences": _long_sequences,
}
# Parts without another toolkit run only if they are named.
_ONLY_IF_NAMED = ("long_sequences",)


if __name__ == "__main__":
    sys.exit(run(main))
