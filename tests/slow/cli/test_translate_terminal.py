"""`translate` answers typed lines and lines of a pipe at once, and ends without a traceback."""

import json
import os
import pty
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
    files = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | files
    return subprocess.Popen(command, env=ENVIRONMENT, start_new_session=True, **files)


def read_until(descriptor, enough, seconds=30):
    """Return what can be read once `enough` is true of it."""
    found, deadline = b"", time.monotonic() + seconds
    while not enough(found):
        assert select.select([descriptor], [], [], deadline - time.monotonic())[0], found
        piece = os.read(descriptor, 1 << 16)
        assert piece, found
        found += piece
    return found


def sources(output):
    return [
        json.loads(line)["source"] for line in output.decode().splitlines() if line.startswith("{")
    ]


def test_translate_answers_a_pipe_that_pauses_and_loses_nothing(command):
    with start(command) as process:
        for number in (2, 1):
            process.stdin.write(b"Two dogs.\n" * number)
            process.stdin.flush()
            answers = read_until(
                process.stdout.fileno(), lambda found, number=number: found.count(b"\n") == number
            )
            assert sources(answers) == ["Two dogs."] * number
        output, errors = process.communicate(
            b"\n".join(b"Dog %d" % number for number in range(100)), timeout=120
        )
    assert sources(output) == [f"Dog {number}" for number in range(100)]
    assert process.returncode == 0 and errors == b""


def test_translate_ends_quietly_with_the_reader_of_its_output(command):
    with start(command) as process:
        process.stdin.write(b"Two dogs.\n")
        process.stdin.flush()
        read_until(process.stdout.fileno(), lambda found: b"\n" in found)
        process.stdout.close()
        process.stdin.write(b"Two dogs.\n")
        process.stdin.close()
        assert process.stderr.read() == b"" and process.wait(120) == 0


def test_translate_answers_typed_lines_until_ctrl_d(command, terminal):
    user, tty = terminal
    with start([*command[:-2], "--num_return_sequences", "2"], stdin=tty, stdout=tty) as process:
        read_until(user, lambda found: b"> " in found)
        for line in PLAIN:
            os.write(user, line.encode() + b"\n")
            shown = read_until(user, lambda found: found.endswith(b"> ")).decode().split("\r\n")
            scores = [float(each.split("\t")[0]) for each in shown if "\t" in each]
            assert len(scores) == 2 and scores[0] >= scores[1]
        os.write(user, b"\x04")
        assert process.wait(120) == 0
        assert b"Ctrl-D ends" in process.stderr.read()


def test_translate_typed_lines_have_a_history(command, terminal):
    pytest.importorskip("readline")
    user, tty = terminal
    with start([*command[:-2], "--json"], stdin=tty, stdout=tty) as process:
        read_until(user, lambda found: b"> " in found)
        for keys in (b"Two dogs.\n", b"\x1b[A\n"):  # arrow up
            os.write(user, keys)
            assert sources(
                read_until(user, lambda found: b'{"source"' in found and found.endswith(b"> "))
            ) == ["Two dogs."]
        os.write(user, b"\x04")
        assert process.wait(120) == 0


def test_translate_typed_lines_end_at_ctrl_c(command, terminal):
    user, tty = terminal
    with start(command[:-1], stdin=tty, stdout=tty) as process:
        read_until(user, lambda found: b"> " in found)
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130
        errors = process.stderr.read()
    assert b"Traceback" not in errors and errors.endswith(b"Interrupted.\n")
