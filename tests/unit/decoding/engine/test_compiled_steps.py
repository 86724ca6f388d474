"""The identity of compiled steps, and their compilation in another process."""

import copy
import logging
import threading
import time
from functools import partial

import pytest
import torch

from tests.processes import wait_until
from tests.tiny import tiny_model
from tests.tiny_engines import EndedWorker, compile_aside, engine_of
from vanilla_transformer import Engine, TranslationPipeline
from vanilla_transformer.decoding.engine import (
    compiled_steps,
    idle_work,
    precision,
    sources,
    step_package,
)
from vanilla_transformer.decoding.engine.compiled_steps import (
    CompiledSteps,
    cache_folder,
    write_packages,
)
from vanilla_transformer.decoding.engine.precision import round_to_int8
from vanilla_transformer.decoding.engine.step_package import StepCompiler
from vanilla_transformer.decoding.engine.thread_choice import ThreadChoice
from vanilla_transformer.decoding.weight_packing import Int8Linear


def identity(model, **options):
    return Engine(model, **{"num_beams": 2, "max_new_tokens": 8, **options}).steps.identity


def test_identity_depends_on_the_shape_and_the_search_and_not_on_weights():
    model, other = tiny_model(0), tiny_model(1)
    assert identity(model) == identity(other) == identity(copy.deepcopy(model))
    # Which is a number of each sentence.
    assert identity(model) == identity(model, max_new_tokens=16)
    others = [tiny_model(decoder_layers=3), tiny_model(normalize_before=True)]
    others.append(tiny_model(activation_function="gelu"))
    searches = [{"num_beams": 3}, {"length_penalty": 2.0}, {"early_stopping": True}]
    searches.append({"precision": "bfloat16"})
    searches += [{"no_repeat_ngram_size": size} for size in (1, 2)]
    identities = [identity(model), *map(identity, others)]
    identities += [identity(model, **search) for search in searches]
    assert len({*identities}) == len(identities)


def test_identity_ignores_what_fine_tuning_changes():
    model = tiny_model()
    before = identity(model)
    model.config.alignment_heads, model.config.dropout = [[0, 0]], 0.3
    model.config.confidence, model.config._name_or_path = {"weights": {}}, "elsewhere"
    assert identity(model) == before


