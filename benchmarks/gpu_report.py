"""
Shared by the parts of `bench_gpu`: the device, timing, rows that survive a kill, and the report.

The report is one JSON file, which gets a part at a time, and the same as Markdown.
"""

import gc
import json
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.harness import table
from vanilla_transformer.files.atomic import write_text_atomically

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ON_GPU = DEVICE.type == "cuda"
# Peak of dense products in bf16, in FLOP/s, by a part of the device's name.
_PEAKS = {"H200": 989e12, "H100 80GB HBM3": 989e12}


class Rows:
    """Append each row to a file as soon as it is measured, and print it with the time since the
    part began.

    Args:
        path: The file, with one JSON object in each line.
        part: Name of the part, for the printed lines.
    """

    def __init__(self, path: str | Path, part: str):
        self._path, self._part, self._started = Path(path), part, time.monotonic()

    def add(self, **row: Any) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        values = ", ".join(f"{name} {value}" for name, value in row.items() if value is not None)
        print(
            f"{self._part} [{time.monotonic() - self._started:5.1f} s] {values}",
            file=sys.stderr,
            flush=True,
        )


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a file, without a truncated last line."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def describe_device() -> dict[str, str]:
    """Return the names of the device and the releases that a figure depends on."""
    name = torch.cuda.get_device_name() if ON_GPU else f"no GPU ({platform.machine()})"
    releases = {name: version(name) for name in ("torch", "transformers")}
    return {
        "device": name,
        "cuda": torch.version.cuda or "none",
        "python": platform.python_version(),
        **releases,
    }


def model_flops_utilization(parameters: int, pairs_per_second: float, device: str) -> float | None:
    """Return the share of a device's peak in bf16 that training uses, or None if the peak is not
    known.

    Each pair of a source and a target token takes 6 operations for each parameter. Tied embeddings
    count once.
    """
    peak = _peak(device)
    return None if peak is None else 6 * parameters * pairs_per_second / peak


def describe_utilization(parameters: int, pairs_per_second: float, device: str) -> str | None:
    """Return the formula of `model_flops_utilization` with its numbers, or None if the peak is not
    known.
    """
    peak = _peak(device)
    return None if peak is None else f"6 × {parameters:,} × {pairs_per_second:,.0f} / {peak:.4g}"


def _peak(device: str) -> float | None:
    return next((peak for name, peak in _PEAKS.items() if name in device), None)


