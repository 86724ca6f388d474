"""Compiled steps: the tokens of eager ones, and a cache that stays whole."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from itertools import chain
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

    cache, identities = packages

    def copy(compiler, kind, folder):
        name = f"{identities[compiler._step.beams]}_{kind}"
        package = cache / "compiled_steps" / name
        for name in ("step.pt2", "constants.json"):
            shutil.copy(package / name, folder)
        made.append(kind)

    monkeypatch.setattr(StepCompiler, "compile", copy)
    return made


def folders(cache: Path):
    return sorted(path.name for path in cache.iterdir() if path.is_dir())


def whole_folders(cache):
    """Return the names of folders that are not hidden."""
    return [name for name in folders(cache) if not name.startswith(".")]


def is_compiled(engine, arguments=None):
    """Return whether the engine has a compiled step for its arguments."""
    step = engine.steps.find(arguments or engine.buffers.arguments)
    return step is not engine.steps.step


def times_of(cache, pattern="*/*"):
    """Return when each file of a cache was written."""
    return {path: path.stat().st_mtime_ns for path in cache.glob(pattern)}


def log_probabilities(engine):
    return [*chain(*(best.token_log_probabilities for (best,) in engine.decode(SOURCES)))]


@pytest.mark.parametrize("compile", [True, "auto"])
@pytest.mark.parametrize("beams", [1, 4])
def test_compiled_step_gives_tokens_of_eager_step(cache, beams, compile):
    compiled, eager = engine_of(beams, compile=compile), engine_of(beams, compile=False)
    assert is_compiled(compiled)
    assert translate(compiled) == translate(eager)
    assert log_probabilities(compiled) == close_to(log_probabilities(eager))
    assert len(folders(cache)) == 4


@pytest.mark.parametrize("slots", [1, 2, 5])
@pytest.mark.parametrize("beams", [1, 4])
def test_one_package_serves_any_number_of_slots(cache, compilations, beams, slots):
    engine = engine_of(beams, slots=slots, compile=True)
    assert translate(engine) == translate(engine_of(beams, compile=False))
    assert is_compiled(engine)
    assert not compilations


@pytest.mark.parametrize("compile", [True, "auto"])
@pytest.mark.parametrize("beams", [1, 4])
def test_package_decodes_with_the_weights_of_another_model(cache, compilations, beams, compile):
    engine = engine_of(beams, seed=1, compile=compile)
    assert engine.steps.identity == engine_of(beams).steps.identity
    translations = translate(engine)
    assert translations == translate(engine_of(beams, seed=1, compile=False))
    assert translations != translate(engine_of(beams, compile=False))
    assert is_compiled(engine)
    assert not compilations


@pytest.mark.parametrize("beams", [1, 4])
def test_compiled_step_decodes_sentences_of_any_length(cache, beams):
    sources = [[7, 8] * length + [2] for length in (1, 9, 20, 40, 90)]
    options = {"max_new_tokens": None, "max_new_tokens_beyond_source": 20}
    model = tiny_model(0, vocab_size=40, init_std=0.4, decoder_layers=2)
    rows, sizes = {True: [], False: []}, set()
    for compile, tokens in rows.items():
        engine = Engine(model, slots=2, num_beams=beams, compile=compile, **options)
        for source in sources:
            (hypotheses,) = engine.decode([source])
            tokens += [hypothesis.tokens for hypothesis in hypotheses]
            sizes.add(engine.buffers.size.room)
    assert rows[True] == rows[False]
    assert sizes >= {48, 64, 128, 256}
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

    assert is_compiled(engine)
    other_threads()
    assert other_threads() > 0.2
    torch.set_num_threads(1)
    other_threads()
    assert other_threads() < 0.02


def answer_of(process):
    output, _ = process.communicate(timeout=300)
    return json.loads(output.splitlines()[-1])


def test_compiled_step_loads_in_less_than_a_second(cache):
    before = times_of(cache)
    seconds, in_new_process, tokens = answer_of(start_process(4))
    assert in_new_process
    assert seconds < 1
    assert tokens == translate(engine_of(4, compile=False))
    assert times_of(cache) == before


def test_steps_of_other_options_threads_and_shapes_differ(cache):
    names = {re.sub("_(few|many)_rows$", "", name) for name in folders(cache)}
    assert engine_of(4, compile=True).steps.identity in names
    others = [engine_of(4, length_penalty=0.3).steps.identity, engine_of(3).steps.identity]
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)
        others.append(engine_of(4).steps.identity)
    finally:
        torch.set_num_threads(threads)
    sizes = {"vocab_size": 40, "init_std": 0.4, "decoder_layers": 2}
    other_heads = tiny_model(0, **sizes, decoder_attention_heads=4)
    engine = Engine(other_heads, slots=2, num_beams=4, max_new_tokens=8)
    others.append(engine.steps.identity)
    assert len(names.union(others)) == len(others) + 2
    assert not is_compiled(engine_of(4, length_penalty=0.3, compile="auto"))


@pytest.mark.parametrize("damage", ["truncated", "deleted", "changed"])
def test_damaged_package_is_compiled_again(cache, compilations, damage):
    expected = translate(engine_of(4, compile=False))
    package = cache / f"{engine_of(4).steps.identity}_many_rows" / "step.pt2"
    content = package.read_bytes()
    broken = {"truncated": content[: len(content) // 2]}
    broken["changed"] = content[:-1] + bytes([content[-1] ^ 1])
    package.unlink()
    if damage in broken:
        package.write_bytes(broken[damage])
    automatic = engine_of(4, compile="auto")
    assert not is_compiled(automatic, automatic.buffers.example())
    assert translate(engine_of(4, compile=True)) == expected
    assert package.read_bytes() == content
    assert compilations == ["many_rows"]


def test_few_rows_run_the_form_of_many_at_first(cache, compilations):
    shutil.rmtree(cache / f"{engine_of(4).steps.identity}_few_rows")
    automatic = engine_of(4, slots=1, compile="auto")
    expected = translate(engine_of(4, compile=False))
    few, many = automatic.buffers.arguments, automatic.buffers.example()
    assert translate(automatic) == expected
    assert not compilations
    assert is_compiled(automatic)
    assert automatic.steps.find(few) is automatic.steps.find(many)
    complete = engine_of(4, slots=1, compile=True)
    assert translate(complete) == expected
    assert compilations == ["few_rows"]
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
    assert whole_folders(empty_cache) == []
    engine = engine_of(4, slots=1, compile="auto")
    assert not is_compiled(engine)
    translations = translate(engine_of(4, slots=1, compile=True))
    assert translations == translate(engine_of(4, compile=False))
    complete = [f"{engine.steps.identity}_{kind}" for kind in compilations]
    assert folders(empty_cache) == complete  # no leftovers
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
    message = only_warning(caplog)
    assert "C++ compiler" in message
    assert "\n" not in message
    assert not empty_cache.exists()


def only_warning(caplog):
    """Return the only message about compiled steps."""
    records = [record for record in caplog.records if record.name == compiled_steps.__name__]
    (record,) = records
    return record.getMessage()


def test_long_stream_compiles_in_the_background(cache, tmp_path, monkeypatch):
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
    assert not is_compiled(engine)
    shutil.copytree(cache, tmp_path / "empty" / "compiled_steps")
    ended.append(True)
    assert is_compiled(engine)
    assert translate(engine) == expected


def test_failing_compiler_leaves_eager_steps(empty_cache, monkeypatch, caplog):
    monkeypatch.setattr(compiled_steps, "EAGER_SECONDS", 1e-9)
    monkeypatch.setattr(compiled_steps, "FEW_CORES", 0)
    monkeypatch.setenv("CXX", shutil.which("false"))
    monkeypatch.setattr(logging.get_logger("transformers"), "propagate", True)
    expected = translate(engine_of(4, compile=False))
    engine = engine_of(4, compile="auto")
    assert translate(engine) == expected
    wait_until(lambda: not compiled_steps._is_compiling(), seconds=300)
    engine.steps.find(engine.buffers.arguments)
    message = only_warning(caplog)
    assert "Compiling failed" in message
    assert "\n" not in message
    assert translate(engine) == expected
    assert whole_folders(empty_cache) == []


def test_compilation_in_the_background_outlives_its_process(empty_cache):
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
    assert whole_folders(empty_cache) == []
    (name,) = {path.name for path in empty_cache.glob("*.lock")}
    wait_until((empty_cache / name.removesuffix(".lock")).is_dir, seconds=600)
    before = times_of(empty_cache, "[!.]*/*")
    _, in_new_process, tokens = answer_of(start_process(4))
    assert in_new_process
    assert tokens == translate(engine_of(4, compile=False))
    assert before
    assert before.items() <= times_of(empty_cache).items()
