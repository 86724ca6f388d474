"""`vanilla-transformer compile`: models and flags that it refuses."""

import re

import pytest
import torch

from tests.tiny import tiny_causal_lm, tiny_long_causal_lm
from vanilla_transformer.cli import main
from vanilla_transformer.decoding.engine.engine import Engine
from vanilla_transformer.machine.compiler import find_compiler

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")


@pytest.mark.parametrize(
    ("model", "flags", "words"),
    [
        (tiny_causal_lm(), ["--workers", "2"], "--workers is for translation models"),
        (
            tiny_long_causal_lm(layer_types="transfo_xl_attention"),
            [],
            "must be an unchanged translation model or",
        ),
    ],
    ids=["workers", "transfo-xl"],
)
def test_compile_refuses_other_decoder_only_models(tmp_path, capsys, model, flags, words):
    model.save_pretrained(tmp_path / "model")
    assert main(["compile", str(tmp_path / "model"), *flags]) == 2
    assert words in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("beams", "flags", "sizes"),
    [(4, [], ["1", "4"]), (1, [], ["1"]), (4, ["--num_beams", "2"], ["2"])],
)
def test_compile_prepares_greedy_search_and_the_beam_size_of_the_checkpoint(
    tmp_path, monkeypatch, capsys, beams, flags, sizes
):
    monkeypatch.setattr(
        Engine, "compile_steps", lambda self: compiled.append(str(self.options.num_beams))
    )
    compiled, model = [], tiny_causal_lm()
    model.generation_config.num_beams = beams
    model.save_pretrained(tmp_path / "model")
    assert main(["compile", str(tmp_path / "model"), *flags]) == 0
    step = f"float32, beam size (\\d), {torch.get_num_threads()} threads: ready after 0 s"
    assert re.findall(step, capsys.readouterr().out) == compiled == sizes
