"""Captured steps, by a recorder instead of CUDA graphs: which sizes are captured, and which buffers
they update.
"""

import logging
import random

import pytest
import torch
from torch.utils import _pytree as pytree
from transformers.utils import logging as transformers_logging

from tests.sweeps import rare
from tests.tiny import tiny_model, tiny_tokenizer
from tests.tiny_engines import Recorder, engine_of, graphed, translate
from vanilla_transformer.decoding.engine import device_profile, graphed_steps, slot_buffers
from vanilla_transformer.decoding.engine.compiled_steps import CompiledSteps
from vanilla_transformer.decoding.engine.engine import Engine
from vanilla_transformer.decoding.engine.graphed_steps import GraphedSteps, steps_for
from vanilla_transformer.decoding.translation_pipeline import TranslationPipeline


def copied(tree):
    return pytree.tree_map(torch.clone, tree)


def same(tree, other):
    pairs = zip(pytree.tree_leaves(tree), pytree.tree_leaves(other), strict=True)
    return all(torch.equal(first, second) for first, second in pairs)


def started(engine):
    """Return the state and the memory of an engine in which a search has begun."""
    numbers = [torch.tensor([number]) for number in (0, 6, 1, 0)]
    engine.buffers.state.start(*numbers, 1)
    return engine.buffers.arguments


@pytest.mark.parametrize("beams", [1, 4])
def test_graphed_steps_give_tokens_of_eager_ones_and_capture_each_size_once(beams):
    engine, recorder = graphed(beams, slots=3)
    expected = translate(engine_of(beams, compile=False, slots=3))
    for _ in range(2):
        assert translate(engine) == expected
    long = [[7] * length + [2] for length in (3, 20, 40, 2, 18, 3)]  # the room grows and shrinks
    for _ in range(2):
        assert len(engine.decode(long)) == len(long)
    assert len(recorder.sizes) == len(set(recorder.sizes)) >= 3


@torch.inference_mode()
@pytest.mark.parametrize("beams", [1, 4])
def test_graphed_steps_advance_nothing_while_capturing(beams):
    engine, recorder = graphed(beams)
    arguments = started(engine)
    before = copied(arguments)
    engine.steps.find(arguments)
    assert len(recorder.sizes) == 1 and same(arguments, before)
    engine.steps.run(3, *arguments)
    for _ in range(3):
        engine.steps.step(*before)
    assert same(arguments, before) and int(arguments[0].time.max()) > 0


@torch.inference_mode()
def test_graphed_steps_are_captured_again_for_other_buffers_of_a_size():
    engine, recorder = graphed()
    first = started(engine)
    other = copied(first)
    engine.steps.run(2, *first)
    assert other[0].time.tolist() != first[0].time.tolist()
    engine.steps.run(2, *other)
    assert len(recorder.sizes) == 2 and same(first, other)
    engine.steps.run(1, *other)
    assert len(recorder.sizes) == 2 and not same(first, other)


@torch.inference_mode()
def test_graphed_steps_of_dropped_buffers_are_captured_again(monkeypatch):
    monkeypatch.setattr(slot_buffers, "spare_memory", lambda device, spare: 0)
    engine, recorder = graphed(slots=1)
    for source in ([7, 2], [7] * 20 + [2], [7, 2]):
        engine.decode([source])
    assert len(engine.buffers._sizes) == 1
    assert [size[2] for size in recorder.sizes] == [16, 24, 16]


def test_graphed_steps_are_eager_without_compile():
    engine, recorder = graphed(compile=False)
    assert translate(engine) == translate(engine_of(1, compile=False))
    assert len(recorder.sizes) == 0 and not engine.steps.is_compiled


@pytest.fixture
def warnings(caplog):
    """Return the warnings of captured steps, which are logged once in a process."""
    transformers_logging.enable_propagation()

    def messages():
        name = graphed_steps.__name__
        return [record.getMessage() for record in caplog.records if record.name == name]

    with caplog.at_level(logging.WARNING, logger=graphed_steps.__name__):
        yield messages
    transformers_logging.disable_propagation()


def test_graphed_steps_are_eager_after_a_failed_capture(warnings):
    engine, _ = graphed()

    def fail(function, warm_up):
        raise RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported later.")

    engine.steps = GraphedSteps(engine.steps.step, "auto", fail)
    assert translate(engine) == translate(engine_of(1, compile=False))
    message = "Capturing a CUDA graph failed, so decoding is not captured: "
    assert warnings() == [f"{message}CUDA error: out of memory."]


def test_graphed_steps_are_captured_without_compiler(warnings, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    engine, recorder = graphed(compile=True)
    assert translate(engine) == translate(engine_of(1, compile=False))
    assert len(recorder.sizes) > 0
    message = "There is no Triton or no C++ compiler, so decoding is captured but not compiled."
    assert warnings() == [message]


def test_graphed_steps_need_no_safe_folder(warnings, monkeypatch):
    def check():
        raise PermissionError("Torch keeps compiled code in a folder of another user.")

    monkeypatch.setattr(graphed_steps, "find_spec", str)
    monkeypatch.setattr(graphed_steps, "find_compiler", lambda: "g++")
    monkeypatch.setattr(graphed_steps, "check_inductor_caches", check)
    engine, recorder = graphed(compile=True)
    assert translate(engine) == translate(engine_of(1, compile=False))
    assert len(recorder.sizes) > 0
    (warning,) = warnings()
    reason = pytest.raises(OSError, check).value
    assert warning == f"Decoding is captured but not compiled. {reason}"


@pytest.fixture
def captures(monkeypatch):
    """Let the CPU stand in for a GPU, and return the sizes that are captured."""
    recorder = Recorder()
    monkeypatch.setitem(device_profile.PROFILES, "cpu", device_profile.GPU)
    monkeypatch.setattr(graphed_steps, "CudaGraphs", lambda device: recorder)
    return recorder.sizes


@pytest.mark.parametrize("beams", [1, 4])
def test_graphed_steps_are_the_default_of_the_pipeline_on_a_gpu(beams, captures):
    translate = TranslationPipeline(tiny_model(), tiny_tokenizer())
    assert len(translate("A man is sleeping.", num_beams=beams)) == 1
    (engine,) = translate._engines._engines.values()
    assert isinstance(engine.steps, GraphedSteps) and engine.slots == {1: 512, 4: 128}[beams]
    assert len(captures) > 0 and captures[0][:2] == (1, beams)


@pytest.mark.parametrize(("slots", "beams"), [rare((4096, 1)), (512, 4)])
def test_graphed_steps_are_captured_in_the_first_call_only(slots, beams, captures):
    model = tiny_model(vocab_size=40)
    engine = Engine(model, slots=slots, num_beams=beams, max_new_tokens_beyond_source=4)
    draw, numbers = random.Random(0), list[int]()
    lengths = [min(40, max(3, round(draw.gauss(14, 5)))) for _ in range(slots + 60)]
    sources = []
    for length in lengths:
        tokens = [draw.randrange(5, 40) for _ in range(length)]
        sources.append([*tokens, 2])
    for _ in range(2):
        engine.decode(sources)
        numbers.append(len(captures))
    shorter = [source[len(source) // 8 :] for source in sources]
    engine.decode(shorter)  # in rooms of the first call
    assert len(set(captures)) == numbers[0] == numbers[1] == len(captures) > 2


def test_steps_for_a_cpu_are_compiled_ones():
    engine = engine_of(1)
    assert isinstance(steps_for(engine.steps.step, "auto", engine.buffers), CompiledSteps)
