"""
Compare the speed of two checkouts of this repository in one interleaved run: training, decoding and
the pipeline.

    python -m benchmarks.bench_paired_revisions OLD NEW [--old_python FILE] [--new_python FILE]
    [--jobs ...]

For each job one worker per checkout stays alive, and the two take turns (A B, B A, A B, …), so that
both see the same load of the machine. Ratios are new / old of each pair of rounds; the median
counts. A ratio of time above 1 means that NEW is slower. Writes `paired_revisions.md` and `.json`.
"""

import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

import torch

from benchmarks.harness import (
    ROOT,
    BenchmarkArguments,
    in_turns,
    progress,
    read_arguments,
    receive,
    start_worker,
    write_report,
)
from benchmarks.revision_worker import VOCAB_SIZE, build_tokenizer
from vanilla_transformer.cli import run

_TEXT_PAIRS = 20_000


def _training_jobs(size: str, steps: int) -> dict[str, dict[str, Any]]:
    loop = {"job": "train", "size": size, "steps": steps}
    return {
        f"{size}: training loop, float32": loop | {"mixed_precision": "no"},
        f"{size}: training loop, bf16": loop | {"mixed_precision": "bf16"},
        f"{size}: forward, backward, Adam": {"job": "step", "size": size, "steps": steps},
    }


def _decoding_jobs(size: str) -> dict[str, dict[str, Any]]:
    searches = {"greedy": 1, "beam 4": 4}
    kinds: list[tuple[str, str, dict[str, bool]]] = [("generate", "", {})]
    kinds += [
        (job, mark, {"int8": bool(mark)})
        for job in ("pipeline", "stream", "engine")
        for mark in ("", ", int8")
    ]
    return {
        f"{size}: {job}, {search}{mark}": {"job": job, "size": size, "num_beams": beams} | more
        for job, mark, more in kinds
        for search, beams in searches.items()
    }


JOBS = _training_jobs("demo", 20) | _training_jobs("small", 4) | _training_jobs("base", 1)
JOBS |= _decoding_jobs("small") | _decoding_jobs("base")


@dataclass
class RevisionsArguments(BenchmarkArguments):
    """The interpreters, the jobs, and how long they are measured."""

    SHORT: ClassVar[dict[str, Any]] = {"rounds": 3}

    old_python: str | None = field(
        default=None, metadata={"help": "Interpreter of OLD; default OLD/.venv/bin/python."}
    )
    new_python: str | None = field(
        default=None, metadata={"help": "Interpreter of NEW; default NEW/.venv/bin/python."}
    )
    jobs: list[str] | None = field(
        default=None,
        metadata={"help": "Only jobs whose name contains one of these words; by default all."},
    )
    rounds: int = field(default=15, metadata={"help": "Pairs of rounds of each job."})
    threads: int | None = field(
        default=None, metadata={"help": "OMP_NUM_THREADS of both sides; default: as inherited."}
    )


def main(arguments: Sequence[str]) -> None:
    """Measure the chosen jobs on both checkouts and write the table."""
    roots, options = read_arguments(
        RevisionsArguments, arguments, "bench_paired_revisions OLD NEW", (2,)
    )
    for root in roots:
        if not Path(root, "vanilla_transformer").is_dir():
            raise ValueError(
                f"Name the roots of two checkouts, OLD and NEW, but {root} is not one."
            )
    chosen = {
        name: job
        for name, job in JOBS.items()
        if any(word in name for word in options.jobs or [""])
    }
    if not chosen or options.rounds < 1:
        raise ValueError(
            f"There must be a job and a round, got --jobs {options.jobs} and --rounds "
            f"{options.rounds}."
        )
    sides, results = _sides(roots, options), []
    with tempfile.TemporaryDirectory(prefix="revisions-") as folder:
        write_text(Path(folder))
        for name, job in chosen.items():
            results.append({"job": name} | row(measure(sides, job, Path(folder), options)))
            progress(str(results[-1]))
    notes = [
        f"OLD: {roots[0]}. NEW: {roots[1]}. {options.rounds} pairs of rounds, which take turns.",
        "Ratios are new / old for the same work; lower is better, 1.00 is equal.",
        "Units are target tokens; for the pipeline, sentences.",
    ]
    write_report("paired_revisions", options, results, notes)


def _sides(roots: Sequence[str], options: RevisionsArguments) -> dict[str, tuple[Path, str]]:
    """Return root and interpreter of "old" and "new"."""
    pythons = (options.old_python, options.new_python)
    return {
        name: (Path(root).absolute(), python or f"{Path(root).absolute()}/.venv/bin/python")
        for name, root, python in zip(("old", "new"), roots, pythons, strict=True)
    }


def write_text(folder: Path) -> None:
    """Write parallel text of random words and the tokenizer that both sides train with."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(4, 31, (_TEXT_PAIRS,), generator=generator).tolist()
    for side in ("a", "b"):
        lines = (
            torch.randint(VOCAB_SIZE - 3, (length,), generator=generator).tolist()
            for length in lengths
        )
        text = "".join(" ".join(f"w{word}" for word in line) + "\n" for line in lines)
        (folder / f"train.{side}").write_text(text, encoding="utf-8")
    build_tokenizer().save_pretrained(folder / "tokenizer")


def measure(
    sides: dict[str, tuple[Path, str]],
    job: dict[str, Any],
    folder: Path,
    options: RevisionsArguments,
) -> dict[str, list[dict[str, Any]]]:
    """
    Return the rounds of both sides, which take turns.

    Raises:
        RuntimeError: a worker failed, or it imported the package from another place.
    """
    with ExitStack() as stack:
        workers = {}
        for name, (root, python) in sides.items():
            request = job | ({"folder": str(folder), "name": name} if job["job"] == "train" else {})
            environment = {"PYTHONPATH": str(root), "TOKENIZERS_PARALLELISM": "false"}
            environment |= (
                {} if options.threads is None else {"OMP_NUM_THREADS": str(options.threads)}
            )
            command = [python, str(ROOT / "benchmarks" / "revision_worker.py"), json.dumps(request)]
            workers[name] = stack.enter_context(start_worker(command, environment, root))
            imported = Path(receive(workers[name])["ready"])
            if not imported.is_relative_to(root):
                raise RuntimeError(f"The worker of {root} imported {imported}.")
        return in_turns(workers, None, options.rounds)


def ratios(rounds: dict[str, list[dict[str, Any]]], clock: str) -> list[float]:
    """Return the time per unit of work, new / old, of each pair of rounds."""
    pairs = zip(rounds["old"], rounds["new"], strict=True)
    return [(new[clock] / new["units"]) / (old[clock] / old["units"]) for old, new in pairs]


def row(rounds: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Return the row of a job: ratios, speeds, and whether both sides had the same outputs."""
    digests = {each["digest"] for side in rounds.values() for each in side}
    speeds = {
        f"{name}, units/s": median(each["units"] / each["seconds"] for each in side)
        for name, side in rounds.items()
    }
    return {
        "time ratio": ratios(rounds, "seconds"),
        "CPU time ratio": ratios(rounds, "cpu_seconds"),
        **speeds,
        "same outputs": None if digests == {None} else len(digests) == 1,
    }


if __name__ == "__main__":
    sys.exit(run(main))
