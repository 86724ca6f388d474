"""`vanilla-transformer compile` with a C++ compiler."""

import re
import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from tests.tiny import tiny_causal_lm
from tests.tiny_engines import have_compiled_steps
from vanilla_transformer.cli import main
from vanilla_transformer.decoding.engine.compiled_steps import cache_folder
from vanilla_transformer.decoding.engine.engine import Engine
from vanilla_transformer.decoding.loading import load_pipeline, open_pipeline
from vanilla_transformer.device_utils import find_compiler, usable_cores
from vanilla_transformer.extensions.scale_out import worker_choice

TEXTS = ["a b c", "b c d e", "c d"]
pytestmark = pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")


def test_compile_makes_the_pipeline_decode_by_compiled_steps(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("VANILLA_TRANSFORMER_CACHE", str(tmp_path / "cache"))
    before = load_pipeline(folder)(TEXTS, num_beams=2, max_new_tokens=8)
    assert main(["compile", str(folder), "--num_beams", "2"]) == 0
    assert "float32, beam size 2, 1 threads: ready after" in capsys.readouterr().out
    packages = sorted(cache_folder().glob("*/step.pt2"))
    assert len(packages) == 2, "for few rows and for many"
    translate = load_pipeline(folder)
    assert translate(TEXTS, num_beams=2, max_new_tokens=8) == before
    (engine,) = translate._engines._engines.values()
    assert engine is not None and engine.steps.are_cached()
    changed = [each.stat().st_mtime_ns for each in packages]
    assert main(["compile", str(folder), "--num_beams", "2"]) == 0
    assert [each.stat().st_mtime_ns for each in packages] == changed  # nothing is compiled twice


def test_compile_gives_the_engine_steps_of_a_decoder_only_model(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("VANILLA_TRANSFORMER_CACHE", str(tmp_path / "cache"))
    model = tiny_causal_lm()
    model.save_pretrained(tmp_path / "model")
    assert main(["compile", str(tmp_path / "model"), "--num_beams", "2"]) == 0
    options = {"slots": 1, "num_beams": 2, "max_new_tokens": 6}
    engine, eager = Engine(model, **options), Engine(model, compile=False, **options)
    tokens = [each.generate_tokens([[7, 8, 9]])[0][0].tokens for each in (engine, eager)]
    assert engine.steps.find(engine.buffers.arguments) is not engine.steps.step
    assert tokens[0] == tokens[1]
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    found = loaded.generate(torch.tensor([[7, 8, 9]]), num_beams=2, max_new_tokens=6)
    assert found[0, 3:].tolist() == tokens[1]
    (of_generate,) = loaded.engines._engines.values()
    assert of_generate is not None and of_generate.steps.identity == engine.steps.identity


def test_compile_chooses_the_precision_that_auto_means(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("VANILLA_TRANSFORMER_CACHE", str(tmp_path / "cache"))
    for name in ("source", "target"):
        (tmp_path / name).write_text("\n".join(TEXTS) + "\n")
    texts = ["--source", str(tmp_path / "source"), "--target", str(tmp_path / "target")]
    command = ["compile", str(folder), "--precision", "auto", "--num_beams", "1"]
    assert main([*command, *texts]) == 0
    printed = capsys.readouterr().out
    rows = [line.split("|")[1].strip() for line in printed.splitlines() if line.startswith("|")]
    assert rows == ["precision", "---", "float32", "bfloat16"]
    (chosen,) = [line.split()[2].rstrip(",") for line in printed.splitlines() if line.startswith("`auto` is")]
    translate = load_pipeline(folder, precision="auto")
    translate(TEXTS, num_beams=1)
    engine = list(translate._engines._engines.values())[-1]
    assert engine.model.dtype == getattr(torch, chosen) and engine.steps.are_cached()


@pytest.fixture
def two_threads(monkeypatch):
    """Let this process have two threads, on a machine with two cores."""
    if usable_cores() < 2:
        pytest.skip("needs two cores")
    for module in ("vanilla_transformer.device_utils", "vanilla_transformer.extensions.scale_out.engine_workers"):
        monkeypatch.setattr(f"{module}.usable_cores", lambda: 2)
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.mark.parametrize("faster", [1, 2])
def test_compile_chooses_the_workers_that_auto_means(folder, tmp_path, monkeypatch, capsys, two_threads, faster):
    monkeypatch.setenv("VANILLA_TRANSFORMER_CACHE", str(tmp_path / "cache"))
    (tmp_path / "source").write_text("\n".join(TEXTS) + "\n")
    before = load_pipeline(folder)(TEXTS, num_beams=1)
    measured = {number: 200.0 if number == faster else 100.0 for number in (1, 2)}
    monkeypatch.setattr(
        "vanilla_transformer.extensions.scale_out.worker_choice.compare_workers", lambda *_, **__: measured
    )
    command = ["compile", str(folder), "--num_beams", "1", "--workers", "auto"]
    assert main([*command, "--source", str(tmp_path / "source")]) == 0
    printed = capsys.readouterr().out
    assert re.findall(r"(\d) threads: ready", printed) == ["2", "1"]
    rows = [line.replace(" ", "") for line in printed.splitlines() if line.startswith("|")]
    speeds = ["200.0" if faster == number else "100.0" for number in (1, 2)]
    assert rows[2:] == [f"|1|2|{speeds[0]}|", f"|2|1|{speeds[1]}|"]
    assert f"`--workers auto` is {faster}: {float(faster):.2f} times the speed of one." in printed
    with open_pipeline(folder, "auto", num_beams=1) as translate:
        assert translate(TEXTS, num_beams=1) == before
        if faster == 2:
            assert translate.workers == 2 and translate.threads == 1
            # Each of two jobs at a time goes to a worker, and one worker may have translated all texts.
            jobs = [translate._executor.submit(have_compiled_steps, str(folder)) for _ in range(8)]
            assert any(job.result() for job in jobs)


def test_compile_measures_numbers_of_workers(folder, tmp_path, monkeypatch, capsys, caplog, two_threads):
    monkeypatch.setattr(logging.get_logger("transformers"), "propagate", True)
    monkeypatch.setenv("VANILLA_TRANSFORMER_CACHE", str(tmp_path / "cache"))
    (tmp_path / "source").write_text("\n".join(TEXTS) + "\n")
    command = ["compile", str(folder), "--num_beams", "1", "--workers", "auto"]
    assert main([*command, "--source", str(tmp_path / "source")]) == 0
    printed = capsys.readouterr().out
    assert len(re.findall(r"^\| [12] \| [12] \| [\d.]+ \|$", printed, re.MULTILINE)) == 2
    (chosen,) = re.findall(r"^`--workers auto` is (\d)", printed, re.MULTILINE)
    assert main(["translate", str(folder), "a b c", "--num_beams", "1", "--workers", "auto"]) == 0
    assert f'`workers="auto"` is {chosen}: ' in caplog.text


def test_compile_without_compiler_ends_with_one_line(folder, tmp_path):
    environment = {"CXX": "no-such-compiler", "PATH": "/usr/bin:/bin", "VANILLA_TRANSFORMER_CACHE": str(tmp_path)}
    command = [sys.executable, "-m", "vanilla_transformer", "compile", str(folder)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].startswith("error: Compiling needs a C++ compiler")
