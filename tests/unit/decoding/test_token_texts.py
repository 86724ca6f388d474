"""The texts of tokens: what each one adds to the decoded text, found in linear time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from tests.tiny import TINY_SENTENCES, TINY_VOCAB_SIZE
from vanilla_transformer.data.tokenizer_training import train_tokenizer
from vanilla_transformer.decoding.token_texts import token_texts

TOKENIZERS = {
    kind: train_tokenizer(TINY_SENTENCES * 2, TINY_VOCAB_SIZE, model=kind) for kind in ("bpe", "unigram", "wordpiece")
}
PIECES = ["</s>", "▁a", "b", "▁", ".", *(f"<0x{byte:02X}>" for byte in (0x41, 0xE2, 0x82, 0xAC, 0xC3, 0xBC))]


def library_tokenizer(decoder):
    """Return a tokenizer whose tokens are pieces and bytes of SentencePiece."""
    backend = Tokenizer(models.WordLevel({piece: number for number, piece in enumerate(PIECES)}, unk_token="."))
    backend.decoder = decoder
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>", clean_up_tokenization_spaces=False)


TOKENIZERS["metaspace"] = library_tokenizer(decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()]))
TOKENIZERS["pieces"] = library_tokenizer(decoders.Sequence([decoders.Metaspace(), decoders.Fuse()]))


def texts_of_prefixes(tokenizer, ids):
    """Return the text of each token by its definition, from the text of all tokens up to it."""
    texts, done = [], 0
    for position, token in enumerate(ids):
        if token in tokenizer.all_special_ids:
            texts.append(tokenizer.convert_ids_to_tokens(token))
            continue
        longer = tokenizer.decode(ids[: position + 1], skip_special_tokens=True)
        if any(each not in tokenizer.all_special_ids for each in ids[position + 1 :]):
            longer = longer.rstrip("\ufffd")
        texts.append(longer[done:])
        done = max(done, len(longer))
    return texts


@pytest.mark.parametrize("name", TOKENIZERS)
@given(data=st.data())
def test_token_texts_are_what_each_token_adds_to_the_text(name, data):
    tokenizer = TOKENIZERS[name]
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=12))
    assert token_texts(tokenizer, ids) == texts_of_prefixes(tokenizer, ids)


@settings(max_examples=30)
@given(st.text(max_size=20))
def test_token_texts_join_to_any_text(text):
    tokenizer = TOKENIZERS["bpe"]
    ids = tokenizer(text)["input_ids"]
    assert token_texts(tokenizer, ids) == texts_of_prefixes(tokenizer, ids)
    assert "".join(token_texts(tokenizer, ids)[:-1]) == tokenizer.decode(ids, skip_special_tokens=True)


def test_token_texts_decodes_each_token_a_few_times():
    class Counting:
        all_special_ids = ()
        decoded = 0

        def decode(self, ids, skip_special_tokens):
            self.decoded += len(ids)
            return "".join("xyz"[each] for each in ids)

    tokenizer = Counting()
    assert token_texts(tokenizer, [0, 1, 2] * 100) == [*"xyz"] * 100
    assert tokenizer.decoded < 4 * 300
