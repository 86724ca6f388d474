"""Nothing imports or calls unguarded what Windows lacks; by hiding it from this package on another
system.
"""

import pytest

from tests.processes import run_python
from tests.tiny import write_tiny_corpus

# Hides modules from the package's own imports only: other packages choose by the name of the
# system.
PROGRAM = """
import builtins, importlib, os, pkgutil, signal, sys
import accelerate.utils, datasets, sacrebleu, torch.utils.data, transformers.pipelines
HIDDEN = {"fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"}
usual = builtins.__import__
def find(name, globals=None, *rest, **named):
    if name in HIDDEN and (globals or {}).get("__name__", "").startswith("vanilla_transformer"):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return usual(name, globals, *rest, **named)
builtins.__import__ = find
for name in ("pthread_sigmask", "sigtimedwait"):
    delattr(signal, name)
for name in ("geteuid", "sched_getaffinity", "sched_setaffinity"):
    delattr(os, name)
import vanilla_transformer
for module in pkgutil.walk_packages(vanilla_transformer.__path__, "vanilla_transformer."):
    if not module.name.endswith(("__main__", "compile_worker", "space.app")):
        importlib.import_module(module.name)
from transformers import AutoModelForSeq2SeqLM, pipeline
from vanilla_transformer.cli import main
sizes = ["--d_model", "16", "--vocab_size", "262", "--max_tokens", "100", "--max_steps", "2"]
for side in ("encoder", "decoder"):
    sizes += [f"--{side}_layers", "1", f"--{side}_attention_heads", "2", f"--{side}_ffn_dim", "16"]
texts = ["--train_source", "train.a", "--train_target", "train.b"]
assert main(["train", *texts, "--output_dir", "run", *sizes]) == 0
assert main(["translate", "run", "a b", "--quiet", "--max_new_tokens", "3"]) == 0
AutoModelForSeq2SeqLM.from_pretrained("run")
print(len(pipeline("translation", model="run")("a b", max_new_tokens=3)))
"""


@pytest.mark.sweep
def test_package_imports_trains_and_translates_without_what_windows_lacks(tmp_path):
    ended = run_python("-c", PROGRAM, cwd=write_tiny_corpus(tmp_path))
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stdout.splitlines()[-1] == "1"
