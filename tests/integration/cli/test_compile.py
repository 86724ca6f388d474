"""`vanilla-transformer compile`: models and flags that it refuses."""

import pytest

from tests.tiny import tiny_causal_lm, tiny_long_causal_lm
from vanilla_transformer.cli import main
from vanilla_transformer.inference.engine.compiled_steps import find_compiler

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")


@pytest.mark.parametrize(
    ("model", "flags", "words"),
    [
        (tiny_causal_lm(), ["--workers", "auto", "--source", __file__], "--workers are for translation models"),
        (tiny_long_causal_lm(layer_types="transfo_xl_attention"), [], "must be an unchanged translation model or"),
    ],
    ids=["workers", "transfo-xl"],
)
def test_compile_refuses_other_decoder_only_models(tmp_path, capsys, model, flags, words):
    model.save_pretrained(tmp_path / "model")
    assert main(["compile", str(tmp_path / "model"), *flags]) == 2
    assert words in capsys.readouterr().err.splitlines()[-1]
