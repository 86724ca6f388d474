"""No command prints what other packages say about themselves, and waiting threads sleep; by
stand-ins for packages.
"""

import os
import subprocess
import sys
import termios
from contextlib import suppress

import pytest

from benchmarks.harness import ROOT
from tests.processes import run_python

TORCHAO = """
import logging
logging.getLogger(__name__).warning("Failed to load /lib/_C_mxfp8.abi3.so: no CUDA")
logging.getLogger(__name__).warning("Skipping import of cpp extensions due to incompatible torch version.")
logging.getLogger("torch.utils._pytree").warning("%s: register_constant() on Enum subclasses is deprecated", "A")
logging.getLogger(__name__).warning("Something for users")
"""
# Like bindings by nanobind, it says at exit which of its objects are left; the garbage collector
# frees cycles.
TRITON = """
import os
class Type:
    def __init__(self):
        self.me = self
    def __del__(self, write=os.write):
        write(2, b"freed\\n")
leaked = Type()
"""
COMMAND = """
import importlib.util, sys
def load(name):
    spec = importlib.util.spec_from_file_location(name, f"{sys.argv[1]}/{name}/__init__.py")
    stand_in = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stand_in)
    return stand_in
triton = load("triton")
from vanilla_transformer.cli import main
status = main(["check-model", "nowhere"])
sys.modules["triton"] = triton  # only now, since torch could not use it
torchao = load("torchao")
sys.exit(status)
"""


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
    ENVIRONMENT.pop(name, None)


def run(*words, **variables):
    program, environment = [sys.executable, *words], ENVIRONMENT | variables
    return subprocess.run(program, env=environment, capture_output=True, text=True)


def test_a_command_prints_nothing_that_packages_say_of_themselves(tmp_path):
    for name, text in (("torchao", TORCHAO), ("triton", TRITON)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(text)
    ended = run("-c", COMMAND, str(tmp_path))
    error, *said = ended.stderr.splitlines()
    assert ended.returncode == 2 and error.startswith("error: ") and ended.stdout == ""
    assert said == ["Something for users", "freed"]  # nothing is left of triton at exit


WORK = """
import sys
sys.argv = sys.argv[1:]
from vanilla_transformer.cli import main
main(["--version"])
import time
import tqdm
list(tqdm.tqdm("ab", "Loading weights"))
for _ in tqdm.tqdm(range(3), "Tokenizing"):
    time.sleep(float(sys.argv[1]))
"""


@pytest.mark.sweep
def test_progress_bars_are_of_terminals_and_long_work():
    program = ("-c", WORK, "vanilla-transformer")
    assert run(*program, "0.6").stderr == ""  # a log file
    assert in_terminal(*program, "0") == ""
    shown = in_terminal(*program, "0.6")
    assert "Tokenizing" in shown and "Loading weights" not in shown
    assert "Loading weights" in in_terminal(*program, "0", TQDM_DELAY="0")
    assert in_terminal(*program, "0.6", TQDM_DISABLE="1") == ""


def in_terminal(*words, **variables):
    """Run a program in a terminal, and return its standard error."""
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    program = [sys.executable, *words]
    environment = ENVIRONMENT | variables
    streams = {"stdout": subprocess.DEVNULL, "stderr": theirs}
    subprocess.run(program, env=environment, check=True, **streams)
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # by which Linux ends it
        while piece := os.read(ours, 1 << 16):
            shown += piece
    os.close(ours)
    return shown.decode()


WAITING = """
import os, sys
class Torch:
    def find_spec(self, name, *rest):
        if name == "torch":
            print(os.environ.get("GOMP_SPINCOUNT"), os.environ.get("OMP_WAIT_POLICY"))
            os._exit(sys.stdout.flush() or 0)
sys.meta_path.insert(0, Torch())
"""


POLICIES = [({}, "10000 None"), ({"GOMP_SPINCOUNT": "7"}, "7 None")]
POLICIES.append(({"OMP_WAIT_POLICY": "active"}, "None active"))


@pytest.mark.parametrize(("variables", "expected"), POLICIES)
def test_waiting_threads_sleep_soon_unless_told_otherwise(variables, expected):
    command = "sys.argv = sys.argv[1:]; from vanilla_transformer.cli import main;"
    program = f"{WAITING}\n{command} main(['translate', 'a'])"
    ended = run("-c", program, "vanilla-transformer", **variables)
    assert ended.stdout.split() == expected.split()


@pytest.mark.sweep
def test_importing_the_package_leaves_the_environment():
    code = "import os; before = {**os.environ}; import vanilla_transformer;"
    code += " print({**os.environ} == before)"
    assert run_python("-c", code, env=ENVIRONMENT).stdout.split() == ["True"]
