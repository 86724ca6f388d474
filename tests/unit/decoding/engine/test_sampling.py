"""Sampling of tokens, against the softmax of the filtered scores and the library's filters."""

import pytest
import torch
from transformers import (
    EpsilonLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from tests.closeness import LIKELY, p_value
from vanilla_transformer.decoding.engine.sampling import SamplingOptions, sample

DRAWS = 20_000


def draws_of(logits, seed=0):
    seeds = torch.arange(seed * DRAWS, (seed + 1) * DRAWS)
    return sample(logits.expand(DRAWS, -1), seeds, torch.full((DRAWS,), 2))


def fit_of(draws, logits):
    return p_value(torch.bincount(draws, minlength=len(logits)), logits.softmax(dim=0) * DRAWS)


@pytest.mark.parametrize("vocab_size", [2, 31, 32, 40, 300])
@pytest.mark.parametrize("scale", [0.0, 1.0, 4.0])
def test_sample_draws_from_the_softmax(vocab_size, scale):
    logits = scale * torch.randn(vocab_size, generator=torch.Generator().manual_seed(vocab_size))
    assert fit_of(draws_of(logits), logits) > LIKELY


def test_sample_never_draws_removed_tokens():
    logits = torch.full((75,), -torch.inf)
    logits[[3, 40, 74]] = torch.tensor([0.0, 1.0, 2.0])
    assert fit_of(draws_of(logits), logits) > LIKELY


def test_sample_survives_small_changes_of_the_scores():
    logits = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    noise = 1e-6 * torch.randn(DRAWS, 1000, generator=torch.Generator().manual_seed(1))
    seeds = torch.arange(DRAWS)
    same = sample(logits + noise, seeds, seeds) == sample(logits.expand(DRAWS, -1), seeds, seeds)
    assert (~same).sum() <= 2


LITERAL = {
    "temperature": lambda value: TemperatureLogitsWarper(value),
    "top_k": lambda value: TopKLogitsWarper(value),
    "top_p": lambda value: TopPLogitsWarper(value),
    "epsilon_cutoff": lambda value: EpsilonLogitsWarper(value),
}


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.7},
        {"top_k": 5},
        {"top_k": 500},
        {"top_p": 0.8},
        {"epsilon_cutoff": 0.02},
        {"epsilon_cutoff": 0.9},
        {"temperature": 1.5, "top_k": 20, "top_p": 0.9, "epsilon_cutoff": 0.03},
    ],
    ids=str,
)
def test_filters_are_the_librarys_in_its_order(options):
    logits = 2 * torch.randn(8, 50, generator=torch.Generator().manual_seed(3))
    expected = filtered = logits
    for name, make in LITERAL.items():
        if name in options:
            expected = make(options[name])(None, expected)
    for change in SamplingOptions(**options).filters():
        filtered = change(None, filtered)
    assert torch.equal(filtered, expected)
    assert fit_of(draws_of(filtered[0]), expected[0]) > LIKELY


def test_sampling_options_without_values_filter_nothing():
    options = SamplingOptions.from_options({"temperature": None, "top_k": 0, "num_beams": 4})
    assert options.filters() == []


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0},
        {"temperature": "hot"},
        {"top_k": -1},
        {"top_k": 2.5},
        {"top_p": 1.5},
        {"epsilon_cutoff": 2},
    ],
    ids=str,
)
def test_sampling_options_name_the_wrong_one(options):
    (name,) = options
    with pytest.raises(ValueError, match=f"`{name}`"):
        SamplingOptions(**options)
