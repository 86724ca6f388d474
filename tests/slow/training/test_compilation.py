"""`compile: true` with inductor: the gradient of uncompiled steps, and one line where the compiler is broken."""

import os
import subprocess
import sys

import pytest
import torch

from tests.tiny_runs import entries, flags, no_scores
from vanilla_transformer.training import trainer
from vanilla_transformer.training.recipe import parse_recipe
from vanilla_transformer.training.trainer import train
from vanilla_transformer.utils.device_utils import find_compiler


@pytest.mark.parametrize("variables", [{"PATH": "/nonexistent"}, {"CXX": "/nonexistent/c++"}])
def test_train_command_refuses_to_start_without_a_compiler(corpus, tmp_path, variables):
    words = ["-m", "vanilla_transformer", "train", *flags(corpus, tmp_path / "run", compile=True)]
    environment = {name: value for name, value in os.environ.items() if name != "CXX"} | variables
    ended = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr == (
        "error: `compile` needs a C++ compiler, and there is none. Install g++, or leave `compile` out.\n"
    )
    assert not (tmp_path / "run").exists()


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
        train(parse_recipe(flags(corpus, tmp_path / "run", compile=True)), evaluate=no_scores)
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")
def test_inductor_gives_losses_of_uncompiled_steps(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "choose_padding", lambda *_: 8)
    losses = []
    for compile in (False, True):
        options = {"compile": compile, "max_steps": 12, "encoder_layers": 2}
        folder = train(parse_recipe(flags(corpus, tmp_path / f"{compile}", **options)), evaluate=no_scores)
        losses.append([entry["loss"] for entry in entries(folder) if "loss" in entry])
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
