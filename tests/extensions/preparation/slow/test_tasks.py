"""Tasks in other processes, on the command line."""

import random
import signal
import subprocess
import sys

import psutil
import pytest

from tests.processes import wait_until
from vanilla_transformer.user_input.user_modules import child_environment

WORDS = ["one", "two", "three", "four", "five"]


@pytest.fixture
def prepare(tmp_path, monkeypatch):
    """Return a function that starts the command on two texts."""
    monkeypatch.chdir(tmp_path)
    draw, files = random.Random(0), []
    for name in ("a.tsv", "b.tsv"):
        lines = []
        for _ in range(2_000):
            words = draw.choices(WORDS, k=8)
            lines.append(f"{' '.join(words)}\t{' '.join(words).title()}\n")
        (tmp_path / name).write_text("".join(lines))
        files.append({"file": name})
    command = [sys.executable, "-m", "vanilla_transformer", "prepare", f"--corpora={files}"]
    command += ["--drop=duplicates", "--vocab_size=270", "--shard_pairs=500"]

    def start(*flags):
        return subprocess.Popen([*command, *flags], env=child_environment())

    return start


def files_of(folder):
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder): path.read_bytes() for path in paths}


@pytest.mark.parametrize("victim", ["command", "task"])
def test_killed_processes_leave_no_others_and_the_command_continues(prepare, tmp_path, victim):
    flags = ["--tasks", "2", "--output", "two"]
    process = prepare(*flags)
    wait_until(lambda: len([*tmp_path.glob("two/work/check/[0-9]*")]) > 2)
    children = psutil.Process(process.pid).children(recursive=True)
    busy = max(children, key=lambda child: sum(child.cpu_times()[:2]))
    if victim == "command":
        process.kill()
    else:
        busy.send_signal(signal.SIGKILL)
    assert process.wait(60) == (-signal.SIGKILL if victim == "command" else 2)
    wait_until(lambda: not any(child.is_running() for child in children))
    assert not (tmp_path / "two" / "manifest.json").exists()
    assert prepare(*flags).wait(300) == 0
    assert prepare("--output", "one").wait(300) == 0
    assert files_of(tmp_path / "two") == files_of(tmp_path / "one")
