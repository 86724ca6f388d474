"""A model that a run starts from keeps some of its layers, and gets another vocabulary."""

import copy

import pytest
import torch

from tests.tiny import TINY_SENTENCES, tiny_long_model, tiny_model, tiny_tokenizer
from vanilla_transformer.data.tokenizer_training import train_tokenizer
from vanilla_transformer.errors import UserError
from vanilla_transformer.training.initialization import keep_layers, replace_vocabulary

SOURCE = torch.tensor([[5, 6, 7, 2]])


def hidden_states(model):
    """Return the outputs of a model with the states after each layer."""
    with torch.no_grad():
        return model(input_ids=SOURCE, decoder_input_ids=SOURCE, output_hidden_states=True)


@pytest.fixture
def model():
    return tiny_model(encoder_layers=3, decoder_layers=3)


def test_keep_layers_keeps_first_layers_and_leaves_the_model_alone(model):
    model.config.alignment_heads = [[1, 0]]
    assert keep_layers(model, {"encoder": None, "decoder": None}) is model
    smaller = keep_layers(model, {"encoder": None, "decoder": [0]})
    assert (smaller.config.encoder_layers, smaller.config.decoder_layers) == (3, 1)
    assert (model.config.encoder_layers, model.config.decoder_layers) == (3, 3)
    assert model.config.alignment_heads == [[1, 0]]
    assert not hasattr(smaller.config, "alignment_heads")
    ours, theirs = hidden_states(smaller), hidden_states(model)
    torch.testing.assert_close(ours.encoder_last_hidden_state, theirs.encoder_last_hidden_state)
    torch.testing.assert_close(ours.decoder_hidden_states[1], theirs.decoder_hidden_states[1])


def test_keep_layers_takes_weights_in_order(model):
    smaller = keep_layers(model, {"encoder": [2, 0], "decoder": None})
    ours, theirs = smaller.state_dict(), model.state_dict()
    for layer, former in ((0, 2), (1, 0)):
        weight = theirs[f"model.encoder.layers.{former}.fc1.weight"]
        assert torch.equal(ours[f"model.encoder.layers.{layer}.fc1.weight"], weight)
    name = "model.decoder.layers.2.fc1.weight"
    assert torch.equal(ours[name], theirs[name])
    assert smaller.generation_config.to_dict() == model.generation_config.to_dict()


TWO_VOCABULARIES = {"decoder_vocab_size": 310, "share_encoder_decoder_embeddings": False}
LAYERS = "`init_decoder_layers` must name layers from 0 to 2 .*, got"
REFUSALS = [
    (lambda: keep_layers(tiny_model(decoder_layers=3), {"decoder": [0, 3]}), f"{LAYERS} 3"),
    (lambda: keep_layers(tiny_model(decoder_layers=3), {"decoder": [-1]}), f"{LAYERS} -1"),
    (
        lambda: keep_layers(tiny_long_model(), {"decoder": [0]}),
        "Layers can be kept of models with full attention",
    ),
    (
        lambda: replace_vocabulary(
            tiny_model(**TWO_VOCABULARIES), tiny_tokenizer(), tiny_tokenizer()
        ),
        "The vocabulary must be joint to be changed",
    ),
]


@pytest.mark.parametrize(("call", "words"), REFUSALS)
def test_model_that_cannot_be_changed_is_refused(call, words):
    with pytest.raises(UserError, match=words):
        call()


def test_replace_vocabulary_keeps_known_entries_and_averages_the_others(tiny_tokenizer):
    model = tiny_model(lm_head_bias=True)
    torch.nn.init.normal_(model.lm_head.bias)
    new = train_tokenizer(["grüne Hunde grüne Hunde"] * 4, vocab_size=290)
    changed = replace_vocabulary(model, tiny_tokenizer, new)
    before = model.get_input_embeddings().weight
    after = changed.get_input_embeddings().weight
    assert after.shape[0] == len(new) == changed.config.decoder_vocab_size
    former = tiny_tokenizer.get_vocab()
    averaged = new.get_vocab().keys() - former.keys()
    assert len(averaged) >= 3
    for token, row in new.get_vocab().items():
        pieces = tiny_tokenizer.backend_tokenizer.model.tokenize(token)
        rows = [piece.id for piece in pieces] if token in averaged else [former[token]]
        torch.testing.assert_close(after[row], before[rows].mean(dim=0), msg=token)
        bias = model.lm_head.bias[rows].mean()
        torch.testing.assert_close(changed.lm_head.bias[row], bias, msg=token)
    others = dict(changed.named_parameters())
    for name, tensor in model.named_parameters():
        is_of_words = "embed_tokens" in name or "lm_head" in name
        assert is_of_words or torch.equal(tensor, others[name])


def test_replace_vocabulary_translates_as_before_with_more_entries(tiny_tokenizer):
    model = tiny_model(vocab_size=len(tiny_tokenizer), decoder_start_token_id=2)
    extended = copy.deepcopy(tiny_tokenizer)
    extended.add_special_tokens({"extra_special_tokens": ["<2de>"]})
    changed = replace_vocabulary(model, tiny_tokenizer, extended)
    assert changed.config.vocab_size == len(tiny_tokenizer) + 1
    assert changed.config.decoder_start_token_id == 2
    inputs = tiny_tokenizer(TINY_SENTENCES, padding=True, return_tensors="pt")
    labels = inputs["input_ids"][:, :5]
    logits = changed(**inputs, labels=labels).logits
    expected = model(**inputs, labels=labels).logits
    torch.testing.assert_close(logits[..., :-1], expected)
