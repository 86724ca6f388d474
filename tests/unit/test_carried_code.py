"""The modules that saved models carry, so that they load without this package."""

import importlib.metadata
import importlib.util
from pathlib import Path

import pytest

import vanilla_transformer
from tests.tiny import (
    tiny_causal_lm,
    tiny_long_causal_lm,
    tiny_long_model,
    tiny_masked_lm,
    tiny_model,
)
from vanilla_transformer.errors import UserError

PACKAGE = Path(vanilla_transformer.__file__).parent
COMMON = {
    "configuration_vanilla_transformer",
    "modeling_vanilla_transformer",
    "generation_vanilla_transformer",
}
COMMON |= {"compatibility_vanilla_transformer", "errors"}
PIPELINE = {"pipeline_vanilla_transformer"}
DECODER = COMMON | {
    "configuration_vanilla_transformer_decoder",
    "modeling_vanilla_transformer_decoder",
}
ENCODER = COMMON | {
    "configuration_vanilla_transformer_encoder",
    "modeling_vanilla_transformer_encoder",
}
LONG = DECODER | {
    "configuration_vanilla_transformer_long",
    "modeling_vanilla_transformer_long",
    "reversible",
}
LONG |= {"linear_attention", "lsh_attention", "transfo_xl_attention"}


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (tiny_model, COMMON | PIPELINE),
        (tiny_causal_lm, DECODER),
        (tiny_masked_lm, ENCODER),
        (tiny_long_model, LONG | PIPELINE),
        (tiny_long_causal_lm, LONG),
    ],
)
def test_save_pretrained_carries_only_the_modules_in_use(build, expected, tmp_path):
    build().save_pretrained(tmp_path)
    assert {path.stem for path in tmp_path.glob("*.py")} == expected


@pytest.mark.parametrize("version", ["4.57.1", "5.11.0"])
def test_carried_code_names_its_release_of_transformers(version, monkeypatch):
    name = "vanilla_transformer.carried"
    path = PACKAGE / "configuration_vanilla_transformer.py"
    spec = importlib.util.spec_from_file_location(name, path)
    monkeypatch.setattr(importlib.metadata, "version", lambda _: version)
    message = rf"^transformers>=5.12 is required .* found transformers=={version}\. "
    message += r"Install .*: transformers>=5.12,<6\.$"
    with pytest.raises(UserError, match=message):  # which commands print in one line
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert '"transformers>=5.12,' in (PACKAGE.parent / "setup.py").read_text()
