"""
Tasks that need the length, and what a memory is worth:

- "copy": a word, and the same word in capitals. "recall": a list of pairs, and then the first of each, asked for the
  second. There is noise before and between, so that what is told stands up to the whole length before what is asked.
  The budget is what linear and LSH attention take, at the most, for a training step of the long length; softmax, which
  keeps its square, learns up to the longest one that it can take in that memory. Relative attention reads the text in
  segments. Each learns for the same time.
- "context": perplexity of documents that have each their own frequencies of words, read in segments of 16 words,
  against how much of the earlier segments is remembered.

    python -m benchmarks.bench_long_tasks --parts copy,recall --minutes 4 --at_once 2
"""

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness import RELEASE_FREED_PAGES, growth_exponent, run_worker, write_results
from benchmarks.long_tasks_worker import CHOICES, SEGMENT, SHORTEST, TASKS, WORDS
from vanilla_transformer.cli import run
from vanilla_transformer.cli.arguments import parse

FRUGAL, LAVISH = ("linear", "lsh", "relative"), "softmax"
MEMORIES = [0, 4, 8, 16, 32, 64, 128]


@dataclass
class TaskArguments:
    """Which tasks, how long, and for how many minutes each side learns."""

    parts: str = field(default="copy,recall,context", metadata={"help": "Names, with commas."})
    length: int = field(default=2048, metadata={"help": "The long length; a power of two."})
    minutes: float = field(default=6.0, metadata={"help": "That each side learns."})
    learning_rate: float = field(default=0.003, metadata={"help": "The highest, on all sides."})
    seed: int = field(default=1, metadata={"help": "Of weights and tasks."})
    at_once: int = field(default=2, metadata={"help": "Trainings at the same time, which share the cores."})
    output_dir: str = field(default="benchmarks/results", metadata={"help": "Folder of long_tasks.md, .json, .png."})


def main(arguments: Sequence[str]) -> None:
    words, options = parse(TaskArguments, arguments, "bench_long_tasks.py [--flags]")
    parts = options.parts.split(",")
    if words or not set(parts) <= {*TASKS, "context"}:
        raise ValueError(f"`parts` must be of {', '.join(TASKS)} and context, got {options.parts!r}.")
    if options.length < SHORTEST or options.length & (options.length - 1):
        raise ValueError(f"`length` must be a power of two of {SHORTEST} or more, got {options.length}.")
    found: dict[str, Any] = {}
    jobs = [job for part in parts for job in (context_jobs() if part == "context" else task_jobs(part, options))]
    with ThreadPoolExecutor(options.at_once) as pool:
        for (part, side, request), result in zip(
            jobs, pool.map(lambda job: train(job[2], options), jobs), strict=True
        ):
            found.setdefault(part, {})[side] = {
                key: request[key] for key in ("length", "mib") if key in request
            } | result
    write_results(options.output_dir, "long_tasks", asdict(options) | found, markdown(found, options.length))
    draw(found, Path(options.output_dir, "long_tasks.png"))


def task_jobs(task: str, options: TaskArguments) -> list[tuple[str, str, dict[str, Any]]]:
    """A training for each side, at the length that it can take."""

    def memory(side: str, length: int) -> float:
        request = {"what": "memory", "seed": options.seed, "task": task, "side": side, "length": length}
        return _measured(request, 1, RELEASE_FREED_PAGES)["mib"]

    taken = {side: memory(side, options.length) for side in FRUGAL}
    short, mib = longest_within(max(taken.values()), options.length, lambda length: memory(LAVISH, length))
    lengths = {side: (options.length, taken[side]) for side in FRUGAL} | {LAVISH: (short, mib)}
    return [
        (
            task,
            side,
            {"what": "task", "task": task, "side": side, "evaluated": options.length, "length": length, "mib": mib},
        )
        for side, (length, mib) in lengths.items()
    ]


def longest_within(budget: float, length: int, memory: Callable[[int], float]) -> tuple[int, float]:
    """
    The longest, of `length` and its halves down to `SHORTEST`, whose memory is within the budget, and that memory.

    Raises:
        ValueError: none is.
    """
    while length >= SHORTEST:
        mib = memory(length)
        if mib <= budget:
            return length, mib
        length //= 2
    raise ValueError(f"No length is within the budget of {budget:.1f} MiB.")


def context_jobs() -> list[tuple[str, str, dict[str, Any]]]:
    """Relative attention with memory, and the paper's, which sees its segment."""
    return [
        ("context", side, {"what": "context", "side": side, "memories": MEMORIES}) for side in ("relative", LAVISH)
    ]


