"""Compiled steps: the tokens of eager ones, and a cache that stays whole."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from transformers.utils import logging

from tests.closeness import close_to
from tests.processes import wait_until
from tests.tiny import tiny_model
from tests.tiny_engines import SOURCES, EndedWorker, engine_of, translate
from vanilla_transformer.decoding.engine import compiled_steps
from vanilla_transformer.decoding.engine.engine import Engine
from vanilla_transformer.decoding.engine.step_package import StepCompiler

IN_NEW_PROCESS = """
import json, sys, time
import torch, torch._inductor
from tests.tiny_engines import engine_of, translate
torch.set_num_threads(1)
engine = engine_of(int(sys.argv[1]), slots=1, compile=True)
print("ready", flush=True)
start = time.process_time()
step = engine.steps.find(engine.buffers.arguments)
seconds = time.process_time() - start
print(json.dumps([seconds, step is not engine.steps.step, translate(engine)]))
"""


def start_process(beams):
    command = [sys.executable, "-c", IN_NEW_PROCESS, str(beams)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """Return a cache with the compiled steps of greedy and of beam search, and the identity of each
    beam size.
    """
    cache = tmp_path_factory.mktemp("compiled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VANILLA_TRANSFORMER_CACHE", str(cache))
        engines = {beams: engine_of(beams, compile=True) for beams in (1, 4)}
        for engine in engines.values():
            engine.compile_steps()
    return cache, {beams: engine.steps.identity for beams, engine in engines.items()}


@pytest.fixture
def cache(packages, tmp_path, monkeypatch):
    """Return a copy of that cache, which the engines of a test use."""
    shutil.copytree(packages[0], tmp_path / "cache")
    monkeypatch.setenv("VANILLA_TRANSFORMER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "compiled_steps"


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("VANILLA_TRANSFORMER_CACHE", str(tmp_path / "empty"))
    return tmp_path / "empty" / "compiled_steps"


@pytest.fixture
def compilations(packages, monkeypatch):
    """Count compilations, which take a package from the cache instead of a minute."""
    made = []

    def copy(compiler, kind, folder):
        for name in ("step.pt2", "constants.json"):
            shutil.copy(
                packages[0]
                / "compiled_steps"
                / f"{packages[1][compiler._step.beams]}_{kind}"
                / name,
                folder,
            )
        made.append(kind)

    monkeypatch.setattr(StepCompiler, "compile", copy)
    return made


def folders(cache: Path):
    return sorted(path.name for path in cache.iterdir() if path.is_dir())


@pytest.mark.parametrize("compile", [True, "auto"])
@pytest.mark.parametrize("beams", [1, 4])
def test_compiled_step_gives_tokens_of_eager_step(cache, beams, compile):
    compiled, eager = engine_of(beams, compile=compile), engine_of(beams, compile=False)
    assert compiled.steps.find(compiled.buffers.arguments) is not compiled.steps.step
    assert translate(compiled) == translate(eager)
    found, expected = (
        [value for (best,) in engine.decode(SOURCES) for value in best.token_log_probabilities]
        for engine in (compiled, eager)
    )
    assert found == close_to(expected)
    assert len(folders(cache)) == 4


@pytest.mark.parametrize("slots", [1, 2, 5])
@pytest.mark.parametrize("beams", [1, 4])
def test_one_package_serves_any_number_of_slots(cache, compilations, beams, slots):
    engine = engine_of(beams, slots=slots, compile=True)
    assert translate(engine) == translate(engine_of(beams, compile=False))
    assert engine.steps.find(engine.buffers.arguments) is not engine.steps.step and not compilations


@pytest.mark.parametrize("compile", [True, "auto"])
@pytest.mark.parametrize("beams", [1, 4])
def test_package_decodes_with_the_weights_of_another_model(cache, compilations, beams, compile):
    engine = engine_of(beams, seed=1, compile=compile)
    assert engine.steps.identity == engine_of(beams).steps.identity
    found = translate(engine)
    assert found == translate(engine_of(beams, seed=1, compile=False))
    assert found != translate(engine_of(beams, compile=False))
    assert engine.steps.find(engine.buffers.arguments) is not engine.steps.step and not compilations


@pytest.mark.parametrize("beams", [1, 4])
def test_compiled_step_decodes_sentences_of_any_length(cache, beams):
    sources = [[7, 8] * length + [2] for length in (1, 9, 20, 40, 90)]
    options = {"max_new_tokens": None, "max_new_tokens_beyond_source": 20}
    model = tiny_model(0, vocab_size=40, init_std=0.4, decoder_layers=2)
    found, sizes = [], set()
    for compile in (True, False):
        engine = Engine(model, slots=2, num_beams=beams, compile=compile, **options)
        found.append([])
        for source in sources:
            found[-1] += [
                [each.tokens for each in hypotheses] for hypotheses in engine.decode([source])
            ]
            sizes.add(engine.buffers.size.room)
    assert found[0] == found[1] and sizes >= {48, 64, 128, 256}
    assert len(folders(cache)) == 4


def test_compiled_steps_take_no_more_threads_than_are_set(empty_cache):
    torch.set_num_threads(2)
    model = tiny_model(0, vocab_size=4_000, d_model=256)
    engine = Engine(model, slots=64, num_beams=4, compile=True, max_new_tokens=4)
    engine.decode([[7, 8, 2]] * 64)

    def other_threads():
        """Return the share of processor time that other threads than this one take."""
        total, this = time.process_time(), time.thread_time()
        engine.steps.run(200, *engine.buffers.arguments)
        return 1 - (time.thread_time() - this) / (time.process_time() - total)

    assert engine.steps.find(engine.buffers.arguments) is not engine.steps.step
    other_threads()
    assert other_threads() > 0.2
    torch.set_num_threads(1)
    other_threads()
    assert other_threads() < 0.02


def test_compiled_step_loads_in_a_new_process_in_less_than_a_second(cache):
    files = {path: path.stat().st_mtime_ns for path in cache.glob("*/*")}
    output = start_process(4).communicate(timeout=300)[0]
    seconds, is_compiled, tokens = json.loads(output.splitlines()[-1])
    assert is_compiled and seconds < 1
    assert tokens == translate(engine_of(4, compile=False))
    assert {path: path.stat().st_mtime_ns for path in cache.glob("*/*")} == files


def test_compiled_steps_of_other_options_threads_and_shapes_differ(cache):
    names = {name.removesuffix("_few_rows").removesuffix("_many_rows") for name in folders(cache)}
    assert engine_of(4, compile=True).steps.identity in names
    others = [engine_of(4, length_penalty=0.3).steps.identity, engine_of(3).steps.identity]
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)
        others.append(engine_of(4).steps.identity)
    finally:
        torch.set_num_threads(threads)
    other_heads = tiny_model(
        0, vocab_size=40, init_std=0.4, decoder_layers=2, decoder_attention_heads=4
    )
    others.append(Engine(other_heads, slots=2, num_beams=4, max_new_tokens=8).steps.identity)
    assert len(names.union(others)) == len(others) + 2
    engine = engine_of(4, length_penalty=0.3, compile="auto")
    assert engine.steps.find(engine.buffers.arguments) is engine.steps.step


@pytest.mark.parametrize("damage", ["truncated", "deleted", "changed"])
def test_damaged_package_is_compiled_again(cache, compilations, damage):
    expected = translate(engine_of(4, compile=False))
    package = cache / f"{engine_of(4).steps.identity}_many_rows" / "step.pt2"
    content = package.read_bytes()
    broken = {
        "truncated": content[: len(content) // 2],
        "changed": content[:-1] + bytes([content[-1] ^ 1]),
    }
    package.unlink() if damage == "deleted" else package.write_bytes(broken[damage])
    automatic = engine_of(4, compile="auto")
    assert automatic.steps.find(automatic.buffers.example()) is automatic.steps.step
    assert translate(engine_of(4, compile=True)) == expected
    assert package.read_bytes() == content and compilations == ["many_rows"]


def test_few_rows_run_the_form_of_many_until_their_own_is_compiled(cache, compilations):
    shutil.rmtree(cache / f"{engine_of(4).steps.identity}_few_rows")
    automatic, expected = (
        engine_of(4, slots=1, compile="auto"),
        translate(engine_of(4, compile=False)),
    )
    few, many = automatic.buffers.arguments, automatic.buffers.example()
    assert translate(automatic) == expected and not compilations
    assert automatic.steps.find(few) is automatic.steps.find(many) is not automatic.steps.step
    complete = engine_of(4, slots=1, compile=True)
    assert translate(complete) == expected and compilations == ["few_rows"]
    assert complete.steps.find(few) is not complete.steps.find(many)


def test_killed_compilation_leaves_no_entry(empty_cache, compilations):
    process = start_process(4)
    try:
        assert process.stdout.readline() == "ready\n"
        deadline = time.monotonic() + 120
        while not list(empty_cache.glob(".*.tmp-*")):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert [name for name in folders(empty_cache) if not name.startswith(".")] == []
    engine = engine_of(4, slots=1, compile="auto")
    assert engine.steps.find(engine.buffers.arguments) is engine.steps.step
    assert translate(engine_of(4, slots=1, compile=True)) == translate(engine_of(4, compile=False))
    assert folders(empty_cache) == [
        f"{engine.steps.identity}_{kind}" for kind in compilations
    ]  # no leftovers
    assert compilations == ["few_rows", "many_rows"]


@pytest.mark.parametrize(("name", "value"), [("CXX", "/nonexistent"), ("PATH", "")])
def test_engine_decodes_eagerly_without_a_compiler(empty_cache, monkeypatch, caplog, name, value):
    expected = translate(engine_of(4, compile=False))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv(name, value)
    monkeypatch.setattr(logging.get_logger("transformers"), "propagate", True)
    caplog.clear()
    for _ in range(2):
        assert translate(engine_of(4, compile=True)) == expected
    (record,) = [record for record in caplog.records if record.name == compiled_steps.__name__]
    assert "C++ compiler" in record.getMessage() and "\n" not in record.getMessage()
    assert not empty_cache.exists()


def test_long_stream_compiles_in_the_background_and_switches_over(cache, tmp_path, monkeypatch):
    ended = []
    monkeypatch.setattr(EndedWorker, "poll", lambda worker: 0 if ended else None)
    monkeypatch.setattr(compiled_steps, "_start_worker", EndedWorker)
    monkeypatch.setattr(compiled_steps, "EAGER_SECONDS", 0.0)
    monkeypatch.setattr(compiled_steps, "FEW_CORES", 0)
    monkeypatch.setenv("VANILLA_TRANSFORMER_CACHE", str(tmp_path / "empty"))
    expected = translate(engine_of(4, compile=False))
    engine = engine_of(4, compile="auto")
    for _ in range(3):
        assert translate(engine) == expected
    assert engine.steps.find(engine.buffers.arguments) is engine.steps.step
    shutil.copytree(cache, tmp_path / "empty" / "compiled_steps")
    ended.append(True)
    assert engine.steps.find(engine.buffers.arguments) is not engine.steps.step
    assert translate(engine) == expected


def test_failing_compiler_leaves_eager_steps_and_one_warning(empty_cache, monkeypatch, caplog):
    monkeypatch.setattr(compiled_steps, "EAGER_SECONDS", 1e-9)
    monkeypatch.setattr(compiled_steps, "FEW_CORES", 0)
    monkeypatch.setenv("CXX", shutil.which("false"))
    monkeypatch.setattr(logging.get_logger("transformers"), "propagate", True)
    expected = translate(engine_of(4, compile=False))
    engine = engine_of(4, compile="auto")
    assert translate(engine) == expected
    wait_until(lambda: not compiled_steps._is_compiling(), seconds=300)
    engine.steps.find(engine.buffers.arguments)
    (record,) = [record for record in caplog.records if record.name == compiled_steps.__name__]
    assert "Compiling failed" in record.getMessage() and "\n" not in record.getMessage()
    assert (
        translate(engine) == expected
        and [name for name in folders(empty_cache) if name[0] != "."] == []
    )


def test_compilation_in_the_background_outlives_its_process_for_the_next_one(empty_cache):
    code = """
import time
import torch
from tests.tiny_engines import engine_of, translate
from vanilla_transformer.decoding.engine import compiled_steps
torch.set_num_threads(1)
compiled_steps.EAGER_SECONDS = 0.0
translate(engine_of(4, compile="auto"))
while not list(compiled_steps.cache_folder().glob(".*.tmp-*")):
    time.sleep(0.05)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
    assert [name for name in folders(empty_cache) if not name.startswith(".")] == []
    (name,) = {path.name for path in empty_cache.glob("*.lock")}
    wait_until((empty_cache / name.removesuffix(".lock")).is_dir, seconds=600)
    files = {path: path.stat().st_mtime_ns for path in empty_cache.glob("[!.]*/*")}
    output = start_process(4).communicate(timeout=300)[0]
    assert json.loads(output.splitlines()[-1])[1:] == [True, translate(engine_of(4, compile=False))]
    assert files and {path: path.stat().st_mtime_ns for path in files} == files
