"""
Test and measure the package on one GPU, in at most 30 minutes.

    python3 -m benchmarks.bench_gpu [PART ...] [--output_dir FOLDER] [--multi30k FOLDER]

Parts: correctness (the tests in tests/gpu), decoding, pipeline, and on training: training (updates
on synthetic batches), recipe (the command `train multi30k_en_de`) and corpus (the command on a
generated text of WMT's size). Each runs in its own process with a limit of time. The parts on
training share 15 minutes: each takes what the later ones leave, so that corpus by itself has ten
minutes of steps. `gpu.json` and `gpu.md` in the folder, by default docs, get the results of a part
when it ends, and keep the results of the others. Interrupting the command loses the part under way
only. The exit status is 1 if a test or a measurement of this package failed.

Without a GPU, only the tests run by default, on the CPU. Other parts that are named use tiny
models. Results are then written only if a folder is given.

It needs torch, transformers, accelerate, tokenizers, safetensors, numpy and pytest. Recipe and
corpus are skipped without the other packages that the command `train` needs, and recipe without the
text of Multi30k, which is downloaded if it is neither in data/multi30k nor given. Nothing else
needs a network.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
REQUIREMENTS = (
    "torch",
    "transformers",
    "accelerate",
    "tokenizers",
    "safetensors",
    "numpy",
    "pytest",
)
# Seconds of each part; together with the start of this command they are at most 30 minutes.
# The tests compile the layers for each precision and attention, and each run traces them again.
PARTS = {
    "correctness": 270,
    "decoding": 405,
    "pipeline": 180,
    "training": 240,
    "recipe": 240,
    "corpus": 420,
}
_ON_TRAINING = ("training", "recipe", "corpus")  # which share their seconds
# The module of each part but the tests; its arguments are the part, the file of its rows, and its
# seconds.
MODULES = {"training": "benchmarks.gpu_training"}
MODULES |= dict.fromkeys(("decoding", "pipeline"), "benchmarks.gpu_decoding")
MODULES |= dict.fromkeys(("recipe", "corpus"), "benchmarks.gpu_train_command")
TESTS = "tests/gpu"
# Without the fixtures of the other tests, which need more packages.
PYTEST_FLAGS = ["--confcutdir", TESTS, "--rootdir", ".", "-p", "no:cacheprovider", "--quiet"]
_GRACE = 5  # seconds until a process that was interrupted is killed


@dataclass
class BenchmarkArguments:
    """Where the results are written, and where text is."""

    output_dir: str | None = field(
        default=None,
        metadata={
            "help": "Folder of gpu.json and gpu.md; by default docs, and none without a GPU."
        },
    )
    multi30k: str | None = field(
        default=None,
        metadata={
            "help": (
                "Folder with the text of Multi30k; by default data/multi30k, downloaded if it "
                "is missing."
            )
        },
    )


def main(arguments: Sequence[str]) -> None:
    from benchmarks.harness import parse_flags

    names, options = parse_flags(BenchmarkArguments, arguments, "bench_gpu")
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise ValueError(f"There is no part {unknown[0]!r}. The parts are {', '.join(PARTS)}.")
    if options.multi30k is not None and not Path(options.multi30k).is_dir():
        raise ValueError(
            "`multi30k` must be a folder with train.en, train.de and so on, got "
            f"{options.multi30k}."
        )
    # A part must not outlive this command.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    from benchmarks.gpu_report import ON_GPU

    folder = options.output_dir or ("docs" if ON_GPU else None)
    names = names or ([*PARTS] if ON_GPU else ["correctness"])
    failed = run_parts(names, None if folder is None else Path(folder), options.multi30k)
    if failed:
        print(f"error: {', '.join(failed)} failed.", file=sys.stderr)
        sys.exit(1)


def run_parts(names: Sequence[str], folder: Path | None, multi30k: str | None = None) -> list[str]:
    """Run parts, write each result to `folder`, and return the names of those that failed."""
    from benchmarks.gpu_report import FAILED, FINISHED, ON_GPU, Results, describe_device, markdown

    results, machine = None if folder is None else Results(folder), describe_device()
    if results is not None:
        results.check_device(machine["device"], ON_GPU)
    failed, records = list[str](), dict[str, dict[str, Any]]()
    for place, name in enumerate(names):
        taken = {done: record["seconds"] for done, record in records.items()}
        seconds = seconds_of_part(name, names[place + 1 :], taken)
        print(f"\n== {name}: at most {seconds:.0f} s", file=sys.stderr, flush=True)
        words = [str(Path(multi30k).resolve())] if name == "recipe" and multi30k is not None else []
        records[name] = run_part(name, seconds, words)
        records[name] |= {"machine": machine, "on_gpu": ON_GPU, "date": str(date.today())}
        if results is not None:
            results.add(name, records[name])
        # Measurements that time does not suffice for are missing from a table; tests are not.
        if records[name]["status"] == FAILED or (
            name == "correctness" and records[name]["status"] != FINISHED
        ):
            failed.append(name)
    print(markdown(records))
    return failed


def seconds_of_part(name: str, later: Sequence[str], taken: Mapping[str, float]) -> float:
    """Return the limit of a part. A part on training takes what the later ones leave of the seconds
    of all three.

    Args:
        later: The parts that run after it.
        taken: The seconds of the parts that have run.
    """
    if name not in _ON_TRAINING:
        return PARTS[name]
    shared = sum(PARTS[each] for each in _ON_TRAINING)
    return (
        shared
        - sum(PARTS[each] for each in later if each in _ON_TRAINING)
        - sum(seconds for each, seconds in taken.items() if each in _ON_TRAINING)
    )


def run_part(name: str, seconds: float, words: Sequence[str] = ()) -> dict[str, Any]:
    """Run a part until it ends or its time is over, and return its status, seconds and rows.

    Args:
        words: Further arguments of its module.
    """
    from benchmarks.gpu_report import FAILED, FINISHED, OUT_OF_TIME, read_rows

    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1"}
    # The tests run the same with whatever else is installed.
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    with tempfile.TemporaryDirectory() as temporary:
        rows, started = Path(temporary) / "rows.jsonl", time.monotonic()
        rows.touch()
        if name == "correctness":
            command = ["pytest", *PYTEST_FLAGS, "--rows", str(rows), TESTS]
        else:
            command = [MODULES[name], name, str(rows), str(seconds), *words]
        process = subprocess.Popen(
            [sys.executable, "-m", *command], env=environment, cwd=ROOT, stdout=sys.stderr
        )
        try:
            status = FINISHED if process.wait(seconds) == 0 else FAILED
        except subprocess.TimeoutExpired:
            status = OUT_OF_TIME
        finally:
            _stop(process)
        return {
            "status": status,
            "seconds": round(time.monotonic() - started, 1),
            "rows": read_rows(rows),
        }


def find_unmet_requirement() -> str | None:
    """Return what this interpreter lacks, or None. The releases are those that setup.py admits."""
    missing = [name for name in REQUIREMENTS if find_spec(name) is None]
    if missing:
        return (
            f"{sys.executable} must have {', '.join(REQUIREMENTS)}, but {', '.join(missing)} "
            "is missing."
        )
    from packaging.requirements import Requirement  # a requirement of transformers

    names = "|".join(REQUIREMENTS)
    setup = (ROOT / "setup.py").read_text(encoding="utf-8")
    for text in re.findall(
        rf'^ +"((?:{names})[<>=][^"]*)",$', setup, re.MULTILINE
    ):  # without the extras
        wanted = Requirement(text)
        if not wanted.specifier.contains(version(wanted.name), prereleases=True):
            found = f"has {wanted.name} {version(wanted.name)}"
            return (
                f"{sys.executable} must have {text}, but {found}. Install it, or leave PYTHON out."
            )
    return None


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Interrupt a process that still runs, and kill it if it does not end."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


if __name__ == "__main__":
    unmet = find_unmet_requirement()
    if unmet is not None:
        sys.exit(f"error: {unmet}")
    from vanilla_transformer.cli import run

    sys.exit(run(main))
