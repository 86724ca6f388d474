"""Terms of the loss that a recipe names."""

import re
import sys
import textwrap

import pytest
import torch

from tests.train_states import micro_batches, tiny_train_state
from vanilla_transformer.data.batches import IGNORED_LABEL
from vanilla_transformer.extensions.alignments.guided_alignment import GuidedAlignment
from vanilla_transformer.training.loss import LossTerm
from vanilla_transformer.user_input.user_modules import USER_MODULE


@pytest.fixture
def example(tmp_path, monkeypatch):
    """Store the example of the protocol as a module."""
    code = textwrap.dedent(re.search(r" +class SmallEmbeddings.*", LossTerm.__doc__, re.DOTALL)[0])
    (tmp_path / "small_terms.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)


def test_loss_terms_of_a_recipe_are_added_to_the_loss(example, tmp_path):
    (batch,) = micro_batches([4, 3])
    labels = batch.tensors["labels"].flatten()
    batch.tensors["label_places"] = (labels != IGNORED_LABEL).nonzero().flatten()
    plain = tiny_train_state(tmp_path)
    expected = plain.model_with_loss.eval()(batch.tensors)
    size = 0.01 * plain.unwrapped_model.get_input_embeddings().weight.square().sum()
    for count in (1, 2):
        terms = ",".join(["small_terms:SmallEmbeddings"] * count)
        state = tiny_train_state(tmp_path, loss_terms=terms)
        loss = state.model_with_loss.eval()(batch.tensors)
        torch.testing.assert_close(loss.smoothed, expected.smoothed + count * size)
        torch.testing.assert_close(loss.plain, expected.plain)


def test_loss_terms_follow_guided_alignment(example, tmp_path):
    options = {"loss_terms": "small_terms:SmallEmbeddings", "train_alignments": "agreement"}
    state = tiny_train_state(tmp_path, **options)
    first, second = state.model_with_loss.terms
    assert isinstance(first, GuidedAlignment)
    assert type(second).__name__ == "SmallEmbeddings"
    layer = state.unwrapped_model.get_decoder().layers[first.number]
    assert state.model_with_loss.layers_of_terms == [layer]


WRONG_PLACES = ["small_terms:Large", "no_such_module:Term", "small_terms", ":Term"]


@pytest.mark.parametrize("term", WRONG_PLACES)
def test_a_recipe_refuses_a_loss_term_that_is_not_there(example, tmp_path, term):
    message = f"`loss_terms` must be places of functions, such as .*, got '{term}'"
    with pytest.raises(ValueError, match=message):
        tiny_train_state(tmp_path, loss_terms=term)


def test_loss_term_may_be_in_the_file_of_user_module(tmp_path, monkeypatch):
    monkeypatch.setenv(USER_MODULE, "")
    path = tmp_path / "terms_of_a_user.py"
    path.write_text("def large(recipe, config):\n    return None\n")
    state = tiny_train_state(tmp_path, user_module=path, loss_terms="terms_of_a_user:large")
    assert state.model_with_loss.terms == [None]
    sys.modules.pop("terms_of_a_user")
