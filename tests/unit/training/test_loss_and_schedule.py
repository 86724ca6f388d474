"""The formulas of sections 5.3 and 5.4."""

from contextlib import nullcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import SchedulerType

from vanilla_transformer.training import loss
from vanilla_transformer.training.loss import projected_cross_entropy
from vanilla_transformer.training.lr_scheduler import Schedule, create_lr_scheduler, noam_lambda
from vanilla_transformer.training.recipe import parse_recipe


@pytest.fixture(params=["at once", "in parts"])
def parts(request, monkeypatch):
    if request.param == "in parts":
        monkeypatch.setattr(loss, "_LOGITS_PER_CHUNK", 3 * 7)
        monkeypatch.setattr(loss, "_LOGITS_IN_CACHE", 2 * 7)


@pytest.fixture
def batch():
    torch.manual_seed(0)
    labels = torch.randint(0, 7, (3, 5))
    labels[1, 3:] = -100
    states = torch.randn(3, 5, 4, requires_grad=True)
    weight = torch.randn(7, 4, requires_grad=True)
    return states, weight, torch.randn(7, requires_grad=True), labels


def plain_chain(states, weight, bias, labels, smoothing):
    logits = torch.nn.functional.linear(states, weight, bias)
    options = {"label_smoothing": smoothing, "reduction": "sum"}
    return torch.nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten(), **options)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.4])
def test_projected_cross_entropy_matches_smoothed_distribution(batch, smoothing, parts):
    *inputs, labels = batch
    logits = torch.nn.functional.linear(*inputs)
    expected = 0.0
    for row, label in zip(logits.flatten(0, 1), labels.flatten(), strict=True):
        if label != -100:
            distribution = torch.full((7,), smoothing / 7)
            distribution[label] += 1 - smoothing
            expected -= (distribution * row.log_softmax(-1)).sum()
    smoothed = projected_cross_entropy(*batch, smoothing).smoothed
    assert smoothed.item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("with_bias", [True, False])
def test_projected_loss_matches_torch(batch, smoothing, with_bias, parts):
    states, weight, bias, labels = batch
    if not with_bias:
        bias = None
    inputs = [tensor for tensor in (states, weight, bias) if tensor is not None]
    ours = projected_cross_entropy(states, weight, bias, labels, smoothing).smoothed
    theirs = plain_chain(states, weight, bias, labels, smoothing)
    torch.testing.assert_close(ours, theirs)
    gradients = torch.autograd.grad(3 * ours, inputs)
    torch.testing.assert_close(gradients, torch.autograd.grad(3 * theirs, inputs))


@settings(max_examples=50, deadline=None)
@given(
    rows=st.integers(1, 40), width=st.integers(1, 8), vocab_size=st.integers(2, 90),
    at_once=st.integers(1, 500), in_cache=st.integers(1, 500), seed=st.integers(0, 2**20),
)  # fmt: skip
def test_projected_loss_ignores_chunk_sizes(rows, width, vocab_size, at_once, in_cache, seed):
    generator = torch.Generator().manual_seed(seed)
    options = {"generator": generator, "dtype": torch.float64, "requires_grad": True}
    states = torch.randn(1, rows, width, **options)
    weight = torch.randn(vocab_size, width, **options)
    labels = torch.randint(0, vocab_size, (1, rows), generator=generator)
    labels[torch.rand(1, rows, generator=generator) < 0.2] = -100
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loss, "_LOGITS_PER_CHUNK", at_once)
        patch.setattr(loss, "_LOGITS_IN_CACHE", in_cache)
        ours = projected_cross_entropy(states, weight, None, labels, 0.1).smoothed
    theirs = plain_chain(states, weight, None, labels, 0.1)
    # Its sums are in float32.
    torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-4)
    gradients = torch.autograd.grad(ours, (states, weight))
    expected = torch.autograd.grad(theirs, (states, weight))
    torch.testing.assert_close(gradients, expected, rtol=1e-4, atol=1e-5)


def test_projected_cross_entropy_plain_loss_is_not_smoothed(batch, parts):
    smoothed, plain = projected_cross_entropy(*batch, 0.1)
    torch.testing.assert_close(plain, projected_cross_entropy(*batch, 0.0).smoothed.detach())
    assert plain != smoothed and not plain.requires_grad


