"""The arguments, tables and readings of memory that all benchmarks share."""

import json
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from benchmarks import harness


@dataclass
class Arguments(harness.BenchmarkArguments):
    SHORT: ClassVar[dict[str, Any]] = {"rounds": 1}

    rounds: int = field(default=5, metadata={"help": "Rounds."})


@pytest.mark.parametrize(
    "value, text",
    [
        (None, ""),
        ("words", "words"),
        (True, "yes"),
        (False, "**NO**"),
        (12345, "12,345"),
        (1234.5, "1,234"),
        (12.345, "12.3"),
        (-1.234, "-1.23"),
        ([2.0], "2.00"),
        ([1.0, 2.0, 3.0, 4.0, 5.0], "3.00 [2.00, 4.00]"),
    ],
)
def test_cell_shows_three_digits_and_quartiles(value, text):
    assert harness.cell(value) == text


def test_table_has_the_columns_of_all_rows():
    lines = harness.table([{"system": "ours", "speed": 2}, {"system": "Marian", "BLEU": 30.25}])
    assert lines == [
        "| system | speed | BLEU |",
        "|---|---|---|",
        "| ours | 2 |  |",
        "| Marian |  | 30.2 |",
    ]


def test_read_arguments_splits_words_and_flags():
    assert harness.read_arguments(Arguments, ["a", "--rounds", "3"], "bench X", (1,)) == (
        ["a"],
        Arguments(rounds=3),
    )
    assert harness.read_arguments(Arguments, ["--short"], "bench")[1].rounds == 1
    with pytest.raises(
        ValueError, match="`bench OLD NEW` takes 2 words before its flags, got 1: 'a'"
    ):
        harness.read_arguments(Arguments, ["a"], "bench OLD NEW", (2,))


def test_read_arguments_shows_how_to_start_the_benchmark(capsys):
    with pytest.raises(SystemExit):
        harness.read_arguments(Arguments, ["--help"], "bench_x")
    usage, *_ = capsys.readouterr().out.splitlines()
    assert usage == "usage: python -m benchmarks.bench_x [WORD] ... [--flag value ...]"


def test_write_report_names_command_and_machine(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["benchmarks/bench_x.py", "--rounds", "3"])
    options = Arguments(note="others worked", output_dir=str(tmp_path))
    rows = [{"system": "ours", "speed": 2}]
    harness.write_report("x", options, rows, iter(["a note"]))
    lines = capsys.readouterr().out.splitlines()
    assert lines == (tmp_path / "x.md").read_text().splitlines()
    assert lines[0].startswith("`python -m benchmarks.bench_x --rounds 3`; 20")
    assert "commit" in lines[0]
    assert lines[1:4] == ["others worked", "a note", ""]
    assert lines[-1] == "| ours | 2 |"
    report = json.loads((tmp_path / "x.json").read_text())
    assert report["rows"] == rows
    assert report["notes"] == ["a note"]
    assert report["options"]["rounds"] == 5


ECHO = """
import sys
for line in sys.stdin:
    open(sys.argv[2], "a").write(sys.argv[1])
    print(line, end="", flush=True)
"""


def test_in_turns_alternates_between_idle_processes(monkeypatch, tmp_path):
    monkeypatch.setattr(harness, "_SETTLE_SECONDS", 0.0)
    with ExitStack() as stack:
        workers = {}
        for name in "ab":
            command = [sys.executable, "-c", ECHO, name, str(tmp_path / "log")]
            workers[name] = stack.enter_context(harness.start_worker(command, {}))
        answers = harness.in_turns(workers, {"x": 1}, 3)
    assert answers == {"a": 3 * [{"x": 1}], "b": 3 * [{"x": 1}]}
    assert (tmp_path / "log").read_text() == "abbaab"
    assert [worker.returncode for worker in workers.values()] == [0, 0]


def test_receive_says_that_a_worker_ended():
    command = [sys.executable, "-c", "raise SystemExit(3)"]
    with (
        harness.start_worker(command, {}) as worker,
        pytest.raises(RuntimeError, match="status 3: .*SystemExit"),
    ):
        harness.receive(worker)


def test_peak_bytes_excludes_the_parent_process():
    """The parent of a measurement may have held models in memory."""
    parent = (
        "import subprocess, sys; held = bytearray(b'1') * 2**30; "
        "subprocess.run([sys.executable, *sys.argv[1:]])"
    )
    child = "import sys; sys.path.insert(0, sys.argv[1]); from benchmarks.harness import peak_bytes"
    child += "; print(peak_bytes())"
    child += "; import torch; from vanilla_transformer.training.metrics import peak_memory_gib"
    child += "; print(int(2**30 * peak_memory_gib(torch.device('cpu'))))"
    command = [sys.executable, "-c", parent, "-c", child, str(harness.ROOT)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert [int(peak) < 2**30 for peak in said] == [True, True]
