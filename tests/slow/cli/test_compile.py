"""`vanilla-transformer compile` with a C++ compiler."""

import subprocess
import sys

import pytest
import torch

from vanilla_transformer.cli import main
from vanilla_transformer.inference.compiled_steps import cache_folder, find_compiler
from vanilla_transformer.inference.loading import load_pipeline

TEXTS = ["a b c", "b c d e", "c d"]
pytestmark = pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")


def test_compile_makes_the_pipeline_decode_by_compiled_steps(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("VANILLA_TRANSFORMER_CACHE", str(tmp_path / "cache"))
    before = load_pipeline(folder)(TEXTS, num_beams=2, max_new_tokens=8)
    assert main(["compile", str(folder), "--num_beams", "2", "--longest", "16", "--slots", "8"]) == 0
    assert "8 sentences at once, up to 16 tokens" in capsys.readouterr().out
    packages = sorted(cache_folder().glob("*/step.pt2"))
    assert len(packages) == 1
    translate = load_pipeline(folder)
    assert translate(TEXTS, num_beams=2, max_new_tokens=8) == before
    (engine,) = translate._engines._engines.values()
    assert engine is not None and engine.steps.are_cached()
    changed = packages[0].stat().st_mtime_ns
    assert main(["compile", str(folder), "--num_beams", "2", "--longest", "16", "--slots", "8"]) == 0
    assert packages[0].stat().st_mtime_ns == changed  # nothing is compiled twice


def test_compile_chooses_the_precision_that_auto_means(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("VANILLA_TRANSFORMER_CACHE", str(tmp_path / "cache"))
    for name in ("source", "target"):
        (tmp_path / name).write_text("\n".join(TEXTS) + "\n")
    texts = ["--source", str(tmp_path / "source"), "--target", str(tmp_path / "target")]
    command = ["compile", str(folder), "--precision", "auto", "--num_beams", "1", "--longest", "16", "--slots", "8"]
    assert main([*command, *texts]) == 0
    printed = capsys.readouterr().out
    rows = [line.split("|")[1].strip() for line in printed.splitlines() if line.startswith("|")]
    assert rows == ["precision", "---", "float32", "bfloat16"]
    (chosen,) = [line.split()[2].rstrip(",") for line in printed.splitlines() if line.startswith("`auto` is")]
    translate = load_pipeline(folder, precision="auto")
    translate(TEXTS, num_beams=1)
    engine = list(translate._engines._engines.values())[-1]
    assert engine.model.dtype == getattr(torch, chosen) and engine.steps.are_cached()


def test_compile_without_compiler_ends_with_one_line(folder, tmp_path):
    environment = {"CXX": "no-such-compiler", "PATH": "/usr/bin:/bin", "VANILLA_TRANSFORMER_CACHE": str(tmp_path)}
    command = [sys.executable, "-m", "vanilla_transformer", "compile", str(folder)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].startswith("error: Compiling needs a C++ compiler")
