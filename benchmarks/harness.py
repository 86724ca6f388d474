"""
Shared by all benchmarks: their arguments, turns, worker processes, memory, and the one format of
their results.

It imports the standard library only, so that workers in other toolkits' environments can import it.
"""

import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import quantiles
from typing import Any, ClassVar, TypeVar

ROOT = Path(__file__).parents[1]
_INSTRUCTION_SETS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")
_SETTLE_SECONDS = 0.2  # lets the other worker's threads stop waiting for work
_WORKER_VARIABLES = {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}

Row = Mapping[str, Any]


@dataclass
class BenchmarkArguments:
    """Arguments of every benchmark."""

    SHORT: ClassVar[dict[str, Any]] = {}  # values of a quick version

    short: bool = field(
        default=False,
        metadata={"help": "Measure a quick version: fewer rounds, sizes and seconds."},
    )
    note: str = field(
        default="", metadata={"help": "Note for the reader, such as other work on the machine."}
    )
    output_dir: str = field(
        default="benchmarks/results", metadata={"help": "Folder of the table and the JSON file."}
    )


Arguments = TypeVar("Arguments", bound=BenchmarkArguments)


def read_arguments(
    arguments_class: type[Arguments],
    arguments: Sequence[str],
    usage: str,
    words: Sequence[int] = (0,),
) -> tuple[list[str], Arguments]:
    """
    Split a command line into the words before the first flag and the flags.

    Args:
        usage: The name of the benchmark and its words, for messages.
        words: Possible numbers of words.

    Raises:
        ValueError: there is another number of words, or a flag is unknown or has a wrong value.
    """
    found, options = parse_flags(arguments_class, arguments, usage)
    if len(found) not in words:
        numbers = " or ".join(map(str, words))
        raise ValueError(
            f"`{usage}` takes {numbers} words before its flags, got {len(found)}: "
            f"{' '.join(found)!r}."
        )
    return found, replace(options, **options.SHORT) if options.short else options


def parse_flags(
    arguments_class: type[Any], arguments: Sequence[str], usage: str
) -> tuple[list[str], Any]:
    """Return the words of a command line, and its flags as a dataclass."""
    from typing import Annotated, get_type_hints

    from pydantic import Field, create_model

    from vanilla_transformer.user_input.command_line import CommandLine
    from vanilla_transformer.user_input.schemas import ARGUMENT, Schema

    hints = get_type_hints(arguments_class)
    flags: dict[str, Any] = {
        item.name: (hints[item.name], Field(item.default, description=item.metadata["help"]))
        for item in fields(arguments_class)
    }
    flags["words"] = (
        Annotated[list[str], ARGUMENT],
        Field([], description="Systems or settings to measure."),
    )
    schema = create_model("Flags", __base__=Schema, **flags)
    program = f"python -m benchmarks.{usage.split()[0]}"
    values = dict(schema(**CommandLine({"flags": schema.model_fields}, program).read(arguments)))
    return values.pop("words"), arguments_class(**values)


