"""A process that decodes ends at once, and not in an abort, whatever it does in the background."""

import subprocess
import sys

import pytest

# The process that compiles ends as soon as it has begun, and its package takes for ever to load,
# but in the main thread. Python ends other threads when they return from torch's code after its own
# end, and C++ then aborts.
LOADING_AT_EXIT = """
import shutil, sys, threading
import torch
from tests.tiny_engines import engine_of, translate
from vanilla_transformer.decoding.engine import compiled_steps

def load(folder, step):
    loading.set()
    numbers = torch.ones(500, 500)
    while threading.current_thread() is not threading.main_thread():
        numbers @ numbers
    return step

loading = threading.Event()
compiled_steps.EAGER_SECONDS, compiled_steps.FEW_CORES, compiled_steps.CompiledStep = 0.0, 0, load
sys.executable = shutil.which("true")
engine = engine_of(4, compile="auto")
compiled_steps.CompiledSteps._is_missing = lambda *_: False
for form in engine.steps._forms.values():
    form.is_sought = False
translate(engine)
while not loading.wait(0.1):
    translate(engine)
print("done")
"""


@pytest.mark.sweep
def test_process_ends_without_an_abort_while_a_package_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setenv("VANILLA_TRANSFORMER_CACHE", str(tmp_path))
    ended = subprocess.run(
        [sys.executable, "-c", LOADING_AT_EXIT], capture_output=True, text=True, timeout=300
    )
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr
