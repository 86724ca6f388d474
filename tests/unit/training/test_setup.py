"""The model of a recipe, with the attention and the dropout that are fast on the machine at hand."""

import pytest
import torch
from torch import nn

from vanilla_transformer.training.arguments import parse_recipe
from vanilla_transformer.training.dropout import CPUDropout
from vanilla_transformer.training.setup import create_model

FLAGS = ["--train_source", "a", "--train_target", "b", "--output_dir", "c", "--d_model", "16"]


def model_of(tokenizer, *flags, longest=20, **options):
    return create_model(parse_recipe([*FLAGS, *flags]), tokenizer, longest, **options)


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize(
    ("flags", "precision", "longest", "on_cpu_expected"),
    [
        ([], "no", 20, "sdpa"),
        ([], "bf16", 20, "eager"),
        ([], "bf16", 513, "sdpa"),
        (["--attn_implementation", "sdpa"], "bf16", 20, "sdpa"),
    ],
)
def test_create_model_attends_eagerly_to_short_sources_in_bf16_on_a_cpu(
    monkeypatch, tiny_tokenizer, flags, precision, longest, on_cpu_expected, on_gpu
):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: on_gpu)
    model = model_of(tiny_tokenizer, *flags, longest=longest, mixed_precision=precision)
    assert model.config._attn_implementation == ("sdpa" if on_gpu else on_cpu_expected)


@pytest.mark.parametrize(("on_gpu", "kind"), [(False, CPUDropout), (True, nn.Dropout)])
def test_create_model_replaces_dropout_on_a_cpu(monkeypatch, tiny_tokenizer, on_gpu, kind):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: on_gpu)
    layers = [layer for layer in model_of(tiny_tokenizer).modules() if isinstance(layer, nn.Dropout)]
    assert layers and {type(layer) for layer in layers} == {kind}
