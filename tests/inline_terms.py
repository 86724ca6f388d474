"""A tiny model whose vocabulary has the tokens of inline terms."""

from tests.tiny import tiny_model, tiny_tokenizer
from vanilla_transformer.data.tokenizer_training import add_augmentation_tokens


def model_with_inline_terms(**fields):
    """Return a random model and its tokenizer."""
    tokenizer = tiny_tokenizer()
    add_augmentation_tokens(tokenizer, ["inline_terms"])
    return tiny_model(vocab_size=len(tokenizer), **fields), tokenizer
