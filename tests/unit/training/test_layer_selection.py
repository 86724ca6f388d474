"""A model that keeps some layers of another one computes what these layers compute."""

import pytest
import torch

from tests.tiny import tiny_long_model, tiny_model
from vanilla_transformer.training.layer_selection import keep_layers

SOURCE = torch.tensor([[5, 6, 7, 2]])


def hidden_states(model):
    """Return the outputs of a model with the states after each layer."""
    with torch.no_grad():
        return model(input_ids=SOURCE, decoder_input_ids=SOURCE, output_hidden_states=True)


@pytest.fixture(scope="module")
def model():
    return tiny_model(encoder_layers=3, decoder_layers=3)


def test_keep_layers_keeps_first_layers(model):
    smaller = keep_layers(model, {"encoder": None, "decoder": [0]})
    assert (smaller.config.encoder_layers, smaller.config.decoder_layers) == (3, 1)
    ours, theirs = hidden_states(smaller), hidden_states(model)
    torch.testing.assert_close(ours.encoder_last_hidden_state, theirs.encoder_last_hidden_state)
    torch.testing.assert_close(ours.decoder_hidden_states[1], theirs.decoder_hidden_states[1])


def test_keep_layers_takes_weights_in_order(model):
    smaller = keep_layers(model, {"encoder": [2, 0], "decoder": None})
    ours, theirs = smaller.state_dict(), model.state_dict()
    assert torch.equal(ours["model.encoder.layers.0.fc1.weight"], theirs["model.encoder.layers.2.fc1.weight"])
    assert torch.equal(ours["model.encoder.layers.1.fc1.weight"], theirs["model.encoder.layers.0.fc1.weight"])
    assert torch.equal(ours["model.decoder.layers.2.fc1.weight"], theirs["model.decoder.layers.2.fc1.weight"])
    assert smaller.generation_config.to_dict() == model.generation_config.to_dict()


def test_keep_layers_leaves_the_model_alone(model):
    assert keep_layers(model, {"encoder": None, "decoder": None}) is model
    keep_layers(model, {"encoder": [1], "decoder": [1]})
    assert (model.config.encoder_layers, model.config.decoder_layers) == (3, 3)


def test_keep_layers_forgets_heads_of_other_layers():
    model = tiny_model(decoder_layers=2)
    model.config.alignment_heads = [[1, 0]]
    assert not hasattr(keep_layers(model, {"decoder": [0]}).config, "alignment_heads")
    assert model.config.alignment_heads == [[1, 0]]


@pytest.mark.parametrize("layers", [[3], [0, 7], [-1]])
def test_keep_layers_refuses_layers_that_are_not_there(model, layers):
    with pytest.raises(ValueError, match=rf"`init_decoder_layers` must name layers from 0 to 2 .*, got {layers[-1]}"):
        keep_layers(model, {"decoder": layers})


def test_keep_layers_refuses_models_for_long_sequences():
    with pytest.raises(ValueError, match="Layers can be kept of models with full attention only"):
        keep_layers(tiny_long_model(), {"decoder": [0]})
