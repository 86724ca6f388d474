"""Train tokenizers on unusual text."""

import pytest

from tests.tiny import TINY_SENTENCES
from vanilla_transformer.data.tokenizer_training import extend_tokenizer, train_tokenizer


def test_train_tokenizer_splits_long_words_in_training_only():
    # As in text without spaces, on which the time would grow with the square of the length.
    word = "x" * 600
    tokenizer = train_tokenizer([word] * 4, vocab_size=300)
    assert max(map(len, tokenizer.get_vocab())) == 256
    pieces = tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str(word)
    assert [piece for piece, _ in pieces] == [word]


NEW_TEXT = ["Le château brûle.", "Un château, deux châteaux.", "La bûche brûle."] * 3


def test_extend_tokenizer_adds_entries_that_shorten_the_new_text(tiny_tokenizer):
    extended = extend_tokenizer(tiny_tokenizer, NEW_TEXT, vocab_size=320)
    before, after = tiny_tokenizer.get_vocab(), extended.get_vocab()
    assert before.items() <= after.items() and len(extended) == 320
    assert sorted(after.values()) == list(range(320))
    for text in [*NEW_TEXT, *TINY_SENTENCES, "völlig neu 🙂"]:
        assert extended.decode(extended(text)["input_ids"], skip_special_tokens=True) == text
        assert len(extended(text)["input_ids"]) <= len(tiny_tokenizer(text)["input_ids"])
    assert (
        len(extended("Le château")["input_ids"])
        < len(tiny_tokenizer("Le château")["input_ids"]) - 3
    )


def test_extend_tokenizer_merges_further_on_the_same_text_as_longer_training_would():
    text = TINY_SENTENCES * 3
    longer = train_tokenizer(text, vocab_size=330)
    extended = extend_tokenizer(train_tokenizer(text, vocab_size=290), text, vocab_size=330)
    for sentence in text:
        assert len(extended(sentence)["input_ids"]) == len(longer(sentence)["input_ids"])


def test_extend_tokenizer_leaves_a_text_without_new_words_as_it_is(tiny_tokenizer):
    extended = extend_tokenizer(tiny_tokenizer, ["zzz qqq"] * 5, vocab_size=303)
    assert extended(TINY_SENTENCES)["input_ids"] == tiny_tokenizer(TINY_SENTENCES)["input_ids"]


@pytest.mark.parametrize(
    ("model", "vocab_size", "message"),
    [
        ("bpe", 300, "must be above the 300 entries to extend"),
        ("wordpiece", 400, "needs a BPE tokenizer"),
    ],
)
def test_extend_tokenizer_refuses_what_it_cannot_extend(model, vocab_size, message):
    tokenizer = train_tokenizer(TINY_SENTENCES, vocab_size=300, model=model, min_frequency=1)
    with pytest.raises(ValueError, match=message):
        extend_tokenizer(tokenizer, NEW_TEXT, vocab_size)
