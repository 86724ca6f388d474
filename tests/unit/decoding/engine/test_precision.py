"""The value of `"auto"` without a measurement, and the warning for a processor that emulates a
precision.
"""

import logging
import sys
from types import ModuleType

import pytest
import torch

from tests.tiny import tiny_model
from vanilla_transformer import Engine
from vanilla_transformer.decoding.engine import precision
from vanilla_transformer.decoding.engine.precision import cast, resolve_precision, round_to_int8
from vanilla_transformer.decoding.weight_packing import Int8Linear, packed_copy


@pytest.fixture
def warnings(monkeypatch):
    """Collect the warnings on a processor that multiplies float32 only."""
    messages = []
    monkeypatch.setattr(logging.Logger, "warning_once", lambda _, text: messages.append(text))
    monkeypatch.setattr(precision, "multiplies", lambda name, device: name == "float32")
    return messages


@pytest.mark.parametrize(
    ("name", "count"), [("float32", 0), (None, 0), ("bfloat16", 1), ("int8", 0)]
)
def test_engine_warns_of_emulated_precision(warnings, monkeypatch, name, count):
    for package in ("torchao", "torchao.quantization"):  # which int8 does not use here
        monkeypatch.setitem(sys.modules, package, ModuleType(package))
    Engine(tiny_model(), precision=name)
    assert len(warnings) == count
    text = f"has no instructions for {name} and emulates it"
    assert all(text in message for message in warnings)


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_resolve_precision_is_silent_on_fast_devices(warnings, monkeypatch, device):
    monkeypatch.setattr(precision, "multiplies", lambda name, of: of.type == device == "cpu")
    model = tiny_model()
    monkeypatch.setattr(type(model), "device", torch.device(device))
    assert resolve_precision(model, "bfloat16") == "bfloat16" and not warnings


VALUES = [(True, "bfloat16", "has"), (False, "float32", "does not have")]


@pytest.mark.parametrize(("fast", "expected", "said"), VALUES)
def test_auto_is_bfloat16_on_fast_devices(warnings, monkeypatch, tmp_path, fast, expected, said):
    monkeypatch.setenv("VANILLA_TRANSFORMER_CACHE", str(tmp_path))
    monkeypatch.setattr(precision, "multiplies", lambda name, device: fast)
    assert resolve_precision(tiny_model(), "auto") == expected
    (warning,) = warnings
    text = f"is {expected}: this device {said} instructions for bfloat16."
    assert warning == f'`precision="auto"` {text}'


def test_cast_returns_contiguous_weights():
    """Compiled steps, which another model may have made, read them without their strides."""
    model = tiny_model(attention_bias=True)
    projection = model.model.decoder.layers[0].self_attn.out_proj
    projection.weight.data = projection.weight.data.t()
    projection.bias.data = torch.randn(1).expand(projection.bias.shape)
    for name in ("float32", "bfloat16"):
        narrow = cast(model, name)
        assert all(weight.is_contiguous() for weight in narrow.parameters())
        assert not projection.bias.is_contiguous()
        expected = model.to(narrow.dtype).parameters()
        assert all(map(torch.equal, narrow.parameters(), expected))
        assert cast(narrow, name) is narrow


def test_processor_without_int8_reads_weights_as_integers(warnings):
    packed = packed_copy(tiny_model(d_model=32, decoder_ffn_dim=40).model.decoder)
    layer = round_to_int8(packed).layers[0]
    assert {type(layer.fc1), type(layer.self_attn.out_proj)} == {Int8Linear}
    # Torch's product reads 32 inputs at once.
    assert type(layer.fc2) is type(packed.layers[0].fc1)
    assert layer.fc1.weight is packed.layers[0].fc1.weight
