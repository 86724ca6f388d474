"""`vanilla-transformer compile` with a C++ compiler."""

import subprocess
import sys

import pytest

from tests.tiny import tiny_causal_lm
from vanilla_transformer.cli import main
from vanilla_transformer.decoding.engine.compiled_steps import cache_folder
from vanilla_transformer.decoding.engine.engine import Engine
from vanilla_transformer.decoding.loading import load_pipeline
from vanilla_transformer.machine.compiler import find_compiler

TEXTS = ["a b c", "b c d e", "c d"]
pytestmark = pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")


def modification_times(paths):
    return [path.stat().st_mtime_ns for path in paths]


def test_pipeline_decodes_by_compiled_steps(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("VANILLA_TRANSFORMER_CACHE", str(tmp_path / "cache"))
    before = load_pipeline(folder)(TEXTS, num_beams=2, max_new_tokens=8)
    assert main(["compile", str(folder), "--num_beams", "2"]) == 0
    assert "float32, beam size 2, 1 threads: ready after" in capsys.readouterr().out
    packages = sorted(cache_folder().glob("*/step.pt2"))
    assert len(packages) == 2, "for few rows and for many"
    translate = load_pipeline(folder)
    assert translate(TEXTS, num_beams=2, max_new_tokens=8) == before
    (engine,) = translate._engines._engines.values()
    assert engine is not None and engine.steps.is_compiled
    before = modification_times(packages)
    assert main(["compile", str(folder), "--num_beams", "2"]) == 0
    assert modification_times(packages) == before  # nothing is compiled twice


def test_compile_makes_steps_of_a_decoder_only_model(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("VANILLA_TRANSFORMER_CACHE", str(tmp_path / "cache"))
    model = tiny_causal_lm()
    model.save_pretrained(tmp_path / "model")
    assert main(["compile", str(tmp_path / "model"), "--num_beams", "2"]) == 0
    options = {"slots": 1, "num_beams": 2, "max_new_tokens": 6}
    engine, eager = Engine(model, **options), Engine(model, compile=False, **options)
    (best, *_), (best_of_eager, *_) = engine.decode([[7, 8, 9]])[0], eager.decode([[7, 8, 9]])[0]
    assert engine.steps.find(engine.buffers.arguments) is not engine.steps.step
    assert best.tokens == best_of_eager.tokens


def test_compile_without_compiler_ends_with_one_line(folder, tmp_path):
    environment = {"CXX": "no-such-compiler", "PATH": "/usr/bin:/bin"}
    environment["VANILLA_TRANSFORMER_CACHE"] = str(tmp_path)
    command = [sys.executable, "-m", "vanilla_transformer", "compile", str(folder)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].startswith("error: Compiling needs a C++ compiler")
