"""`mixed_precision`: what `auto` is on a device, and the warning for a processor that emulates
bf16.
"""

import logging
from types import SimpleNamespace

import pytest
import torch
from accelerate import PartialState

from vanilla_transformer.training import distributed
from vanilla_transformer.training.distributed import create_accelerator, resolve_mixed_precision
from vanilla_transformer.training.recipe import parse_recipe

FLAGS = ["--train_source", "a", "--train_target", "b", "--output_dir", "c"]


IS_BF16 = "`mixed_precision` auto is bf16: this device has instructions for bf16."
IS_FLOAT32 = "auto is no (float32): this device does not have instructions for bf16."
SILENT = [(name, fast, True, name, None) for name in (None, "no", "fp16") for fast in (True, False)]


@pytest.mark.parametrize(
    ("name", "fast", "is_main", "expected", "line"),
    [
        ("auto", True, True, "bf16", IS_BF16),
        ("auto", False, True, "no", IS_FLOAT32),
        ("auto", True, False, "bf16", None),
        ("bf16", False, True, "bf16", "Use `mixed_precision: auto`, which is float32 here."),
        ("bf16", False, False, "bf16", None),
        *SILENT,
        ("bf16", True, True, "bf16", None),
    ],
)
def test_resolve_mixed_precision(monkeypatch, caplog, name, fast, is_main, expected, line):
    """`auto` is bf16 where the processor multiplies it; the main process says so, and warns where
    it is emulated.
    """
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(distributed, "multiplies", lambda precision, device: fast)
    process = SimpleNamespace(device=torch.device("cpu"), is_main_process=is_main)
    assert resolve_mixed_precision(name, process) == expected
    assert len(caplog.messages) == (line is not None)
    assert line is None or line in caplog.messages[0]


def test_create_accelerator_resolves_auto_on_its_own_device(monkeypatch):
    asked = []

    def resolve(name, process):
        asked.append((name, process.device))
        return "no"

    monkeypatch.setattr(distributed, "resolve_mixed_precision", resolve)
    accelerator = create_accelerator(parse_recipe([*FLAGS, "--mixed_precision", "auto"]))
    assert asked == [("auto", PartialState().device)]
    assert accelerator.device == PartialState().device
    assert accelerator.mixed_precision == "no"
