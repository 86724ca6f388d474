"""Dual conditional cross-entropy: equal to the formula over the losses of both models."""

import numpy as np
import pytest
import torch

from tests.tiny import tiny_model, tiny_tokenizer
from vanilla_transformer.decoding.corpus_scores import dual_scores
from vanilla_transformer.file_utils import save_model_folder
from vanilla_transformer.pipeline_vanilla_transformer import encode_sentences
from vanilla_transformer.text.languages import NO_DIRECTION, Direction

PAIRS = [("a b c", "A B"), ("two dogs run", "zwei"), ("x", "a much longer translation")]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return [str(save_model_folder(tiny_model(seed), tiny_tokenizer(), folder / str(seed))) for seed in (1, 2)]


def loss(seed, source, target):
    ids = torch.tensor(encode_sentences(tiny_tokenizer(), [source]))
    labels = torch.tensor(encode_sentences(tiny_tokenizer(), [target], as_target=True))
    logits = tiny_model(seed).eval()(input_ids=ids, labels=labels).logits
    return torch.nn.functional.cross_entropy(logits[0], labels[0]).item()


@pytest.mark.parametrize("direction", [NO_DIRECTION, Direction("en", "de")])
def test_dual_scores_follow_the_formula(models, direction):
    forth = np.array([loss(1, source, target) for source, target in PAIRS])
    back = np.array([loss(2, target, source) for source, target in PAIRS])
    expected = np.exp(-(np.abs(forth - back) + (forth + back) / 2))
    assert dual_scores(*models, PAIRS, direction) == pytest.approx(expected, rel=1e-4)


def test_dual_scores_name_a_missing_model(models):
    with pytest.raises(OSError, match="no model folder none"):
        dual_scores("none", models[1], PAIRS, NO_DIRECTION)
