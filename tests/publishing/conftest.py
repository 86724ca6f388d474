"""A model folder that is fit to be published, and a Hub to publish it on."""

import pytest
from local_hub import running_hub
from publishable import add_card

from vanilla_transformer.training.checkpoint import save_model_folder


@pytest.fixture
def folder(tiny_model, tiny_tokenizer, tmp_path):
    """A complete folder: weights, configurations, tokenizer, code and card."""
    return add_card(save_model_folder(tiny_model, tiny_tokenizer, tmp_path / "model"))


@pytest.fixture
def hub():
    with running_hub() as hub:
        yield hub
