"""
Compare a teacher, its student, and the student converted for devices: one thread, each system in
its own process.

    python -m benchmarks.bench_pocket runs/teacher runs/pocket --sentences test.en \
        --references test.de --train_source train.en --train_target train.de

The student is converted to int8 for Bergamot and CTranslate2, each with and without a shortlist
from the training text, whose first sentences also show Bergamot the ranges of int8. Bergamot is
npm's package in Node, which is installed into `.venv-peers/bergamot` first.

Systems run one after the other. Words a second are words of the source. The engine of this package
and CTranslate2 translate the whole text once to warm up, and the best of the rounds after it
counts. Bergamot translates `--lines` lines at once in one round, of which the first ones count for
no time, because the model is loaded before them. Megabytes are the sizes of the stored weights and
of the shortlist.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any, NamedTuple

import torch

from benchmarks.bench_decoding import Engine, is_chosen
from benchmarks.harness import (
    BenchmarkArguments,
    is_worker,
    progress,
    read_arguments,
    run_command,
    run_worker,
    write_report,
)
from benchmarks.peers import ENVIRONMENTS, CTranslate2, Translate
from vanilla_transformer.cli import run
from vanilla_transformer.data.readers import read_lines
from vanilla_transformer.evaluation.scores import score
from vanilla_transformer.extensions.conversion import WRITERS
from vanilla_transformer.extensions.conversion.shortlist import read_shortlist_text

_PACKAGE = "@browsermt/bergamot-translator@0.4.9"
_NODE = ENVIRONMENTS / "bergamot"
_CALIBRATION = 200  # sentences
_MOST_TOKENS = 128  # of a translation
_BERGAMOT_FILES, _CTRANSLATE2_FILES = (
    ("model.intgemm.alphas.bin", "lex.bin"),
    ("model.bin", "vmap.txt"),
)


@dataclass
class PocketArguments(BenchmarkArguments):
    """Text, and how often it is translated."""

    sentences: str = field(default="", metadata={"help": "Source text to translate."})
    references: str = field(default="", metadata={"help": "Reference translations."})
    train_source: str = field(default="", metadata={"help": "Source text of the shortlist."})
    train_target: str = field(default="", metadata={"help": "Target text of the shortlist."})
    systems: list[str] | None = field(
        default=None,
        metadata={"help": "Only systems whose name contains one of these words; by default all."},
    )
    rounds: int = field(default=3, metadata={"help": "Rounds of each system but Bergamot."})
    lines: int = field(default=64, metadata={"help": "Lines that Bergamot translates at once."})


class System(NamedTuple):
    """
    A row of the table.

    Attributes:
        kind: What translates, of `RUNNERS`.
        folder: The model.
        files: Files of it whose sizes count.
        options: Further values for the runner.
    """

    name: str
    kind: str
    folder: Path
    files: Sequence[str] = ("model.safetensors",)
    beams: int = 1
    options: Mapping[str, Any] = {}

    def megabytes(self) -> float:
        paths = [self.folder / name for name in self.files]
        return sum(path.stat().st_size for path in paths if path.exists()) / 1e6


def systems_of(teacher: Path, student: Path, converted: Path) -> list[System]:
    """Return all rows. `converted` is where [`convert`] writes."""
    found = [
        System("teacher, float32, beam 4", "engine", teacher, beams=4),
        System("teacher, float32", "engine", teacher),
        System("student, float32", "engine", student),
        System(
            "student, compiled, bfloat16",
            "engine",
            student,
            options={"precision": "bfloat16", "compiled": True},
        ),
    ]
    if find_spec("torchao") is not None:
        compiled = {"precision": "int8", "compiled": True}
        found.append(System("student, compiled, int8", "engine", student, options=compiled))
    for name in ("", " with the shortlist"):
        folder = converted / f"ctranslate2{name}"
        found.append(System(f"CTranslate2, int8{name}", "ctranslate2", folder, _CTRANSLATE2_FILES))
    for name in ("", " with the shortlist"):
        found.append(
            System(
                f"Bergamot, int8{name}", "bergamot", converted / f"bergamot{name}", _BERGAMOT_FILES
            )
        )
    return found


def convert(systems: Sequence[System], student: Path, options: PocketArguments) -> list[str]:
    """Write the folders of the systems that need one. Return what the comparisons say."""
    pairs = read_shortlist_text([options.train_source, options.train_target])
    calibration, notes = [pair.source for pair in pairs[:_CALIBRATION]], []
    for system in systems:
        if system.kind != "engine":
            target = "ctranslate2-int8" if system.kind == "ctranslate2" else "bergamot"
            shortlist = {"shortlist_text": pairs} if "shortlist" in system.name else {}
            compared = WRITERS[target](student, system.folder, calibration, **shortlist)
            notes.append(f"{system.name}: {compared or 'not compared'}.")
    return notes


def install_bergamot() -> str | None:
    """Install the engine of npm, and return why it cannot run, or None."""
    if which("npm") is None:
        return "Bergamot needs Node and npm, which are not installed."
    if not (_NODE / "node_modules").exists():
        progress(f"Installing {_PACKAGE} ...")
        command = [
            "npm",
            "install",
            "--prefix",
            str(_NODE),
            "--ignore-scripts",
            "--no-audit",
            _PACKAGE,
        ]
        run_command(command, "npm", {})
    return None


def main(arguments: Sequence[str]) -> None:
    words, options = read_arguments(
        PocketArguments, arguments, "bench_pocket TEACHER STUDENT", words=(2,)
    )
    teacher, student = map(Path, words)
    texts, references = read_lines(options.sentences), read_lines(options.references)
    if len(texts) <= options.lines:
        raise ValueError(
            f"The text must have more lines than --lines {options.lines}, got {len(texts)}."
        )
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        systems = [
            each
            for each in systems_of(teacher, student, Path(name))
            if is_chosen(each.name, options.systems)
        ]
        missing = (
            install_bergamot() if any(system.kind == "bergamot" for system in systems) else None
        )
        systems = [system for system in systems if system.kind != "bergamot" or missing is None]
        notes = [*filter(None, [missing]), *convert(systems, student, options)]
        notes.append(
            f"One thread; {len(texts):,} lines, {sum(len(text.split()) for text in texts):,} "
            "source words."
        )
        for system in systems:
            request = {
                "kind": system.kind,
                "folder": str(system.folder),
                "beams": system.beams,
                **system.options,
            }
            request |= {
                "sentences": options.sentences,
                "rounds": options.rounds,
                "lines": options.lines,
            }
            found = run_worker("bench_pocket", request, system.name, {"OMP_NUM_THREADS": "1"})
            scores = score(found["outputs"], references)
            row = {
                "system": system.name,
                "BLEU": round(scores.bleu, 2),
                "chrF": round(scores.chrf, 2),
            }
            row |= {"MB": system.megabytes(), "words/s": found["words_per_second"]}
            rows.append(
                row | {"speedup": found["words_per_second"] / rows[0]["words/s"] if rows else 1.0}
            )
            progress(str(rows[-1]))
            write_report("pocket", options, rows, notes, shown=False)
    write_report("pocket", options, rows, notes)


def run_engine(
    folder: Path,
    texts: Sequence[str],
    precision: str = "float32",
    compiled: bool = False,
    **further: Any,
) -> dict[str, Any]:
    """Translate by the engine of this package."""
    return best_round(Engine(precision, compiled).load(folder), texts, **further)


def run_ctranslate2(folder: Path, texts: Sequence[str], **further: Any) -> dict[str, Any]:
    """Translate by CTranslate2."""
    return best_round(CTranslate2("int8").load(folder), texts, **further)


def best_round(
    translate: Translate, texts: Sequence[str], beams: int, rounds: int, **_: Any
) -> dict[str, Any]:
    """Translate once to warm up and then in rounds, of which the best counts."""
    outputs, seconds = translate(texts, beams, _MOST_TOKENS), []
    for _round in range(rounds):
        started = time.perf_counter()
        outputs = translate(texts, beams, _MOST_TOKENS)
        seconds.append(time.perf_counter() - started)
    return {
        "outputs": outputs,
        "words_per_second": sum(len(text.split()) for text in texts) / min(seconds),
    }


def run_bergamot(
    folder: Path, texts: Sequence[str], sentences: str, lines: int, **_: Any
) -> dict[str, Any]:
    """Translate by Bergamot in Node, which writes so many lines at a time."""
    command = ["node", str(folder / "translate.cjs"), "int8", str(lines)]
    outputs, times = [], []
    with (
        open(sentences, encoding="utf-8") as file,
        subprocess.Popen(command, cwd=_NODE, stdin=file, stdout=subprocess.PIPE, text=True) as node,
    ):
        for line in node.stdout or ():
            times.append(time.perf_counter())
            outputs.append(line.rstrip("\n"))
    if len(outputs) != len(texts):
        raise RuntimeError(f"Bergamot must return {len(texts)} lines, got {len(outputs)}.")
    words = sum(len(text.split()) for text in texts[lines:])
    return {"outputs": outputs, "words_per_second": words / (times[-1] - times[lines - 1])}


RUNNERS: dict[str, Callable[..., dict[str, Any]]] = {
    "engine": run_engine,
    "ctranslate2": run_ctranslate2,
    "bergamot": run_bergamot,
}


def work(request: dict[str, Any]) -> dict[str, Any]:
    """Return the translations of a system and its speed."""
    torch.set_num_threads(1)
    runner, folder = RUNNERS[request.pop("kind")], Path(request.pop("folder"))
    return runner(folder, read_lines(request["sentences"]), **request)


if __name__ == "__main__":
    if is_worker():
        print(json.dumps(work(json.loads(sys.argv[2]))))
    else:
        sys.exit(run(main))
