"""`translate` answers typed lines and lines of a pipe at once, and ends without a traceback."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TERM": "dumb"}
PLAIN = ["A man is sleeping.", "Two dogs.", ""]


@pytest.fixture
def command(folder):
    flags = ["--num_beams", "2", "--max_new_tokens", "4", "--json", "--quiet"]
    return [sys.executable, "-m", "vanilla_transformer", "translate", str(folder), *flags]


@pytest.fixture
def terminal():
    """Return both ends of a pseudo-terminal."""
    ends = pty.openpty()
    yield ends
    for end in ends:
        os.close(end)


def start(command, **files):
    files = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE) | files
    return subprocess.Popen(command, env=ENVIRONMENT, start_new_session=True, **files)


def read_until(descriptor, enough, seconds=30):
    """Return what can be read once `enough` is true of it."""
    output, deadline = b"", time.monotonic() + seconds
    while not enough(output):
        readable, _, _ = select.select([descriptor], [], [], deadline - time.monotonic())
        assert readable, output
        piece = os.read(descriptor, 1 << 16)
        assert piece, output
        output += piece
    return output


def read_lines(process, number):
    """Return the output of a process once it has so many lines."""
    return read_until(process.stdout.fileno(), lambda output: output.count(b"\n") >= number)


def read_prompt(user, answer=b""):
    """Return the output on a terminal up to the next prompt, after an answer."""
    return read_until(user, lambda output: answer in output and output.endswith(b"> "))


def sources(output):
    lines = output.decode().splitlines()
    return [json.loads(line)["source"] for line in lines if line.startswith("{")]


def test_translate_answers_a_pipe_that_pauses(command):
    with start(command) as process:
        for number in (2, 1):
            process.stdin.write(b"Two dogs.\n" * number)
            process.stdin.flush()
            assert sources(read_lines(process, number)) == ["Two dogs."] * number
        lines = [f"Dog {number}" for number in range(100)]
        output, errors = process.communicate("\n".join(lines).encode(), timeout=120)
    assert sources(output) == lines
    assert process.returncode == 0
    assert errors == b""


def test_translate_ends_quietly_with_its_reader(command):
    with start(command) as process:
        process.stdin.write(b"Two dogs.\n")
        process.stdin.flush()
        read_lines(process, 1)
        process.stdout.close()
        process.stdin.write(b"Two dogs.\n")
        process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait(120) == 0


def test_translate_answers_typed_lines_until_ctrl_d(command, terminal):
    user, tty = terminal
    with start([*command[:-2], "--num_return_sequences", "2"], stdin=tty, stdout=tty) as process:
        read_prompt(user)
        for line in PLAIN:
            os.write(user, line.encode() + b"\n")
            shown = read_prompt(user).decode()
            first, second = re.findall(r"^(\S+)\t", shown, re.MULTILINE)
            assert float(first) >= float(second)
        os.write(user, b"\x04")
        assert process.wait(120) == 0
        assert b"Ctrl-D ends" in process.stderr.read()


def test_translate_typed_lines_have_a_history(command, terminal):
    pytest.importorskip("readline")
    user, tty = terminal
    with start([*command[:-2], "--json"], stdin=tty, stdout=tty) as process:
        read_prompt(user)
        for keys in (b"Two dogs.\n", b"\x1b[A\n"):  # arrow up
            os.write(user, keys)
            assert sources(read_prompt(user, b'{"source"')) == ["Two dogs."]
        os.write(user, b"\x04")
        assert process.wait(120) == 0


def test_translate_typed_lines_end_at_ctrl_c(command, terminal):
    user, tty = terminal
    with start(command[:-1], stdin=tty, stdout=tty) as process:
        read_prompt(user)
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130
        errors = process.stderr.read()
    assert b"Traceback" not in errors
    assert errors.endswith(b"Interrupted.\n")
