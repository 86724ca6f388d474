"""The identity of compiled steps."""

from torch import nn

from vanilla_transformer.inference.engine import compiled_steps


def test_identity_does_not_read_code_that_may_have_changed_since_import(monkeypatch):
    monkeypatch.delattr(compiled_steps, "inspect")
    assert len(compiled_steps.CompiledSteps(nn.Linear(2, 2), "auto", []).identity) > 10
