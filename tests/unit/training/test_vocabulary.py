"""A model for another vocabulary: known entries keep their vectors, new ones are means."""

import copy

import pytest
import torch

from tests.tiny import TINY_SENTENCES, tiny_model
from vanilla_transformer.data.tokenizer_training import train_tokenizer
from vanilla_transformer.training.vocabulary import replace_vocabulary


def test_replace_vocabulary_keeps_known_entries_and_averages_the_others(tiny_tokenizer):
    model = tiny_model(lm_head_bias=True)
    torch.nn.init.normal_(model.lm_head.bias)
    new = train_tokenizer(["grüne Hunde grüne Hunde"] * 4, vocab_size=290)
    changed = replace_vocabulary(model, tiny_tokenizer, new)
    before, after = (each.get_input_embeddings().weight for each in (model, changed))
    assert after.shape[0] == len(new) == changed.config.decoder_vocab_size
    former = tiny_tokenizer.get_vocab()
    averaged = new.get_vocab().keys() - former.keys()
    assert len(averaged) >= 3
    for token, row in new.get_vocab().items():
        pieces = [each.id for each in tiny_tokenizer.backend_tokenizer.model.tokenize(token)]
        pieces = pieces if token in averaged else [former[token]]
        torch.testing.assert_close(after[row], before[pieces].mean(dim=0), msg=token)
        torch.testing.assert_close(changed.lm_head.bias[row], model.lm_head.bias[pieces].mean(), msg=token)
    others = dict(changed.named_parameters())
    for name, tensor in model.named_parameters():
        assert "embed_tokens" in name or "lm_head" in name or torch.equal(tensor, others[name])


def test_replace_vocabulary_translates_as_before_with_more_entries(tiny_tokenizer):
    model = tiny_model(vocab_size=len(tiny_tokenizer), decoder_start_token_id=2)
    extended = copy.deepcopy(tiny_tokenizer)
    extended.add_special_tokens({"extra_special_tokens": ["<2de>"]})
    changed = replace_vocabulary(model, tiny_tokenizer, extended)
    assert changed.config.vocab_size == len(tiny_tokenizer) + 1 and changed.config.decoder_start_token_id == 2
    inputs = tiny_tokenizer(TINY_SENTENCES, padding=True, return_tensors="pt")
    labels = inputs["input_ids"][:, :5]
    logits = changed(**inputs, labels=labels).logits
    torch.testing.assert_close(logits[..., :-1], model(**inputs, labels=labels).logits)


def test_replace_vocabulary_refuses_two_vocabularies(tiny_tokenizer):
    model = tiny_model(decoder_vocab_size=310, share_encoder_decoder_embeddings=False)
    with pytest.raises(ValueError, match="The vocabulary must be joint to be changed"):
        replace_vocabulary(model, tiny_tokenizer, tiny_tokenizer)
