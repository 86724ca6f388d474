"""
Measure how well attention types learn tasks that need long texts, and the effect of the memory length:

- "copy": a word, and later the same word in capitals. "recall": a list of pairs, and later the first elements, whose
  partners are to be recalled. Noise separates the two parts, which are up to the whole length apart. The memory budget
  is the largest that the other attention types need for a training step at the long length; full attention (eager),
  which stores its matrix of probabilities, trains up to the longest length within that budget. Transformer-XL
  ("relative") attention reads the text in segments. All train for the same time.
- "context": perplexity of documents that each have their own word frequencies, read in segments of 16 words, against
  the number of positions in the memory.

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
from benchmarks.long_tasks_worker import ANSWERS, SEGMENT, SHORTEST, TASKS, WORDS
from vanilla_transformer.cli import run
from vanilla_transformer.cli.arguments import parse

BUDGETED, BASELINE = ("linear", "lsh", "relative"), "softmax"
MEMORIES = [0, 4, 8, 16, 32, 64, 128]


@dataclass
class TaskArguments:
    """Tasks, length and training time."""

    parts: str = field(default="copy,recall,context", metadata={"help": "Names of parts, separated by commas."})
    length: int = field(default=2048, metadata={"help": "Longest length of the texts; a power of two."})
    minutes: float = field(default=6.0, metadata={"help": "Minutes of each training run."})
    learning_rate: float = field(default=0.003, metadata={"help": "Peak learning rate of all runs."})
    seed: int = field(default=1, metadata={"help": "Random seed of weights and tasks."})
    at_once: int = field(default=2, metadata={"help": "Training runs at the same time; they share the cores."})
    output_dir: str = field(default="benchmarks/results", metadata={"help": "Folder of long_tasks.md, .json, .png."})


def main(arguments: Sequence[str]) -> None:
    words, options = parse(TaskArguments, arguments, "bench_long_tasks.py [--flags]")
    parts = options.parts.split(",")
    if words or not set(parts) <= {*TASKS, "context"}:
        raise ValueError(f"`parts` must be of {', '.join(TASKS)} and context, got {options.parts!r}.")
    if options.length < SHORTEST or options.length & (options.length - 1):
        raise ValueError(f"`length` must be a power of two and at least {SHORTEST}, got {options.length}.")
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
    """Return a training run for each side, at the longest length within the memory budget."""

    def memory(side: str, length: int) -> float:
        request = {"what": "memory", "seed": options.seed, "task": task, "side": side, "length": length}
        return _measured(request, 1, RELEASE_FREED_PAGES)["mib"]

    taken = {side: memory(side, options.length) for side in BUDGETED}
    short, mib = longest_within(max(taken.values()), options.length, lambda length: memory(BASELINE, length))
    lengths = {side: (options.length, taken[side]) for side in BUDGETED} | {BASELINE: (short, mib)}
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
    Return the longest of `length` and its halves down to `SHORTEST` that fits into the budget, and its memory.

    Raises:
        ValueError: none fits.
    """
    while length >= SHORTEST:
        mib = memory(length)
        if mib <= budget:
            return length, mib
        length //= 2
    raise ValueError(f"No length fits into the budget of {budget:.1f} MiB.")


def context_jobs() -> list[tuple[str, str, dict[str, Any]]]:
    """Return the training runs of Transformer-XL attention with memory and of full attention without."""
    return [
        ("context", side, {"what": "context", "side": side, "memories": MEMORIES}) for side in ("relative", BASELINE)
    ]


def train(request: dict[str, Any], options: TaskArguments) -> dict[str, Any]:
    """Run one training in its own process and return its results."""
    print(f"{request} ...", file=sys.stderr)
    given = {key: value for key, value in request.items() if key != "mib"}
    given |= {"seed": options.seed, "minutes": options.minutes, "learning_rate": options.learning_rate}
    return _measured(given, options.at_once, {})


def _measured(request: dict[str, Any], at_once: int, environment: dict[str, str]) -> Any:
    environment = environment | {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // at_once))}
    return run_worker("long_tasks_worker", request, environment=environment)


def markdown(found: dict[str, Any], length: int) -> list[str]:
    """Return a table of the tasks and one of the memory lengths."""
    lines = []
    tasks = {name: sides for name, sides in found.items() if name != "context"}
    if tasks:
        lines += [
            f"| task | attention | maximum training length | MiB | updates | length reached "
            f"| accuracy at the training length | accuracy at {length:,} |"
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
        guesses = ", ".join(f"{name} {1 / ANSWERS[name]:.1%}" for name in tasks)
        lines += ["", f"Accuracy of guessing: {guesses}.", ""]
    if "context" in found:
        relative, softmax = (found["context"][side] for side in ("relative", BASELINE))
        memories = list(relative["perplexity"])
        lines += ["| memory length | " + " | ".join(memories) + f" | {BASELINE}, segment only |"]
        lines += ["|---|" + "---|" * (len(memories) + 1)]
        values = [*relative["perplexity"].values(), softmax["perplexity"]["0"]]
        lines += ["| perplexity | " + " | ".join(f"{value:.2f}" for value in values) + " |", ""]
        lines += [
            f"An ideal reader, which counts all words, has {relative['counted']:.2f}; no context gives {WORDS}.",
            "",
        ]
    return lines


def fitted_slope(perplexities: dict[str, float]) -> float:
    """Fit the exponent by which perplexity falls with the number of visible positions in segment and memory."""
    return growth_exponent((SEGMENT / 2 + int(memory), value) for memory, value in perplexities.items())


def draw(found: dict[str, Any], path: Path) -> None:
    """Draw the accuracy of each task as bars and perplexity by memory length as a curve."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(found), figsize=(4.2 * len(found), 3.6), squeeze=False)
    for axis, (name, sides) in zip(axes[0], found.items(), strict=True):
        if name == "context":
            _draw_context(axis, sides)
            continue
        for shift, (key, label) in enumerate((("own", "at the training length"), ("long", "at the long length"))):
            places = [place + 0.4 * shift for place in range(len(sides))]
            axis.bar(places, [100 * row[key] for row in sides.values()], width=0.38, label=label)
        names = [f"{side}\n({row['length']:,})" for side, row in sides.items()]
        axis.set(title=name, ylabel="accuracy, %", ylim=(0, 130), yticks=range(0, 101, 20))
        axis.set_xticks([place + 0.2 for place in range(len(sides))], names)
        axis.axhline(100 / ANSWERS[name], color="gray", linestyle=":", label="guessing")
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
    axis.axhline(sides[BASELINE]["perplexity"]["0"], color="tab:orange", linestyle="--", label="softmax, segment only")
    axis.axhline(relative["counted"], color="gray", linestyle=":", label="ideal reader")
    axis.set(title="context", xlabel="memory length", ylabel="perplexity", yscale="log")
    axis.set_xscale("symlog", linthresh=4)
    axis.set_xticks([int(memory) for memory in values], list(values))
    axis.set_xlim(left=-0.5)
    axis.legend(fontsize="small")


if __name__ == "__main__":
    sys.exit(run(main))
