"""R-Drop: the loss of both passes, by the formula of the paper (Liang et al., 2021)."""

import pytest
import torch
from torch.nn.functional import cross_entropy, kl_div, linear

from tests.tiny import tiny_model
from tests.train_states import micro_batches, packed_micro_batch, tiny_train_state
from vanilla_transformer.extensions.alignments.guided_alignment import GuidedAlignment
from vanilla_transformer.training import loss
from vanilla_transformer.training.device_batch import BatchPreparation, batch_to_device
from vanilla_transformer.training.loss import (
    ModelWithLoss,
    cross_entropy_in_graph,
    projected_cross_entropy,
    repeat_batch,
)

PADDED = [5, 3, 4]


@pytest.fixture(params=["at once", "in parts"])
def parts(request, monkeypatch):
    if request.param == "in parts":
        monkeypatch.setattr(loss, "_LOGITS_PER_CHUNK", 3 * 7)
        monkeypatch.setattr(loss, "_LOGITS_IN_CACHE", 1)


def paper_loss(logits, labels, smoothing, weight):
    """Return the loss of both passes, `(2, N, V)`, and labels `(N,)`, by section 2 of the paper."""
    counts = labels != -100
    first, second = logits[:, counts].log_softmax(dim=-1)
    options = {"log_target": True, "reduction": "sum"}
    divergence = (kl_div(second, first, **options) + kl_div(first, second, **options)) / 2
    labels = labels[counts]
    options = {"label_smoothing": smoothing, "reduction": "sum"}
    likelihoods = [cross_entropy(scores, labels, **options) for scores in (first, second)]
    return sum(likelihoods) + weight * divergence


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("function", [projected_cross_entropy, cross_entropy_in_graph])
def test_loss_of_both_passes_and_gradients_match_the_paper(parts, with_bias, function):
    torch.manual_seed(0)
    labels = torch.randint(0, 7, (3, 5))
    labels[1, 3:] = -100
    states = torch.randn(6, 5, 4, requires_grad=True)
    weight = torch.randn(7, 4, requires_grad=True)
    bias = torch.randn(7, requires_grad=True) if with_bias else None
    labels_of_both = labels.repeat(2, 1)
    result = function(states, weight, bias, labels_of_both, 0.1, 5.0)
    logits = linear(states, weight, bias).view(2, 15, 7)
    expected = paper_loss(logits, labels.flatten(), 0.1, 5.0)
    torch.testing.assert_close(result.smoothed, expected)
    without_divergence = function(states, weight, bias, labels_of_both, 0.1)
    torch.testing.assert_close(result.plain, without_divergence.plain)
    inputs = [tensor for tensor in (states, weight, bias) if tensor is not None]
    gradients = torch.autograd.grad(result.smoothed, inputs)
    torch.testing.assert_close(gradients, torch.autograd.grad(expected, inputs))


def prepared_batch(model, packed):
    if packed:
        tensors = packed_micro_batch([[5, 3], [4]], length=9).tensors
    else:
        tensors = micro_batches(PADDED)[0].tensors
    width, length = tensors["input_ids"].shape[1], tensors["labels"].shape[1]
    # The first target of the first row, and the third one of the second row.
    links = torch.tensor([1, (length + 2) * width + 1])
    batch = {**tensors, "link_places": links, "link_weights": torch.tensor([1.0, 0.5])}
    return batch_to_device(batch, BatchPreparation.for_model(model), torch.device("cpu"))


@pytest.mark.parametrize("packed", [False, True])
def test_both_passes_count_as_one_without_dropout(packed):
    model = tiny_model(vocab_size=40, dropout=0.0).train()
    batch, runs = prepared_batch(model, packed), []
    terms = [GuidedAlignment(number=0, weight=0.3)]
    for weight in (0.0, 5.0):
        model.zero_grad()
        result = ModelWithLoss(model, 0.1, terms, weight)(batch)
        result.smoothed.backward()
        gradients = [parameter.grad.clone() for parameter in model.parameters()]
        runs.append([*result, *gradients])
    torch.testing.assert_close(runs[1], runs[0], rtol=1e-4, atol=1e-5)


def test_repeat_batch_moves_the_places_of_the_second_pass():
    batch = {"input_ids": torch.zeros(2, 4), "labels": torch.zeros(2, 3)}
    places = {"label_places": torch.tensor([0, 5]), "link_places": torch.tensor([1, 23])}
    repeated = repeat_batch(batch | places)
    assert repeated["label_places"].tolist() == [0, 5, 6, 11]
    assert repeated["link_places"].tolist() == [1, 23, 25, 47]


def test_passes_differ_by_dropout():
    model = tiny_model(vocab_size=40, dropout=0.3).train()
    batch = prepared_batch(model, packed=False)
    torch.manual_seed(0)
    result = ModelWithLoss(model, 0.1, (), 5.0)(batch)
    torch.manual_seed(0)
    both = ModelWithLoss(model, 0.1)._run(model.model, repeat_batch(batch))
    logits = model.lm_head(both.last_hidden_state).view(2, -1, 40)
    assert not torch.allclose(logits[0], logits[1])
    labels = batch["labels"].flatten()
    torch.testing.assert_close(result.smoothed, paper_loss(logits, labels, 0.1, 5.0) / 2)
    assert result.smoothed > paper_loss(logits, labels, 0.1, 0.0) / 2


def test_r_drop_of_a_recipe_needs_dropout(tmp_path):
    assert tiny_train_state(tmp_path, r_drop_weight=5).model_with_loss.r_drop_weight == 5.0
    with pytest.raises(ValueError, match="`r_drop_weight` must be given for a model with dropout"):
        tiny_train_state(tmp_path, sizes={"dropout": 0.0}, r_drop_weight=5)