def test_projected_cross_entropy_in_bfloat16_is_within_rounding(batch, parts):
    states, weight, bias, labels = batch
    with torch.autocast("cpu", torch.bfloat16):
        ours = projected_cross_entropy(*batch, 0.1).smoothed
    theirs = plain_chain(*batch, 0.1)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, theirs, rtol=1e-2, atol=1e-2)
    gradients = torch.autograd.grad(ours, (states, weight, bias))
    expected = torch.autograd.grad(theirs, (states, weight, bias))
    torch.testing.assert_close(gradients, expected, rtol=5e-2, atol=5e-2)


CHUNKS = [(1, 64), (64, 64), (65, 128), (199, 128), (300, 128), (390, 192)]


@pytest.mark.parametrize(("tokens", "rows"), CHUNKS)
def test_projected_loss_in_bfloat16_has_equal_chunks(monkeypatch, tokens, rows):
    """OneDNN compiles each product for its number of rows."""
    torch.manual_seed(0)
    states = torch.randn(1, tokens, 8).bfloat16().float()
    weight, labels = torch.randn(24, 8), torch.randint(24, (1, tokens))
    linear, sizes = torch.nn.functional.linear, set()

    def gradients():
        inputs = [tensor.clone().requires_grad_() for tensor in (states, weight)]
        with torch.autocast("cpu", torch.bfloat16):
            smoothed, plain = projected_cross_entropy(*inputs, None, labels, 0.1)
        return [smoothed.detach(), plain, *torch.autograd.grad(smoothed, inputs)]

    def noting(chunk, *others):
        sizes.add(len(chunk))
        return linear(chunk, *others)

    expected = gradients()
    monkeypatch.setattr(torch.nn.functional, "linear", noting)
    monkeypatch.setattr(loss, "_LOGITS_PER_CHUNK", 130 * 24)
    torch.testing.assert_close(gradients(), expected, rtol=0.02, atol=0.02)
    assert sizes == {rows}


def test_projected_cross_entropy_refuses_second_backward(batch):
    total = projected_cross_entropy(*batch, 0.1).smoothed
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()


def test_projected_cross_entropy_limits_logits_in_memory(monkeypatch):
    monkeypatch.setattr(loss, "_LOGITS_PER_CHUNK", 1)
    most = 0
    linear = torch.nn.functional.linear

    def watched(*arguments):
        nonlocal most
        logits = linear(*arguments)
        most = max(most, logits.numel())
        return logits

    monkeypatch.setattr(torch.nn.functional, "linear", watched)
    states = torch.randn(2, 30, 4, requires_grad=True)
    weight = torch.randn(1000, 4, requires_grad=True)
    labels = torch.randint(0, 1000, (2, 30))
    projected_cross_entropy(states, weight, None, labels, 0.1).smoothed.backward()
    assert most == 4 * 1000
    assert states.grad is not None and weight.grad.abs().sum() > 0


def test_noam_lambda_is_equation_3():
    rate = noam_lambda(d_model=512, warmup_steps=4000)
    assert rate(0) == pytest.approx(512**-0.5 * 1 * 4000**-1.5)  # the first update is step 1
    assert rate(3999) == pytest.approx(512**-0.5 * 4000**-0.5)  # the peak
    assert rate(99_999) == pytest.approx(512**-0.5 * 100_000**-0.5)
    assert max(range(10_000), key=rate) == 3999
    assert noam_lambda(512, 4000, scale=2.0)(5) == pytest.approx(2 * rate(5))


@pytest.mark.parametrize("name", ["noam", *(kind.value for kind in SchedulerType)])
def test_parse_recipe_takes_the_schedules_that_its_keys_can_create(name):
    optimizer = torch.optim.Adam([torch.zeros(1, requires_grad=True)], lr=0.5)
    schedule = Schedule(max_steps=9, warmup_steps=2)
    try:
        scheduler = create_lr_scheduler(name, optimizer, 16, schedule)
        for _ in range(9):
            optimizer.step()
            scheduler.step()
        works = True
    except (TypeError, ValueError):
        works = False
    flags = ["--train_source", "a", "--train_target", "b", "--output_dir", "c"]
    flags += ["--lr_scheduler", name]
    if name != "noam":
        flags += ["--learning_rate", "0.5"]
    refusal = pytest.raises(ValueError, match=f"must be one of 'noam', .*, got '{name}'")
    with nullcontext() if works else refusal:
        parse_recipe(flags)