def test_steps_run_eagerly_without_a_compiler(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    expected = engine_of(2, compile=False).decode([[7, 8, 2]])
    assert engine_of(2, compile=True).decode([[7, 8, 2]]) == expected


NAMES = {"few_rows": "a", "many_rows": "b"}


@pytest.fixture
def compilations(tmp_path, monkeypatch):
    """Record the form of each compilation, which writes a file instead."""
    made = []

    def write(compiler, kind, folder):
        made.append(kind)
        (folder / "step.pt2").write_text(kind)

    monkeypatch.setattr(StepCompiler, "compile", write)
    monkeypatch.setenv("VANILLA_TRANSFORMER_CACHE", str(tmp_path))
    return made


def test_form_for_few_rows_alone_multiplies_int8_weights(monkeypatch, tmp_path):
    monkeypatch.setattr(precision, "multiplies", lambda name, device: False)
    model = tiny_model(vocab_size=40, d_model=32)
    engine = Engine(model, slots=2, num_beams=1, max_new_tokens=8, compile=False)
    compiler = StepCompiler(round_to_int8(engine.steps.step), engine.buffers.example(), ())
    traced = []

    def trace_nothing(step, *_):
        forms = set()
        for layer in step.modules():
            if isinstance(layer, Int8Linear):
                forms.add(layer.compiles_few_rows)
                # The integers of the random weights by which constants are recognized
                assert torch.equal(Int8Linear(layer).integers, layer.integers)
        traced.append(forms)

    monkeypatch.setattr(step_package, "export_step", trace_nothing)
    monkeypatch.setattr(torch._inductor, "aoti_compile_and_package", lambda *_, **__: 1 / 0)
    for kind in NAMES:
        with pytest.raises(ZeroDivisionError):
            compiler.compile(kind, tmp_path)
    assert traced == [{True}, {False}]


@pytest.mark.parametrize("present", [(), ("few_rows",), ("many_rows",)])
def test_write_packages_compiles_the_forms_that_are_missing(compilations, present):
    for kind in present:
        write_packages(torch.nn.Identity(), (), (), {kind: NAMES[kind]})
    write_packages(torch.nn.Identity(), (), (), NAMES)
    assert compilations == [*present, *(kind for kind in NAMES if kind not in present)]
    folders = [path for path in cache_folder().iterdir() if path.is_dir()]
    stored = {path.name: (path / "step.pt2").read_text() for path in folders}
    assert stored == {"a": "few_rows", "b": "many_rows"}


FORMS = [(1, 4, "few_rows"), (1, 5, "many_rows"), (4, 1, "few_rows"), (4, 2, "many_rows")]
FORMS.append((8, 1, "many_rows"))


@pytest.mark.parametrize(("width", "slots", "form"), FORMS)
def test_rows_of_a_step_choose_its_form(monkeypatch, width, slots, form):
    monkeypatch.setattr(CompiledSteps, "_load", lambda steps, kind: kind)
    engine = engine_of(1, slots=slots, draft="")
    steps = CompiledSteps(engine.steps.step.widen(width), "auto", engine.buffers)
    state = engine.buffers.state._replace(last_tokens=torch.zeros(slots, 1))
    assert steps.find([state]) == form


@pytest.fixture
def two_threads():
    torch.set_num_threads(2)  # until the next test


@pytest.mark.parametrize("sentences", [1, 4, 9])
def test_steps_run_on_the_chosen_threads(two_threads, monkeypatch, sentences):
    monkeypatch.setattr(ThreadChoice, "choose", lambda choice: 1)
    engine, threads = engine_of(4, compile=False, slots=4), []

    def noting(function):
        def call(*arguments):
            threads.append(torch.get_num_threads())
            return function(*arguments)

        return call

    step = engine.steps.step
    monkeypatch.setattr(sources, "prefill", noting(sources.prefill))
    monkeypatch.setattr(step, "forward", noting(step.forward))
    engine.decode([[7, 8, 2]] * sentences)
    assert {*threads} == {1} and torch.get_num_threads() == 2


def test_threads_are_restored_after_an_error(two_threads, monkeypatch):
    def fail(*_):
        raise RuntimeError("broken")

    engine = engine_of(4, compile=False)
    monkeypatch.setattr(engine.steps.step, "forward", fail)
    with pytest.raises(RuntimeError, match="broken"):
        engine.decode([[7, 8, 2]])
    assert torch.get_num_threads() == 2


def test_python_threads_beside_few_rows_have_all_threads(two_threads, monkeypatch):
    engine, counts = engine_of(4, compile=False), set()
    step = engine.steps.step.forward

    def count(*arguments):
        beside = threading.Thread(target=lambda: counts.add(torch.get_num_threads()))
        beside.start()
        beside.join()
        step(*arguments)

    monkeypatch.setattr(engine.steps.step, "forward", count)
    engine.decode([[7, 8, 2]])
    assert counts == {2}


@pytest.fixture
def used_threads(monkeypatch):
    """Return a function that decodes numbers of sentences, given the seconds of a step by threads
    and sentences.
    """

    def decode(numbers, seconds):
        engine, used, now = engine_of(2, compile=False, slots=8), [], [0.0]

        def step(*arguments):
            used.append(torch.get_num_threads())
            now[0] += seconds(used[-1], sentences)
            arguments[0].done.fill_(True)

        monkeypatch.setattr(compiled_steps.time, "perf_counter", lambda: now[0])
        monkeypatch.setattr(engine.steps, "find", lambda arguments: step)
        for sentences in numbers:
            engine.decode([[7, 8, 2]] * sentences)
        return used

    return decode


@pytest.mark.parametrize(("seconds", "fastest"), [({1: 1.0, 2: 3.0}, 1), ({1: 3.0, 2: 1.0}, 2)])
@pytest.mark.parametrize("sentences", [1, 8])
def test_steps_use_the_faster_threads(two_threads, used_threads, sentences, seconds, fastest):
    used = used_threads([sentences] * 40, lambda threads, _: seconds[threads])
    assert used[:2] == [2, 1] and {*used[2:]} == {fastest}


def test_threads_are_chosen_for_each_size_of_the_batch(two_threads, used_threads):
    def seconds(threads, sentences):
        return threads if sentences == 1 else 1 / threads

    used = used_threads([1, 8] * 20, seconds)
    assert used == [2, 2, 1, 1, *[1, 2] * 18]


def test_steps_of_full_slots_ignore_who_waits(two_threads, used_threads):
    assert used_threads([100], lambda threads, _: 1 / threads).count(1) == 1


@pytest.mark.parametrize(("sentences", "fewer"), [(1, 1), (4, 1), (5, 2), (8, 2)])
def test_many_rows_use_at_least_half_of_the_threads(used_threads, sentences, fewer):
    torch.set_num_threads(4)
    assert {*used_threads([sentences] * 4, lambda threads, _: threads)} == {4, fewer}


def test_a_process_that_compiles_has_a_core(two_threads, used_threads, monkeypatch):
    def numbers():
        yield from [8] * 3
        worker.returncode = 0
        yield from [8] * 3

    worker = EndedWorker(returncode=None)
    monkeypatch.setattr(compiled_steps, "usable_cores", lambda: 2)
    monkeypatch.setattr(compiled_steps, "_latest", worker)
    assert used_threads(numbers(), lambda threads, _: 1 / threads) == [1, 1, 1, 2, 1, 2]


THREADS = [(2**18, 8, 1), (2, 8, 8), (2, 2, 2), (2, 1, 1)]


@pytest.mark.parametrize(("small", "threads", "expected"), THREADS)
def test_few_rows_of_large_weights_use_threads(monkeypatch, small, threads, expected):
    step = engine_of(1, compile=False).steps.step
    monkeypatch.setattr(step_package, "SMALL_WEIGHT", small)
    assert step_package.threads_for_few_rows(step, threads) == expected


# --- Compiling aside ---


def test_hooks_of_the_library_do_not_stop_compiling_aside(monkeypatch, caplog):
    model = tiny_model()
    source = torch.tensor([[5, 6, 7, 2]])
    # It installs hooks that cannot be pickled.
    model(source, decoder_input_ids=source, output_attentions=True)
    written = {}

    class Process:
        pid = None

        def __init__(self, command, stdin, **options):
            written["content"] = stdin.read()

        def poll(self):
            return 0

    monkeypatch.setattr(compiled_steps.subprocess, "Popen", Process)
    monkeypatch.delattr(compiled_steps.os, "sched_setaffinity", raising=False)
    engine = Engine(model, num_beams=2)
    with caplog.at_level(logging.WARNING):
        engine.steps._compile_elsewhere(compiled_steps.MANY_ROWS)
    assert written["content"] and "Compiling failed" not in caplog.text
    assert any(module._forward_hooks for module in model.modules())  # of the model itself they stay


def test_switch_to_compiled_steps_is_one_line(tiny_tokenizer, monkeypatch):
    translate = TranslationPipeline(tiny_model(), tiny_tokenizer)
    assert not translate.is_compiled
    translate(["A man.", "Two dogs."])
    (engine,) = translate._engines._engines.values()
    said = []

    def warn_once(text):
        if text not in said:
            said.append(text)

    monkeypatch.setattr(compiled_steps.logger, "warning_once", warn_once)
    monkeypatch.setattr(compiled_steps, "_start_worker", EndedWorker)
    monkeypatch.setattr(engine.steps, "_load", lambda kind: None)
    compile_aside(engine)
    assert said == [] and not translate.is_compiled  # the package cannot be loaded
    monkeypatch.setattr(engine.steps, "_load", lambda kind: engine.steps.step)
    compile_aside(engine)
    assert said == ["Decoding continues with compiled steps, with which later runs begin."]
    assert translate.is_compiled


def fail_to_start(*_):
    raise OSError("no\nroom")


@pytest.mark.parametrize(
    ("worker", "reason"),
    [
        (fail_to_start, "OSError: no room"),
        (partial(EndedWorker, returncode=1, errors=b"Error:\nno room\n"), "no room"),
    ],
)
def test_failure_of_compiling_aside_is_one_line(monkeypatch, worker, reason):
    model = tiny_model()
    engine = Engine(model, num_beams=2)

    monkeypatch.setattr(compiled_steps, "_start_worker", worker)
    said = []
    monkeypatch.setattr(compiled_steps.logger, "warning_once", said.append)
    compile_aside(engine)
    assert {*said} == {f"Compiling failed, so decoding is not compiled: {reason}."}


@pytest.fixture
def started(monkeypatch):
    """Let steps be compiled soon, and return the forms that are, with the number of engines that
    decode then.
    """
    forms = []

    def start(*arguments):
        forms.append((arguments[-1], compiled_steps.idle_work._calls))
        return EndedWorker()

    monkeypatch.setattr(compiled_steps, "_has_compiler", lambda: True)
    monkeypatch.setattr(compiled_steps, "EAGER_SECONDS", 0.0)
    monkeypatch.setattr(compiled_steps, "_start_worker", start)
    return forms


@pytest.mark.parametrize(("cores", "at_once"), [(1, False), (2, False), (3, True)])
def test_compiler_waits_on_few_cores(started, monkeypatch, cores, at_once):
    monkeypatch.setattr(compiled_steps, "usable_cores", lambda: cores)
    monkeypatch.setattr(idle_work, "IDLE_SECONDS", 0.05)
    monkeypatch.setattr(compiled_steps, "idle_work", idle_work.IdleWork())
    engine = engine_of(4, compile="auto", slots=4)
    engine.decode([[7, 8, 2]], report=lambda _: time.sleep(0.2))
    assert len(started) == at_once
    wait_until(lambda: len(started) == 1, seconds=30)
    assert started[0][0] == "many_rows" or started[0][0] == "few_rows"
    assert started[0][1] == at_once


def test_compiler_starts_at_the_end_of_the_process(started, monkeypatch):
    monkeypatch.setattr(compiled_steps, "usable_cores", lambda: 2)
    monkeypatch.setattr(idle_work, "IDLE_SECONDS", 900)
    monkeypatch.setattr(compiled_steps, "idle_work", idle_work.IdleWork())
    engine = engine_of(4, compile="auto")
    for _ in range(2):
        engine.decode([[7, 8, 2]])
        assert started == []
    compiled_steps.idle_work.finish()
    assert len(started) == 1
    compiled_steps.idle_work.finish()
    assert len(started) == 1
