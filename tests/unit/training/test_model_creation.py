"""The model of a recipe, and dropout on a CPU."""

import pytest
import torch
from torch import nn

from tests.tiny import tiny_model
from vanilla_transformer.training.model_creation import CPUDropout, create_model, replace_dropout
from vanilla_transformer.training.recipe import parse_recipe

FLAGS = ["--train_source", "a", "--train_target", "b", "--output_dir", "c", "--d_model", "16"]


def model_of(tokenizer, *flags, longest=20, **options):
    return create_model(parse_recipe([*FLAGS, *flags]), tokenizer, longest, **options)


def dropout_layers(model):
    """Return the dropout layers of a model by name."""
    layers = model.named_modules()
    return {name: layer for name, layer in layers if isinstance(layer, nn.Dropout)}


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
def test_model_has_fast_dropout_on_a_cpu(monkeypatch, tiny_tokenizer, on_gpu, kind):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: on_gpu)
    layers = dropout_layers(model_of(tiny_tokenizer)).values()
    assert layers and {type(layer) for layer in layers} == {kind}


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cpu_dropout_zeroes_a_share_p_and_scales_the_rest(p, dtype):
    torch.manual_seed(0)
    # Not a multiple of the four features of a draw.
    features = torch.ones(3, 70_001, dtype=dtype, requires_grad=True)
    dropped = CPUDropout(p)(features)
    dropped.sum().backward()
    kept = dropped != 0
    assert abs(kept.float().mean() - (1 - p)) < 0.01
    expected = torch.full((int(kept.sum()),), 1 / (1 - p))
    torch.testing.assert_close(dropped[kept].float(), expected, rtol=0.005, atol=0)
    torch.testing.assert_close(features.grad, dropped.detach())


def test_cpu_dropout_decides_about_neighbors_independently():
    torch.manual_seed(0)
    kept = (CPUDropout(0.5)(torch.ones(100_000, 4)) != 0).float()
    torch.testing.assert_close(torch.corrcoef(kept.T), torch.eye(4), rtol=0, atol=0.02)


def test_cpu_dropout_draws_equal_masks_from_equal_seeds():
    features = torch.ones(1000)
    masks = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        masks.append(CPUDropout(0.3)(features))
    assert torch.equal(masks[0], masks[1]) and not torch.equal(masks[0], masks[2])


@pytest.mark.parametrize("layer", [CPUDropout(0.0), CPUDropout(0.5).eval()])
def test_cpu_dropout_leaves_features_unchanged_without_probability_or_training(layer):
    features = torch.randn(7)
    assert torch.equal(layer(features), features)


def test_replace_dropout_keeps_probabilities_and_outputs_in_evaluation():
    model = tiny_model(dropout=0.2, activation_dropout=0.3).eval()
    tokens = torch.randint(3, 48, (2, 5))
    expected = model(tokens, decoder_input_ids=tokens).logits
    names = list(dropout_layers(model))
    replace_dropout(model)
    layers = dropout_layers(model)
    assert list(layers) == names
    assert {type(layer) for layer in layers.values()} == {CPUDropout}
    assert {layer.p for layer in layers.values()} == {0.2, 0.3}
    assert torch.equal(model(tokens, decoder_input_ids=tokens).logits, expected)
