"""The value of `"auto"` without a measurement, and the warning for a processor that emulates a
precision.
"""

import logging

import pytest
import torch

from tests.tiny import tiny_model
from vanilla_transformer import Engine
from vanilla_transformer.decoding.engine import precision
from vanilla_transformer.decoding.engine.precision import cast, resolve_precision


@pytest.fixture
def warnings(monkeypatch):
    """Collect the warnings on a processor that multiplies float32 only."""
    messages = []
    monkeypatch.setattr(logging.Logger, "warning_once", lambda _, message: messages.append(message))
    monkeypatch.setattr(precision, "multiplies", lambda name, device: name == "float32")
    return messages


@pytest.mark.parametrize(("name", "count"), [("float32", 0), (None, 0), ("bfloat16", 1)])
def test_engine_warns_of_emulated_precision(warnings, name, count):
    Engine(tiny_model(), precision=name)
    assert len(warnings) == count
    assert all(f"has no instructions for {name} and emulates it" in message for message in warnings)


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_resolve_precision_is_silent_on_fast_devices(warnings, monkeypatch, device):
    monkeypatch.setattr(precision, "multiplies", lambda name, of: of.type == device == "cpu")
    model = tiny_model()
    monkeypatch.setattr(type(model), "device", torch.device(device))
    assert resolve_precision(model, "bfloat16") == "bfloat16" and not warnings


@pytest.mark.parametrize(
    ("fast", "expected", "said"), [(True, "bfloat16", "has"), (False, "float32", "does not have")]
)
def test_auto_is_bfloat16_on_fast_devices(warnings, monkeypatch, tmp_path, fast, expected, said):
    monkeypatch.setenv("VANILLA_TRANSFORMER_CACHE", str(tmp_path))
    monkeypatch.setattr(precision, "multiplies", lambda name, device: fast)
    assert resolve_precision(tiny_model(), "auto") == expected
    assert warnings == [
        f'`precision="auto"` is {expected}: this device {said} instructions for bfloat16.'
    ]


def test_cast_returns_contiguous_weights():
    """Compiled steps, which another model may have made, read them without their strides."""
    model = tiny_model(attention_bias=True)
    projection = model.model.decoder.layers[0].self_attn.out_proj
    projection.weight.data, projection.bias.data = (
        projection.weight.data.t(),
        torch.randn(1).expand(projection.bias.shape),
    )
    for name in ("float32", "bfloat16"):
        found = cast(model, name)
        assert (
            all(weight.is_contiguous() for weight in found.parameters())
            and not projection.bias.is_contiguous()
        )
        assert all(map(torch.equal, found.parameters(), model.to(found.dtype).parameters()))
        assert cast(found, name) is found
