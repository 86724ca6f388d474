"""The tests of the engine on a GPU, for which the CPU stands in: that they build and move before
they forbid waits.
"""

import pytest
import torch
from torch import nn

from tests.gpu import test_engine as gpu_tests
from tests.sweeps import rare
from tests.tiny_engines import Recorder
from vanilla_transformer.decoding.engine import device_profile, graphed_steps
from vanilla_transformer.decoding.engine.engine import Engine


@pytest.fixture
def modes(monkeypatch):
    """Let the CPU stand in for a GPU, and return the modes of waiting.

    Building and moving a model may wait.
    """
    modes, recorder = ["default"], Recorder()

    def waits(function):
        def checked(*args, **kwargs):
            assert modes[-1] == "default", f"{function.__qualname__} makes the host wait."
            return function(*args, **kwargs)

        return checked

    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
    monkeypatch.setitem(device_profile.PROFILES, "cpu", device_profile.GPU)
    monkeypatch.setattr(graphed_steps, "CudaGraphs", lambda device: waits(recorder.__call__))
    monkeypatch.setattr(Engine, "__init__", waits(Engine.__init__))
    monkeypatch.setattr(nn.Module, "to", waits(nn.Module.to))
    return modes


@pytest.mark.parametrize(
    ("beams", "compile"), [rare((1, False)), rare((4, "auto")), rare((4, False)), rare((1, "auto"))]
)
def test_gpu_test_of_waits_warms_up_first(beams, compile, modes):
    gpu_tests.test_engine_never_waits_but_to_look_and_to_take(beams, compile, "float32")
    assert modes == ["default", "error", "default"]


@pytest.mark.parametrize("beams", [rare(4), rare(1)])
def test_gpu_tests_of_captures_hold_for_stand_ins(beams, modes, monkeypatch):
    gpu_tests.test_engine_captures_each_size_once(beams)
    gpu_tests.test_engine_gives_tokens_of_the_cpu(beams, "auto")
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    gpu_tests.test_engine_captures_again_after_other_sizes_took_the_memory(beams, monkeypatch)
