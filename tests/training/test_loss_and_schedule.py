"""The formulas of sections 5.3 and 5.4."""

import pytest
import torch

from vanilla_transformer.training.loss import smoothed_cross_entropy
from vanilla_transformer.training.schedule import noam_lambda


@pytest.fixture
def batch():
    torch.manual_seed(0)
    labels = torch.randint(0, 7, (3, 5))
    labels[1, 3:] = -100
    return torch.randn(3, 5, 7, requires_grad=True), labels


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.4])
def test_the_loss_is_cross_entropy_against_the_smoothed_distribution(batch, smoothing):
    logits, labels = batch
    expected = 0.0
    for row, label in zip(logits.flatten(0, 1), labels.flatten(), strict=True):
        if label != -100:
            distribution = torch.full((7,), smoothing / 7)
            distribution[label] += 1 - smoothing
            expected -= (distribution * row.log_softmax(-1)).sum()
    assert smoothed_cross_entropy(logits, labels, smoothing).smoothed.item() == pytest.approx(
        expected.item(), rel=1e-5
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_and_gradient_agree_with_torch(batch, smoothing):
    logits, labels = batch
    ours = smoothed_cross_entropy(logits, labels, smoothing).smoothed
    (gradient,) = torch.autograd.grad(ours, logits)
    theirs = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), label_smoothing=smoothing, reduction="sum"
    )
    (expected,) = torch.autograd.grad(theirs, logits)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(gradient, expected)


def test_the_plain_loss_is_not_smoothed(batch):
    logits, labels = batch
    smoothed, plain = smoothed_cross_entropy(logits, labels, 0.1)
    torch.testing.assert_close(plain, smoothed_cross_entropy(logits, labels, 0.0).smoothed.detach())
    assert plain != smoothed


def test_the_learning_rate_is_equation_3():
    rate = noam_lambda(d_model=512, warmup_steps=4000)
    assert rate(0) == pytest.approx(512**-0.5 * 1 * 4000**-1.5)  # the first update is step 1
    assert rate(3999) == pytest.approx(512**-0.5 * 4000**-0.5)  # the peak
    assert rate(99_999) == pytest.approx(512**-0.5 * 100_000**-0.5)
    assert max(range(10_000), key=rate) == 3999


def test_the_scale_multiplies_the_learning_rate():
    assert noam_lambda(64, 10, scale=2.0)(5) == pytest.approx(2 * noam_lambda(64, 10)(5))
