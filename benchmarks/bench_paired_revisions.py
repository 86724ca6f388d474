"""
Compare the speed of two checkouts of this repository in one interleaved run: training, decoding and the pipeline.

    python -m benchmarks.bench_paired_revisions OLD NEW [--old_python FILE] [--new_python FILE] [--jobs ...]

For each job one worker per checkout stays alive, and the two take turns (A B, B A, A B, …), so that both see the same
load of the machine. Ratios are new / old of each pair of rounds; the median counts. A ratio of time above 1 means
that NEW is slower. Writes `paired_revisions.md` and `.json`.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch

from benchmarks.harness import ROOT, describe_machine, write_results
from benchmarks.revision_worker import VOCAB_SIZE, build_tokenizer
from vanilla_transformer.cli import run
from vanilla_transformer.cli.arguments import parse

_SETTLE_SECONDS = 0.2  # lets the other worker's threads stop waiting for work
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
    return {
        f"{size}: {job}, {search}{precision}": {"job": job, "size": size, "num_beams": beams, "int8": bool(precision)}
        for job in ("generate", "pipeline", "stream", "engine")
        for search, beams in searches.items()
        for precision in ("", ", int8")
    }


JOBS = _training_jobs("demo", 20) | _training_jobs("small", 4) | _training_jobs("base", 1)
JOBS |= _decoding_jobs("small") | _decoding_jobs("base")


@dataclass
class BenchmarkArguments:
    """The interpreters, the jobs, and how long they are measured."""

    old_python: str | None = field(
        default=None, metadata={"help": "Interpreter of OLD; default OLD/.venv/bin/python."}
    )
    new_python: str | None = field(
        default=None, metadata={"help": "Interpreter of NEW; default NEW/.venv/bin/python."}
    )
    jobs: list[str] = field(
        default_factory=lambda: [""], metadata={"help": "Only jobs whose name contains one of these words."}
    )
    rounds: int = field(default=15, metadata={"help": "Pairs of rounds of each job."})
    threads: int | None = field(
        default=None, metadata={"help": "OMP_NUM_THREADS of both sides; default: as inherited."}
    )
    output_dir: str = field(default="benchmarks/results", metadata={"help": "Folder of the table and the JSON."})


def main(arguments: Sequence[str]) -> None:
    """Measure the chosen jobs on both checkouts and write the table."""
    roots, options = parse(BenchmarkArguments, arguments, "bench_paired_revisions OLD NEW [--flags]")
    if len(roots) != 2 or not all((Path(root) / "vanilla_transformer").is_dir() for root in roots):
        raise ValueError(f"Name the roots of two checkouts, OLD and NEW, before the flags, got {' '.join(roots)!r}.")
    chosen = {name: job for name, job in JOBS.items() if any(word in name for word in options.jobs)}
    if not chosen or options.rounds < 1:
        raise ValueError(f"There must be a job and a round, got --jobs {options.jobs} and --rounds {options.rounds}.")
    sides = _sides(roots, options)
    results = []
    with tempfile.TemporaryDirectory(prefix="revisions-") as folder:
        write_text(Path(folder))
        for name, job in chosen.items():
            print(f"{name} ...", file=sys.stderr)
            results.append({"job": name} | measure(sides, job, Path(folder), options))
            print(_row(results[-1]), file=sys.stderr)
    report = {"machine": describe_machine(), "old": roots[0], "new": roots[1], **asdict(options), "results": results}
    write_results(options.output_dir, "paired_revisions", report, markdown(report))


def _sides(roots: Sequence[str], options: BenchmarkArguments) -> dict[str, tuple[Path, str]]:
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
        lines = (torch.randint(VOCAB_SIZE - 3, (length,), generator=generator).tolist() for length in lengths)
        text = "".join(" ".join(f"w{word}" for word in line) + "\n" for line in lines)
        (folder / f"train.{side}").write_text(text, encoding="utf-8")
    build_tokenizer().save_pretrained(folder / "tokenizer")


def measure(
    sides: dict[str, tuple[Path, str]], job: dict[str, Any], folder: Path, options: BenchmarkArguments
) -> dict[str, Any]:
    """Return the rounds of both sides, which take turns, and the ratios new / old of each pair."""
    with ExitStack() as stack:
        workers = {
            name: stack.enter_context(worker(*side, job, folder / name, options.threads))
            for name, side in sides.items()
        }
        rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in workers}
        for number in range(options.rounds):
            for name in list(workers) if number % 2 == 0 else reversed(list(workers)):
                time.sleep(_SETTLE_SECONDS)
                rounds[name].append(_ask(workers[name], job))
    return {"rounds": rounds, "ratios": {clock: ratios(rounds, clock) for clock in ("seconds", "cpu_seconds")}}


@contextmanager
def worker(
    root: Path, python: str, job: dict[str, Any], folder: Path, threads: int | None
) -> Iterator["subprocess.Popen[str]"]:
    """
    Start the worker of one checkout and yield it once it is ready.

    Raises:
        RuntimeError: it failed, or it imported the package from another place.
    """
    request = job | ({"folder": str(folder.parent), "name": folder.name} if job["job"] == "train" else {})
    environment = os.environ | {"PYTHONPATH": str(root), "CUDA_VISIBLE_DEVICES": "", "TOKENIZERS_PARALLELISM": "false"}
    environment |= {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
    command = [python, str(ROOT / "benchmarks" / "revision_worker.py"), json.dumps(request)]
    process = subprocess.Popen(
        command, env=environment, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    try:
        imported = Path(_read(process, job)["ready"])
        if not imported.is_relative_to(root):
            raise RuntimeError(f"The worker of {root} imported {imported}.")
        yield process
    finally:
        process.stdin.close()
        process.wait()


def _ask(process: "subprocess.Popen[str]", job: dict[str, Any]) -> dict[str, Any]:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return _read(process, job)


def _read(process: "subprocess.Popen[str]", job: dict[str, Any]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"The worker ended with status {process.wait()}: {json.dumps(job)}")
    return json.loads(line)


def ratios(rounds: dict[str, list[dict[str, Any]]], clock: str) -> list[float]:
    """Return the time per unit of work, new / old, of each pair of rounds."""
    pairs = zip(rounds["old"], rounds["new"], strict=True)
    return [(new[clock] / new["units"]) / (old[clock] / old["units"]) for old, new in pairs]


def markdown(report: dict[str, Any]) -> Iterator[str]:
    """Yield a table with a row for each job."""
    machine = report["machine"]
    yield f"{machine['cpu']}, {machine['cores']} cores; python {machine['python']}, torch {machine['torch']}."
    yield f"OLD: {report['old']}. NEW: {report['new']}. {report['rounds']} pairs of rounds, which take turns."
    yield "Time ratio: new / old for the same work, median [quartiles]; lower is better, 1.00 is equal."
    yield ""
    yield "| job | time ratio | CPU time ratio | old, units/s | new, units/s | same outputs |"
    yield "|---|---|---|---|---|---|"
    for row in report["results"]:
        yield _row(row)
    yield ""
    yield "Units are target tokens; for the pipeline, sentences."


def _row(result: dict[str, Any]) -> str:
    cells = [_spread(result["ratios"][clock]) for clock in ("seconds", "cpu_seconds")]
    cells += [f"{_speed(result['rounds'][side]):,.0f}" for side in ("old", "new")]
    return f"| {result['job']} | {' | '.join(cells)} | {_same_outputs(result['rounds'])} |"


def _spread(values: Sequence[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.3f}"
    first, middle, third = quantiles(values, n=4, method="inclusive")
    return f"{middle:.3f} [{first:.3f}, {third:.3f}]"


def _speed(rounds: Sequence[dict[str, Any]]) -> float:
    return median(each["units"] / each["seconds"] for each in rounds)


def _same_outputs(rounds: dict[str, list[dict[str, Any]]]) -> str:
    digests = {each["digest"] for side in rounds.values() for each in side}
    if digests == {None}:
        return ""
    return "yes" if len(digests) == 1 else "NO"


if __name__ == "__main__":
    sys.exit(run(main))
