"""Conversion to every format on a full disk: an error message, and no file left."""

import json
import os
import subprocess
import sys

from tests.marian_files import marian_folder
from vanilla_transformer.extensions.conversion import WRITERS
from vanilla_transformer.extensions.conversion.formats import convert
from vanilla_transformer.extensions.conversion.marian_npz import MARIAN_NPZ
from vanilla_transformer.loading.model_folders import save_model_folder

# The limit holds for a child process that writes no bytecode: Python would cache truncated modules
# in the environment.
CONVERT_ON_A_FULL_DISK = """
import contextlib, io, json, resource, sys
from vanilla_transformer.cli import main

source, target, *formats = sys.argv[1:]
results = {}
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
for name in formats:
    with contextlib.redirect_stderr(io.StringIO()) as errors, contextlib.redirect_stdout(sys.stderr):
        folder = f"{source}/{'pieces' if name == 'bergamot' else 'bytes'}"
        results[name] = [main(["convert", folder, target, "--target_format", name]), errors.getvalue()]
print(json.dumps(results))
"""


def test_writers_leave_no_file_on_a_full_disk(tiny_model, tiny_tokenizer, tmp_path):
    options = {"single": True, "num_pieces": 24, "transformer-ffn-activation": "relu"}
    theirs = marian_folder(tmp_path / "theirs", **options)
    save_model_folder(*convert(MARIAN_NPZ, theirs)[:2], tmp_path / "ours" / "pieces")
    save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "ours" / "bytes")
    before = sorted(tmp_path.rglob("*"))
    command = [sys.executable, "-B", "-c", CONVERT_ON_A_FULL_DISK]
    command += [str(tmp_path / "ours"), str(tmp_path / "out"), *WRITERS]
    # For processes that the child starts
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    child = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert child.returncode == 0, child.stderr
    results = json.loads(child.stdout.splitlines()[-1])
    assert results.keys() == WRITERS.keys()
    for name, (status, message) in results.items():
        assert status == 2, name
        assert "Traceback" not in message
        assert "File too large" in message or "os error 27" in message, message
    assert sorted(tmp_path.rglob("*")) == before
