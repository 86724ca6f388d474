"""`mixed_precision`: what `auto` is on a device, and the warning for a processor that emulates bf16."""

import logging

import pytest
import torch
from accelerate import PartialState

from vanilla_transformer.training import accelerator
from vanilla_transformer.training.accelerator import create_accelerator, resolve_mixed_precision
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
        monkeypatch.setattr(accelerator, "multiplies", lambda precision, device: fast)
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


def test_create_accelerator_resolves_auto_on_its_own_device(monkeypatch):
    asked = []
    monkeypatch.setattr(
        "vanilla_transformer.training.accelerator.resolve_mixed_precision",
        lambda name, process: asked.append((name, process.device)) or "no",
    )
    accelerator = create_accelerator(parse_recipe([*FLAGS, "--mixed_precision", "auto"]))
    assert asked == [("auto", PartialState().device)] and accelerator.device == PartialState().device
    assert accelerator.mixed_precision == "no"
