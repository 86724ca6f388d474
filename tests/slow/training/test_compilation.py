"""`compile: true` with inductor: the gradient of uncompiled steps, and one line where the compiler
is broken.
"""

import subprocess

import pytest
import torch

from tests.tiny_runs import entries, train_tiny
from vanilla_transformer.machine.compiler import find_compiler
from vanilla_transformer.training import trainer


def test_train_refuses_broken_compiler(corpus, tmp_path, monkeypatch):
    broken = tmp_path / "c++"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    assert subprocess.run([broken]).returncode == 1
    monkeypatch.setenv("CXX", str(broken))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    torch.compiler.reset()
    fails = pytest.raises(ValueError, match="`compile` must work on this machine, but fails")
    with torch._inductor.config.patch({"cpp.cxx": (str(broken),)}), fails:
        train_tiny(corpus, tmp_path / "run", compile=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")
def test_inductor_gives_losses_of_uncompiled_steps(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "choose_padding", lambda *_: 8)
    losses = []
    for compile in (False, True):
        options = {"compile": compile, "max_steps": 12, "encoder_layers": 2}
        folder = train_tiny(corpus, tmp_path / f"{compile}", **options)
        losses.append([entry["loss"] for entry in entries(folder) if "loss" in entry])
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
