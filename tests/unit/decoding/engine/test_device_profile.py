"""How an engine uses each type of device."""

import pytest
import torch

from vanilla_transformer.decoding.engine import device_profile


@pytest.mark.parametrize(
    ("beams", "gibibytes", "slots"),
    [(1, 8, 512), (1, 4, 256), (1, 0.1, 64), (4, 8, 128), (4, 4, 64), (4, 0.1, 32)],
)
def test_gpu_with_little_memory_gets_fewer_slots(monkeypatch, beams, gibibytes, slots):
    monkeypatch.setattr(device_profile, "free_memory", lambda device: gibibytes * 2**30)
    assert device_profile.usual_slots(beams, torch.device("cuda")) == slots
