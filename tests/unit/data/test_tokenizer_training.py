"""Train tokenizers on unusual text."""

from vanilla_transformer.data.tokenizer_training import train_tokenizer


def test_train_tokenizer_splits_long_words_in_training_only():
    word = "x" * 600  # as in text without spaces, on which the time would grow with the square of the length
    tokenizer = train_tokenizer([word] * 4, vocab_size=300)
    assert max(map(len, tokenizer.get_vocab())) == 256
    (found, _), *others = tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str(word)
    assert found == word and not others
