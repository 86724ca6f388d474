"""A result that cannot be printed is an error of one line: a closed or full standard output, and a
lack of memory.
"""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import run_python
from tests.sweeps import sample
from tests.tiny_runs import ROOT
from vanilla_transformer.cli import run
from vanilla_transformer.loading.model_folders import save_model_folder

pytestmark = pytest.mark.skipif(
    not os.path.exists("/dev/full"), reason="needs the devices of Linux"
)
CLOSED = "error: Standard output must take the result, but it is closed.\n"
FULL = (
    "error: Standard output must take the result, but it cannot be written (No space "
    "left on device).\n"
)
# Gives a forked process the standard output that a new one would have.
PROGRAM = """
import os, sys
kind, *words = sys.argv[1:]
os.close(1)
sys.stdout = None
if kind == "full":
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
    sys.stdout = open(1, "w")
if kind == "ended":
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, 1)
    sys.stdout = open(1, "w")
from vanilla_transformer.cli import main
sys.exit(main(words))
"""


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    from tests.tiny import tiny_model, tiny_tokenizer

    folder = tmp_path_factory.mktemp("texts")
    save_model_folder(tiny_model(), tiny_tokenizer(), folder / "model")
    (folder / "a").write_text("A man.\nTwo dogs.\n")
    return folder


@pytest.mark.parametrize("words", ["--help", "train --help", "score --help_all"])
def test_help_that_cannot_be_printed_is_an_error(words):
    command = f"'{Path(sys.executable).with_name('vanilla-transformer')}' {words}"
    for redirection, status, message in (
        (">&-", 1, CLOSED),
        (">/dev/full", 1, FULL),
        ("| true", 0, ""),
    ):
        shell = ["bash", "-c", f"set -o pipefail; {command} {redirection}"]
        ended = subprocess.run(shell, cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert (ended.returncode, ended.stderr) == (status, message), redirection


def run_with_output(kind, words, folder):
    """Return the status of a command and its errors, without the bars that a process shows which
    was forked.
    """
    ended = run_python("-c", PROGRAM, kind, *words, cwd=folder)
    return ended.returncode, re.sub(
        r"^(Loading weights: .*)?\n", "", ended.stderr, flags=re.MULTILINE
    )


TEXTS = ["--source", "a", "--target", "a"]
PRINTING = {
    "translate": ["translate", "model", "A man."],
    "a document": ["translate", "model", "--input", "a", "--format", "markdown"],
    "score": ["score", "model", *TEXTS],
    "evaluate": ["evaluate", "--hypotheses", "a", "--target", "a"],
    "write-alignments": ["write-alignments", *TEXTS],
}


@pytest.mark.parametrize("name", sample(PRINTING, "translate", "evaluate"))
def test_result_that_cannot_be_printed_is_an_error(workplace, name):
    words = PRINTING[name]
    for kind, status, message in (("closed", 1, CLOSED), ("full", 1, FULL), ("ended", 0, "")):
        assert run_with_output(kind, words, workplace) == (status, message), kind


def test_result_in_a_file_needs_no_standard_output(workplace):
    words = ["translate", "model", "--input", "a", "--output", "out"]
    assert run_with_output("closed", words, workplace) == (0, "")
    assert len((workplace / "out").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("could not create a primitive"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory: you "
            "tried to"
        ),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
        OSError(
            "The weights of m are damaged (unable to mmap 9 bytes from file <m>: Cannot allocate "
            "memory (12))."
        ),
    ],
)
def test_lack_of_memory_is_named(capsys, error):
    def fail(arguments):
        raise error

    assert run(fail, []) == 1
    shown = capsys.readouterr().err
    assert (
        shown.startswith("error: The command must have more memory than the system gives")
        and shown.count("\n") == 1
    )