def judge(
    row: dict[str, Any],
    at_least: Mapping[str, float] | None = None,
    at_most: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Return a row with its goals, if it has any, and whether all of them that it has a number for
    are met.
    """
    goals = {"at_least": dict(at_least or {}), "at_most": dict(at_most or {})}
    reached = [
        row[name] >= goal for name, goal in goals["at_least"].items() if row.get(name) is not None
    ]
    reached += [
        row[name] <= goal for name, goal in goals["at_most"].items() if row.get(name) is not None
    ]
    given = {kind: values for kind, values in goals.items() if values}
    return row | given | ({"met": bool(reached) and all(reached)} if given else {})


def synchronize() -> None:
    """Wait until the device has computed everything."""
    if ON_GPU:
        torch.cuda.synchronize()


def median_seconds(
    function: Callable[[], Any], warm_ups: int = 2, least: int = 3, most: int = 10
) -> float:
    """Return the median time of a function after warm-up calls: of `least` rounds, or more of short
    ones.
    """
    for _ in range(warm_ups):
        function()
    seconds: list[float] = []
    while len(seconds) < least or (len(seconds) < most and sum(seconds) < 1.0):
        synchronize()
        started = time.perf_counter()
        function()
        synchronize()
        seconds.append(time.perf_counter() - started)
    return median(seconds)


def first_line(error: BaseException) -> str:
    """Return an error as one short line for a table."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}"[:120] if lines else type(error).__name__


def release_memory() -> None:
    """Return unused memory to the device, so that one measurement does not limit the next one."""
    gc.collect()
    if ON_GPU:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


# How a part ended. One that did not finish has the rows until then.
FINISHED, FAILED, OUT_OF_TIME = "finished", "failed", "out of time"
Record = dict[str, Any]
_ABOUT = {
    "correctness": "Tests in `tests/gpu`.",
    "decoding": "Tokens per second (higher is better), with random weights in bfloat16. On a GPU, "
    "each source has 32 tokens and each translation 64.",
    "pipeline": "Captions of about 13 random words per second (higher is better), and the time of "
    "one, from text to text, with random weights of the shape of the Multi30k recipe in bfloat16. "
    "Each translation has 14 tokens.",
    "training": "Target tokens per second (higher is better), in bfloat16. MFU counts 6 operations "
    "for each parameter and pair of a source and a target token, tied embeddings once, against 989 "
    "TFLOP/s. Idle is the share of the time in which the GPU runs nothing: the time of its "
    "kernels, by the profiler, in the time of updates without the profiler. Compiling includes "
    "the first update.",
    "recipe": "The command `train multi30k_en_de`, begun with empty caches. First logged steps and "
    "the whole run are timed from the start of the command, compiling from the creation of the "
    "model to the first logged steps. The rate is the one after the first minute, with "
    "validations and checkpoints. Validations are greedy.",
    "corpus": "The command `train` with the recipe wmt14_en_de_base on a generated text of 4.5 "
    "million pairs and 32,000 words, with a worker, validations, and a checkpoint every two "
    "minutes, which its rate includes. The ratio is to the rate of updates on batches that are "
    "ready. Times count as in the part before.",
}


class Results:
    """The records of the parts that have ended, in `gpu.json` of a folder.

    Raises:
        ValueError: the file is not the JSON that this class writes.
    """

    def __init__(self, folder: Path):
        self._file = folder / "gpu.json"
        self.parts: dict[str, Record] = self._read()

    def _read(self) -> dict[str, Record]:
        if not self._file.exists():
            return {}
        try:
            return json.loads(self._file.read_text(encoding="utf-8"))["parts"]
        except (ValueError, LookupError, TypeError):
            raise ValueError(
                f"{self._file} must be a file that `make gpu` wrote. Delete it."
            ) from None

    def check_device(self, device: str, on_gpu: bool) -> None:
        """Refuse to replace measurements of a GPU on a machine without one.

        Raises:
            ValueError: it would.
        """
        measured = [
            record["machine"]["device"] for record in self.parts.values() if record["on_gpu"]
        ]
        if measured and not on_gpu:
            raise ValueError(
                f"{self._file} must keep the results of {measured[0]}, but this machine has "
                f"{device}. Choose another --output_dir."
            )

    def add(self, name: str, record: Record) -> None:
        """Replace the record of a part, in `gpu.json` and `gpu.md`."""
        self.parts[name] = record
        write_text_atomically(self._file, json.dumps({"parts": self.parts}, indent=1) + "\n")
        write_text_atomically(self._file.with_suffix(".md"), markdown(self.parts))


def markdown(parts: Mapping[str, Record]) -> str:
    """Return the page of all parts, each with its machine and date."""
    lines = ["# Measurements on a GPU", "", "`make gpu` writes this page and `gpu.json`.", ""]
    for name in _ABOUT:
        if name in parts:
            lines += [
                f"## {name.capitalize()}",
                "",
                _ABOUT[name],
                "",
                *_part(name, parts[name]),
                "",
            ]
    return "\n".join(lines).rstrip() + "\n"


def _part(name: str, record: Record) -> Iterator[str]:
    machine = record["machine"]
    releases = ", ".join(
        f"{package} {release}" for package, release in machine.items() if package != "device"
    )
    yield (
        f"{machine['device']}; {releases}; {record['date']}; {record['seconds']:.0f} s, "
        f"{record['status']}."
    )
    yield ""
    tables = {
        "correctness": _outcomes,
        "decoding": _decoding,
        "pipeline": _pipeline,
        "training": _training,
    }
    tables |= dict.fromkeys(("recipe", "corpus"), _runs)
    yield from tables[name](record["rows"])


def _outcomes(rows: list[Record]) -> Iterator[str]:
    counts = {
        outcome: sum(row["outcome"] == outcome for row in rows)
        for outcome in ("passed", "failed", "skipped")
    }
    yield f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped."
    failed = [row for row in rows if row["outcome"] == "failed"]
    if failed:
        yield from [
            "",
            *_table(["failed test", "reason"], ([row["test"], row["reason"]] for row in failed)),
        ]


def _decoding(rows: list[Record]) -> Iterator[str]:
    columns = list(dict.fromkeys((row["beams"], row["batch"]) for row in rows))
    heads = [f"{_search(beams)}, batch {batch:,}" for beams, batch in columns]
    cells = {(row["system"], row["beams"], row["batch"]): _speed(row) for row in rows}
    systems = list(dict.fromkeys(row["system"] for row in rows))
    lines = (
        [system, *(cells.get((system, *column), "") for column in columns)] for system in systems
    )
    yield from _table([f"system ({', '.join({row['size'] for row in rows})})", *heads], lines)


def _pipeline(rows: list[Record]) -> Iterator[str]:
    columns = list(dict.fromkeys((row["beams"], row["captions"]) for row in rows))
    heads = [
        f"{_search(beams)}, {'one' if captions == 1 else f'{captions:,}'}"
        for beams, captions in columns
    ]
    cells = {(row["system"], row["beams"], row["captions"]): _captions(row) for row in rows}
    systems = list(dict.fromkeys(row["system"] for row in rows))
    yield from _table(
        ["system", *heads],
        ([name, *(cells.get((name, *each), "") for each in columns)] for name in systems),
    )


def _training(rows: list[Record]) -> Iterator[str]:
    heads = [
        "model",
        "system",
        "tokens of an update",
        "tokens/s",
        "MFU",
        "ratio to the Trainer",
        "peak memory",
        "idle",
    ]
    lines = (
        [
            row["size"],
            row["system"],
            f"{row['max_tokens']:,}",
            _speed(row),
            _percent(row.get("mfu")),
        ]
        + [row.get("ratio"), f"{row['peak_gib']} GiB" if row.get("peak_gib") is not None else ""]
        + [_percent(row.get("idle")), _seconds(row.get("compile_seconds")), _goals(row), _met(row)]
        for row in rows
    )
    yield from _table([*heads, "compiling", "goal", "met"], lines)


def _runs(rows: list[Record]) -> Iterator[str]:
    heads = [
        "run",
        "measured",
        "value",
        "compiling",
        "steps",
        "MFU",
        "ratio",
        "validations",
        "checkpoints",
    ]
    lines = (
        [
            row["run"],
            row["measured"],
            row["error"] if "error" in row else f"{row['value']:,} {row['unit']}",
        ]
        + [
            _seconds(row.get("compile_seconds")),
            row.get("steps"),
            _percent(row.get("mfu")),
            row.get("ratio"),
        ]
        + [row.get("validations"), row.get("checkpoints"), _goals(row), _met(row)]
        for row in rows
    )
    yield from _table([*heads, "goal", "met"], lines)


_GOAL_NAMES = {"tokens_per_second": "tokens/s", "mfu": "MFU", "compile_seconds": "compiling"}


def _goals(row: Record) -> str:
    """Return the goals of a row, such as `tokens/s ≥ 700,000, MFU ≥ 0.27`."""
    signs = {"at_least": "≥", "at_most": "≤"}
    return ", ".join(
        f"{_GOAL_NAMES.get(name, name)} {signs[kind]} {goal:,}"
        for kind in signs
        for name, goal in row.get(kind, {}).items()
    )


def _met(row: Record) -> str:
    return {True: "yes", False: "no"}.get(row.get("met", ""), "")


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds} s"


def _search(beams: int) -> str:
    return "greedy" if beams == 1 else f"beam {beams}"


def _captions(row: Record) -> str:
    if "error" in row:
        return row["error"]
    return (
        f"{row['milliseconds']} ms"
        if "milliseconds" in row
        else f"{row['captions_per_second']:,}/s"
    )


def _speed(row: Record) -> str:
    return row["error"] if "error" in row else f"{row['tokens_per_second']:,}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _table(heads: list[str], lines: Iterable[Iterable[Any]]) -> Iterator[str]:
    rows = (dict(zip(heads, line, strict=True)) for line in lines)
    yield from table([{head: value or None for head, value in row.items()} for row in rows])