def write_report(
    name: str,
    options: BenchmarkArguments,
    rows: Sequence[Row],
    notes: Iterable[str] = (),
    lines: Sequence[str] | None = None,
    shown: bool = True,
) -> None:
    """
    Write `NAME.md` and `NAME.json` to the output folder, and print the Markdown.

    Args:
        lines: Markdown below the notes; by default, a table of the rows.
        shown: Whether to print it.
    """
    about, notes = describe_machine(), [*notes]
    head = [f"`python -m {command_line()}`; {about}.", *filter(None, [options.note, *notes]), ""]
    text = "\n".join([*head, *(table(rows) if lines is None else lines)]) + "\n"
    folder = Path(options.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    report = {
        "machine": about,
        "options": asdict(options),
        "notes": notes,
        "rows": [dict(row) for row in rows],
    }
    (folder / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    (folder / f"{name}.md").write_text(text, encoding="utf-8")
    if shown:
        print(text, end="")


def command_line() -> str:
    """Return the module and the arguments of this process."""
    return " ".join([f"benchmarks.{Path(sys.argv[0]).stem}", *sys.argv[1:]])


def table(rows: Sequence[Row]) -> list[str]:
    """Return a Markdown table with a row for each mapping and all their keys, in the order of first
    appearance.

    A list of measurements is shown as its median and quartiles.
    """
    columns = list(dict.fromkeys(column for row in rows for column in row))
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    return lines + [
        f"| {' | '.join(cell(row.get(column)) for column in columns)} |" for row in rows
    ]


def cell(value: Any) -> str:
    """Return a value of a table as text: numbers with three digits or more."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "**NO**"
    if isinstance(value, list):
        if len(value) < 2:
            return cell(value[0])
        first, middle, third = quantiles(value, n=4, method="inclusive")
        return f"{cell(middle)} [{cell(first)}, {cell(third)}]"
    if isinstance(value, float):
        return f"{value:,.{0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2}f}"
    return f"{value:,}" if isinstance(value, int) else str(value).replace("|", "¦")


def in_turns(
    workers: Mapping[str, "subprocess.Popen[str]"], request: Any, rounds: int
) -> dict[str, list[Any]]:
    """Return each worker's answers to a request, in rounds of changing order (A B, B A, …) under
    the same load.
    """
    answers: dict[str, list[Any]] = {name: [] for name in workers}
    for number in range(rounds):
        for name in list(workers)[:: -1 if number % 2 else 1]:
            time.sleep(_SETTLE_SECONDS)
            answers[name].append(ask(workers[name], request))
    return answers


def start_worker(
    command: Sequence[str], environment: Mapping[str, str], folder: Path = ROOT
) -> "subprocess.Popen[str]":
    """Start a process that answers each line of JSON by another one, and is idle in between."""
    variables = {**os.environ, **_WORKER_VARIABLES, **environment}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=variables, cwd=folder, stdin=pipe, stdout=pipe, text=True)


def ask(worker: "subprocess.Popen[str]", request: Any) -> Any:
    """Send a worker a request and return its answer."""
    print(json.dumps(request), file=worker.stdin, flush=True)
    return receive(worker)


def receive(worker: "subprocess.Popen[str]") -> Any:
    """
    Wait for the next line of a worker and return what it says.

    Raises:
        RuntimeError: the worker ended.
    """
    line = worker.stdout.readline() if worker.stdout else ""
    if not line:
        raise RuntimeError(f"The worker ended with status {worker.wait()}: {worker.args!r}")
    return json.loads(line)


def run_command(
    command: Sequence[str], name: str, environment: Mapping[str, str], text: str | None = None
) -> str:
    """
    Run a command with `text` as its standard input and return its standard output.

    Raises:
        RuntimeError: the command failed; the message ends with its standard error.
    """
    ended = subprocess.run(
        command, env={**os.environ, **environment}, input=text, capture_output=True, text=True
    )
    if ended.returncode:
        raise RuntimeError(f"{name} ended with status {ended.returncode}:\n{ended.stderr[-3000:]}")
    return ended.stdout


def run_worker(
    worker: str,
    request: Mapping[str, Any],
    name: str | None = None,
    environment: Mapping[str, str] | None = None,
    python: Path | str = sys.executable,
) -> dict[str, Any]:
    """
    Run the module `benchmarks.{worker}` in its own process, on the CPU, and return the JSON of its
    last output line.

    Args:
        worker: Name of the module. Its arguments are `--worker` and `request` as JSON.
        name: Name of the measurement in error messages, by default the request.
        environment: Variables of the process, on top of this one's.
        python: Interpreter, for workers that run in another toolkit's environment.
    """
    command = worker_command(worker, request, python)
    variables = _WORKER_VARIABLES | {**(environment or {})}
    return json.loads(run_command(command, name or command[-1], variables).splitlines()[-1])


def worker_command(worker: str, request: Mapping[str, Any], python: Path | str) -> list[str]:
    """Return the command of a worker process, whose `is_worker` is true."""
    return [str(python), "-m", f"benchmarks.{worker}", "--worker", json.dumps(request)]


def is_worker() -> bool:
    """Return whether this process has the command of a worker."""
    return sys.argv[1:2] == ["--worker"]


def describe_machine() -> str:
    """Return the date, the commit, the processor with its load, and the versions of Python and the
    libraries.
    """
    load = f"load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "load unknown"
    versions = [f"python {platform.python_version()}"]
    for package in ("torch", "transformers", "accelerate"):
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return f"{date.today()}, commit {_commit()}; {_processor()}, {load}; {', '.join(versions)}"


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _processor() -> str:
    """Return the processor's name, the number of cores, and the instruction sets that matter
    here.
    """
    info = Path("/proc/cpuinfo")
    lines = [line.partition(":") for line in info.read_text().splitlines()] if info.exists() else []
    found = {name.strip(): value.strip() for name, _, value in lines}
    name = found.get("model name") or platform.processor() or platform.machine()
    sets = [each for each in _INSTRUCTION_SETS if each in found.get("flags", "").split()]
    return f"{name}, {os.cpu_count()} cores" + (f" ({', '.join(sets)})" if sets else "")


def progress(message: str) -> None:
    """Print a line to standard error at once."""
    print(message, file=sys.stderr, flush=True)


def peak_bytes() -> int:
    """
    Return the most resident memory that this process has had.

    Read from /proc where it exists: the maximum of `getrusage` starts at the parent's size.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return next(
            int(line.split()[1]) * 1024 for line in status.open() if line.startswith("VmHWM")
        )
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )
