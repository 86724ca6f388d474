r"""
Measure the speed of each cleaning rule on one process and on several, and the share of a clean text that it drops.

    python -m benchmarks.bench_cleaning --source train.en --target train.de --languages en de --pairs 200000

The text is repeated up to the number of pairs; the shares belong to its first copy. Each time includes reading the
text and writing the cleaned text. The time of a larger corpus on more processes follows from the times on one and on
two processes (Amdahl's law).
"""

import argparse
import itertools
import resource
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from vanilla_transformer.data.cached_texts import load_cached_texts
from vanilla_transformer.data.cleaning.language_identification import load_identifier
from vanilla_transformer.data.cleaning_rules import CleaningRules
from vanilla_transformer.data.readers import CorpusSpec, read_text_files

RULES = {
    "no rule": CleaningRules(),
    "min_letter_ratio": CleaningRules(min_letter_ratio=0.5),
    "drop_other_numbers": CleaningRules(drop_other_numbers=True),
    "drop_other_scripts": CleaningRules(drop_other_scripts=True),
    "drop_other_languages": CleaningRules(drop_other_languages=True),
    "drop_duplicates": CleaningRules(drop_duplicates=True),
    "drop_near_duplicates": CleaningRules(drop_near_duplicates=True),
    "drop_repeated_sources": CleaningRules(drop_repeated_sources=True),
    "drop_repeated_targets": CleaningRules(drop_repeated_targets=True),
    "all of them": CleaningRules(
        min_letter_ratio=0.5,
        drop_other_numbers=True,
        drop_other_scripts=True,
        drop_other_languages=True,
        drop_duplicates=True,
        drop_near_duplicates=True,
        drop_repeated_sources=True,
        drop_repeated_targets=True,
    ),
}
CORPUS, PROCESSES = 10_000_000, 16  # the corpus and the machine of the prediction


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    load_identifier()
    with tempfile.TemporaryDirectory() as folder:
        once = _write_corpus(options, Path(folder) / "once", None)
        repeated = _write_corpus(options, Path(folder) / "repeated", options.pairs)
        columns = " | ".join(f"pairs/s, {number} process{'es' * (number > 1)}" for number in (1, 2))
        prediction = f"minutes for {CORPUS:,} pairs, {PROCESSES} processes"
        print(f"| rule | pairs per CPU second | {columns} | {prediction} | dropped clean pairs |")
        print("|---|---|---|---|---|---|")
        for number, name in enumerate(options.rules or RULES):
            rules = RULES[name]
            caches = (Path(folder) / f"cache-{number}-{count}" for count in itertools.count())
            one, two = (_measure(repeated, rules, next(caches), processes) for processes in (1, 2))
            report = load_cached_texts([once], [rules], next(caches), 1).report
            speeds = " | ".join(f"{options.pairs / seconds:,.0f}" for seconds in (one.cpu, one.wall, two.wall))
            minutes = predict_seconds(one.wall, two.wall, PROCESSES) * CORPUS / options.pairs / 60
            share = 100 * (report.read - report.kept) / report.read
            print(f"| {name} | {speeds} | {minutes:.1f} | {share:.3f} % |", flush=True)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench_cleaning", allow_abbrev=False, description=__doc__.split("\n")[1])
    parser.add_argument("--source", required=True, help="clean text, source side")
    parser.add_argument("--target", required=True, help="clean text, target side")
    parser.add_argument("--languages", required=True, nargs=2, help="codes of both languages")
    parser.add_argument("--pairs", type=int, default=200_000, help="number of pairs to clean")
    parser.add_argument("--rules", nargs="+", choices=list(RULES), help="measure these rules only")
    return parser.parse_args(arguments)


def predict_seconds(one: float, two: float, processes: int) -> float:
    """Return the time on some processes, from the times on one and on two (Amdahl's law)."""
    parallel = min(max(2 * (one - two), 0.0), one)
    return one - parallel + parallel / processes


def _write_corpus(options: argparse.Namespace, path: Path, pairs: int | None) -> CorpusSpec:
    text = read_text_files(options.source, options.target)
    repeated = text if pairs is None else list(itertools.islice(itertools.cycle(text), pairs))
    files = []
    for side, language in enumerate(options.languages):
        file = path.with_suffix(f".{language}")
        file.write_text("".join(pair[side] + "\n" for pair in repeated), encoding="utf-8")
        files.append(str(file))
    source_language, target_language = options.languages
    return CorpusSpec(files[0], files[1], source_language=source_language, target_language=target_language)


class Seconds(NamedTuple):
    """The time of a measurement, and the time of all cores together, which other processes change little."""

    wall: float
    cpu: float


def _measure(spec: CorpusSpec, rules: CleaningRules, cache: Path, processes: int) -> Seconds:
    start, cpu = time.perf_counter(), _cpu_seconds()
    load_cached_texts([spec], [rules], cache, processes)
    return Seconds(time.perf_counter() - start, _cpu_seconds() - cpu)


def _cpu_seconds() -> float:
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


if __name__ == "__main__":
    main()
