"""A pool of engines notices each way in which a model changes."""

import pytest
import torch
from torch import nn

from vanilla_transformer.decoding.engine.model_watch import ModelWatch


@pytest.fixture
def model():
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))


def write_to_weight(model):
    with torch.no_grad():
        model[0].weight[4, 2] += 1


def write_to_data(model):
    model[2].bias.data.add_(1)


def replace_weight(model):
    model[0].weight = nn.Parameter(model[0].weight.detach().clone())


def replace_module(model):
    model[1] = nn.GELU()


def add_module(model):
    model.append(nn.Dropout())


def set_mode(model):
    model.eval()


def step_optimizer(model):
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters())
    optimizer.step()


CHANGES = [write_to_weight, write_to_data, replace_weight]
CHANGES += [replace_module, add_module, set_mode, step_optimizer]


@pytest.mark.parametrize("change", CHANGES)
def test_watch_notices_change_once(model, change):
    watch = ModelWatch(model)
    assert watch.has_changed(), "The first look finds a change."
    assert not watch.has_changed()
    change(model)
    assert watch.has_changed()
    assert not watch.has_changed()


def test_watch_that_forgets_finds_a_change(model):
    watch = ModelWatch(model)
    watch.has_changed()
    watch.forget()
    assert watch.has_changed()


def test_watch_takes_equal_numbers_for_the_same_ones(model):
    with torch.no_grad():
        model[0].bias.fill_(float("nan"))
    watch = ModelWatch(model)
    watch.has_changed()
    assert not watch.has_changed()


def test_watch_takes_what_is_no_module():
    watch = ModelWatch(object())
    assert watch.has_changed()
    assert not watch.has_changed()
