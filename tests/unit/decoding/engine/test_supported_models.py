"""The modules of a model, found without `modules()`, from private parts of torch."""

import pytest

from tests.tiny import tiny_causal_lm, tiny_long_model, tiny_model
from vanilla_transformer.decoding.engine.supported_models import submodules
from vanilla_transformer.decoding.ensemble import Ensemble


@pytest.mark.parametrize(
    "build", [tiny_model, tiny_causal_lm, tiny_long_model, lambda: Ensemble([tiny_model(), tiny_model(1)])]
)
def test_submodules_has_all_modules_and_weights(build):
    model = build()
    model.register_module("missing", None)
    found = submodules(model)
    assert {*map(id, found)} == {*map(id, model.modules())}
    weights = [weight for module in found for weight in module._parameters.values() if weight is not None]
    assert {*map(id, weights)} == {*map(id, model.parameters())}
