"""`mixed_precision`: what `auto` is on a device, the warning for a processor that emulates bf16, and layers in fp8.

torchao is a stand-in here.
"""

import logging
import sys
from types import SimpleNamespace

import pytest
import torch
from accelerate import PartialState
from torch import nn

from tests.tiny import tiny_model
from tests.train_states import tiny_train_state
from vanilla_transformer.training import accelerator, mixed_precision, train_state
from vanilla_transformer.training.accelerator import create_accelerator
from vanilla_transformer.training.mixed_precision import check_fp8, convert_linear_layers, resolve_mixed_precision
from vanilla_transformer.training.recipe import parse_recipe

FLAGS = ["--train_source", "a", "--train_target", "b", "--output_dir", "c"]


class Process:
    """A process of a run: its device, and whether it is the main one."""

    def __init__(self, device="cpu", is_main_process=True):
        self.device, self.is_main_process = torch.device(device), is_main_process


@pytest.fixture
def on_cpu(monkeypatch, caplog):
    """Return a function that resolves a precision on a processor, and returns it with the logged lines."""
    caplog.set_level(logging.INFO)

    def resolve(name, fast, **process):
        caplog.clear()
        monkeypatch.setattr(mixed_precision, "multiplies", lambda precision, device: fast)
        return resolve_mixed_precision(name, Process(**process)), [record.message for record in caplog.records]

    return resolve


@pytest.mark.parametrize(
    ("fast", "expected", "said"),
    [(True, "bf16", "bf16: this device has"), (False, "no", "no (float32): this device does not have")],
)
def test_auto_is_bf16_where_processor_multiplies_it(on_cpu, fast, expected, said):
    precision, [line] = on_cpu("auto", fast)
    assert precision == expected
    assert line == f"`mixed_precision` auto is {said} instructions for bf16."


@pytest.mark.parametrize("name", [None, "no", "fp16"])
@pytest.mark.parametrize("fast", [True, False])
def test_other_precisions_stay_as_they_are(on_cpu, name, fast):
    assert on_cpu(name, fast) == (name, [])


def test_bf16_that_is_emulated_is_warned_of(on_cpu):
    assert on_cpu("bf16", True) == ("bf16", [])
    precision, [line] = on_cpu("bf16", False)
    assert precision == "bf16" and "Use `mixed_precision: auto`" in line


def test_only_main_process_logs(on_cpu):
    assert on_cpu("auto", True, is_main_process=False) == ("bf16", [])
    assert on_cpu("bf16", False, is_main_process=False) == ("bf16", [])


def test_fp8_runs_under_autocast_to_bf16(on_cpu):
    assert on_cpu("fp8", True) == ("bf16", [])


def test_create_accelerator_resolves_auto_on_its_own_device(monkeypatch):
    asked = []
    monkeypatch.setattr(
        "vanilla_transformer.training.accelerator.resolve_mixed_precision",
        lambda name, process: asked.append((name, process.device)) or "no",
    )
    accelerator = create_accelerator(parse_recipe([*FLAGS, "--mixed_precision", "auto"]))
    assert asked == [("auto", PartialState().device)] and accelerator.device == PartialState().device
    assert accelerator.mixed_precision == "no"


def set_device(monkeypatch, *capability):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(capability))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)


@pytest.fixture
def converted(monkeypatch):
    """Replace torchao by a stand-in, and return the list of (module, options) that it is called with."""
    calls = []
    stand_in = SimpleNamespace(
        Float8LinearConfig=dict,
        convert_to_float8_training=lambda module, config: calls.append((module, config)),
    )
    monkeypatch.setitem(sys.modules, "torchao", SimpleNamespace(float8=stand_in))
    monkeypatch.setitem(sys.modules, "torchao.float8", stand_in)
    return calls


@pytest.mark.parametrize(
    ("capability", "found"), [((), "got no GPU of CUDA"), ((8, 0), "got 8.0"), ((7, 5), "got 7.5")]
)
def test_check_fp8_refuses_devices_without_it(monkeypatch, converted, capability, found):
    set_device(monkeypatch, *capability)
    with pytest.raises(ValueError, match=rf"compute capability 8.9 or higher, {found}\. Use bf16, or leave it out\.$"):
        check_fp8()


def test_check_fp8_names_the_extra_to_install(monkeypatch):
    set_device(monkeypatch, 9, 0)
    monkeypatch.setitem(sys.modules, "torchao", None)
    with pytest.raises(OSError, match=r"fp8 needs packages .* `pip install 'vanilla-transformer\[fp8\]'`"):
        check_fp8()


@pytest.mark.parametrize("capability", [(8, 9), (9, 0), (10, 0)])
def test_check_fp8_accepts_devices_with_it(monkeypatch, converted, capability):
    set_device(monkeypatch, *capability)
    check_fp8()


def test_create_accelerator_refuses_fp8_before_it_is_created(monkeypatch):
    set_device(monkeypatch)
    monkeypatch.setattr(accelerator, "Accelerator", lambda **_: pytest.fail("fp8 was not refused"))
    with pytest.raises(ValueError, match="fp8 needs a GPU"):
        create_accelerator(parse_recipe([*FLAGS, "--mixed_precision", "fp8"]))


def test_create_accelerator_runs_fp8_under_autocast_to_bf16(monkeypatch):
    monkeypatch.setattr(accelerator, "check_fp8", lambda: None)
    monkeypatch.setattr(accelerator, "Accelerator", lambda **options: SimpleNamespace(num_processes=1, **options))
    assert create_accelerator(parse_recipe([*FLAGS, "--mixed_precision", "fp8"])).mixed_precision == "bf16"


def test_convert_linear_layers_leaves_out_output_projection(converted):
    model = tiny_model()
    convert_linear_layers(model)
    [(module, config)] = converted
    assert module is model.model and config == {"pad_inner_dim": True}
    assert not any(layer is model.lm_head for layer in module.modules())


@pytest.mark.parametrize("sizes", [{"d_model": 24}, {"encoder_ffn_dim": 40}])
def test_convert_linear_layers_refuses_widths_of_no_kernel(converted, sizes):
    with pytest.raises(ValueError, match=r"multiples of 16, got a layer encoder\.layers\.0\..* Change `d_model`"):
        convert_linear_layers(tiny_model(**sizes))
    assert not converted


def test_train_state_in_fp8_decodes_and_saves_unconverted_float32(tmp_path, monkeypatch):
    class Converted(nn.Linear):
        pass

    def convert(model):
        for layer in model.model.modules():
            if isinstance(layer, nn.Linear):
                layer.__class__ = Converted

    monkeypatch.setattr(train_state, "convert_linear_layers", convert)
    aligned = {"train_alignments": "agreement", "decoder_layers": 1}
    state = tiny_train_state(tmp_path, mixed_precision="fp8", **aligned)
    trained = state.unwrapped_model
    assert {type(layer) for layer in trained.model.modules() if isinstance(layer, nn.Linear)} == {Converted}
    with torch.no_grad():
        trained.model.encoder.layers[0].fc1.weight.add_(1.0)
    for to_save in (False, True):
        gathered = state.gather_model(to_save)
        assert {type(layer) for layer in gathered.modules() if isinstance(layer, nn.Linear)} == {nn.Linear}
        assert {weight.dtype for weight in gathered.parameters()} == {torch.float32}
        assert gathered.config.alignment_heads == [[0, 0]]
        expected = trained.state_dict()
        assert all(torch.equal(weight, expected[name]) for name, weight in gathered.state_dict().items())
