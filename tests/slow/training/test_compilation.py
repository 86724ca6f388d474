"""`compile: true`: one graph for batches of all shapes, and one line where the compiler is broken."""

import os
import random
import subprocess
import sys

import pytest
import torch
from torch._dynamo.utils import counters

from tests.tiny_runs import flags, no_scores
from vanilla_transformer.training import setup, trainer
from vanilla_transformer.training.arguments import parse_recipe
from vanilla_transformer.training.trainer import train


def write_uneven_pairs(corpus, pairs=40):
    """Write pairs whose sides differ in length, among them some that fill a batch alone."""
    draw = random.Random(2)
    lengths = [draw.randint(1, 20) for _ in range(pairs)]
    for end, letters, most in (("a", "abcdef", 0), ("b", "ABCDEF", 4)):
        lines = [" ".join(draw.choices(letters, k=max(1, n + draw.randint(-most, most)))) for n in lengths]
        (corpus / f"train.{end}").write_text("\n".join(lines) + "\n")


@pytest.fixture
def fresh_dynamo(monkeypatch):
    """Let torch trace without compiling, from an empty cache."""
    monkeypatch.setattr(setup, "_BACKEND", "eager")
    torch.compiler.reset()
    counters.clear()
    yield
    torch.compiler.reset()


def test_train_compiles_one_graph_before_first_step(corpus, tmp_path, monkeypatch, fresh_dynamo):
    write_uneven_pairs(corpus)
    shapes, graphs = set(), set()
    unpatched = trainer.train_step

    def counting(state, micro_batches):
        graphs.add(counters["stats"]["unique_graphs"])
        with torch.compiler.set_stance("fail_on_recompile"):
            norm = unpatched(state, micro_batches)
        shapes.update(tuple(batch.tensors["labels"].shape) for batch in micro_batches)
        return norm

    monkeypatch.setattr(trainer, "train_step", counting)
    steps = {"max_steps": 60, "eval_steps": 60, "save_steps": 60, "max_tokens": 40}
    train(parse_recipe(flags(corpus, tmp_path / "run", compile=True, **steps)), evaluate=no_scores)
    assert graphs == {1}
    assert len(shapes) > 5 and 1 in {rows for rows, _ in shapes}


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
    monkeypatch.setattr(torch._inductor.config.cpp, "cxx", (str(broken),))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(ValueError, match="`compile` must work on this machine, but fails"):
        train(parse_recipe(flags(corpus, tmp_path / "run", compile=True)), evaluate=no_scores)
    assert not (tmp_path / "run").exists()