def train(request: dict[str, Any], options: TaskArguments) -> dict[str, Any]:
    """What one training came to."""
    print(f"{request} ...", file=sys.stderr)
    given = {key: value for key, value in request.items() if key != "mib"}
    given |= {"seed": options.seed, "minutes": options.minutes, "learning_rate": options.learning_rate}
    return _measured(given, options.at_once, {})


def _measured(request: dict[str, Any], at_once: int, environment: dict[str, str]) -> Any:
    environment = environment | {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // at_once))}
    return run_worker("long_tasks_worker", request, environment=environment)


def markdown(found: dict[str, Any], length: int) -> list[str]:
    """A table for the tasks, and one for the memory."""
    lines = []
    tasks = {name: sides for name, sides in found.items() if name != "context"}
    if tasks:
        lines += [
            f"| task | attention | learns up to | MiB | updates | came to | right at its own | right at {length:,} |"
        ]
        lines += ["|---|---|---|---|---|---|---|---|"]
    for name, sides in tasks.items():
        for side, row in sides.items():
            lines.append(
                f"| {name} | {side} | {row['length']:,} | {row['mib']:.0f} | {row['updates']:,} | "
                f"{row['reached']:,} | {row['own']:.1%} | "
                f"{row['long']:.1%} |"
            )
    if tasks:
        guesses = ", ".join(f"{name} {1 / CHOICES[name]:.1%}" for name in tasks)
        lines += ["", f"Guessing gives: {guesses}.", ""]
    if "context" in found:
        relative, softmax = (found["context"][side] for side in ("relative", LAVISH))
        memories = list(relative["perplexity"])
        lines += ["| remembered | " + " | ".join(memories) + f" | {LAVISH}, the segment alone |"]
        lines += ["|---|" + "---|" * (len(memories) + 1)]
        values = [*relative["perplexity"].values(), softmax["perplexity"]["0"]]
        lines += ["| perplexity | " + " | ".join(f"{value:.2f}" for value in values) + " |", ""]
        lines += [
            f"Whoever counts all words before is left with {relative['counted']:.2f}; no context gives {WORDS}.",
            "",
        ]
    return lines


def fitted_slope(perplexities: dict[str, float]) -> float:
    """The exponent by which perplexity falls with what is seen of segment and memory, by least squares."""
    return growth_exponent((SEGMENT / 2 + int(memory), value) for memory, value in perplexities.items())


def draw(found: dict[str, Any], path: Path) -> None:
    """Accuracy of each task as bars, perplexity against memory as a curve."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(found), figsize=(4.2 * len(found), 3.6), squeeze=False)
    for axis, (name, sides) in zip(axes[0], found.items(), strict=True):
        if name == "context":
            _draw_context(axis, sides)
            continue
        for shift, (key, label) in enumerate((("own", "where learnt"), ("long", "at the long length"))):
            places = [place + 0.4 * shift for place in range(len(sides))]
            axis.bar(places, [100 * row[key] for row in sides.values()], width=0.38, label=label)
        names = [f"{side}\n({row['length']:,})" for side, row in sides.items()]
        axis.set(title=name, ylabel="right answers, %", ylim=(0, 130), yticks=range(0, 101, 20))
        axis.set_xticks([place + 0.2 for place in range(len(sides))], names)
        axis.axhline(100 / CHOICES[name], color="grey", linestyle=":", label="guessing")
        axis.legend(loc="upper center", ncols=2, fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def _draw_context(axis: Any, sides: dict[str, Any]) -> None:
    relative = sides["relative"]
    values = relative["perplexity"]
    slope = fitted_slope(values)
    axis.plot(
        [int(memory) for memory in values], list(values.values()), "o-", label=f"with memory (slope {slope:.2f})"
    )
    axis.axhline(sides[LAVISH]["perplexity"]["0"], color="tab:orange", linestyle="--", label="softmax, segment alone")
    axis.axhline(relative["counted"], color="grey", linestyle=":", label="all words before counted")
    axis.set(title="context", xlabel="positions remembered", ylabel="perplexity", yscale="log")
    axis.set_xscale("symlog", linthresh=4)
    axis.set_xticks([int(memory) for memory in values], list(values))
    axis.set_xlim(left=-0.5)
    axis.legend(fontsize="small")


if __name__ == "__main__":
    sys.exit(run(main))
