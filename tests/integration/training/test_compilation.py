"""`compile`, fp8 and attention implementations that the machine cannot run: one line before training starts."""

import pytest
import torch

from tests.tiny_runs import flags, no_scores
from vanilla_transformer.training.arguments import parse_recipe
from vanilla_transformer.training.trainer import train


def test_train_refuses_compile_without_compiler(corpus, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ValueError, match="`compile` needs a C.. compiler, and there is none. Install g"):
        train(parse_recipe(flags(corpus, tmp_path / "run", compile=True)), evaluate=no_scores)
    assert not (tmp_path / "run").exists()


def test_train_refuses_fp8_on_a_cpu(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    recipe = parse_recipe(flags(corpus, tmp_path / "run", mixed_precision="fp8"))
    with pytest.raises(ValueError, match="fp8 needs a GPU of compute capability 8.9 or higher, got no GPU"):
        train(recipe, evaluate=no_scores)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("attention", "message"),
    [
        (
            "varlen",
            "`attn_implementation` varlen needs a GPU of compute capability 8.0 or higher, got no GPU of CUDA.",
        ),
        ("flash_attention_2", "flash_attention_2 cannot train an encoder-decoder: .* Use varlen on a GPU, or sdpa"),
        ("kernels-community/flash-attn2", "kernels-community/flash-attn2 cannot train an encoder-decoder"),
    ],
)
def test_train_refuses_attention_that_cannot_run(corpus, tmp_path, monkeypatch, attention, message):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    recipe = parse_recipe(flags(corpus, tmp_path / "run", attn_implementation=attention, mixed_precision="bf16"))
    with pytest.raises(ValueError, match=message):
        train(recipe, evaluate=no_scores)
    assert not (tmp_path / "run").exists()
