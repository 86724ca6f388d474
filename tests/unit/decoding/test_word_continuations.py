"""Unit tests of `word_continuations`: which tokens of each kind of vocabulary continue a word."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from vanilla_transformer.decoding.constraints import ends_in_word, word_continuations


def tokenizer_of(model, decoder, pre_tokenizer):
    tokenizer = Tokenizer(model)
    tokenizer.decoder, tokenizer.pre_tokenizer = decoder, pre_tokenizer
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")


def tokenizer_with(kind, tokens):
    vocabulary = {token: number for number, token in enumerate(["<unk>", *tokens])}
    if kind == "wordpiece":
        model = models.WordPiece(vocabulary, unk_token="<unk>")
        return tokenizer_of(model, decoders.WordPiece(), pre_tokenizers.Whitespace())
    if kind == "suffixes":
        model = models.BPE(vocabulary, [], unk_token="<unk>", end_of_word_suffix="</w>")
        return tokenizer_of(model, decoders.BPEDecoder(), pre_tokenizers.Whitespace())
    model = models.BPE(vocabulary, [], unk_token="<unk>")
    if kind == "bytes":
        return tokenizer_of(
            model, decoders.ByteLevel(), pre_tokenizers.ByteLevel(add_prefix_space=False)
        )
    return tokenizer_of(model, decoders.Metaspace(), pre_tokenizers.Metaspace())


@pytest.mark.parametrize(
    "kind, tokens, continuing",
    [
        ("metaspace", ["▁", "a", "b", "▁b", ",", ",b", "9", "é", "人"], ["a", "b", "9", "é"]),
        ("bytes", ["a", "b", "Ġb", ",", "Ã©", "Ã"], ["a", "b", "Ã©"]),
        ("wordpiece", ["a", "b", "##b", "##-", "-"], ["##b"]),
        ("suffixes", ["a</w>", "b</w>", "a", "b"], []),
    ],
)
def test_word_continuations_are_tokens_that_add_letters(kind, tokens, continuing):
    tokenizer = tokenizer_with(kind, tokens)
    continuations = word_continuations(tokenizer)
    assert sorted(tokenizer.convert_ids_to_tokens(sorted(continuations))) == sorted(continuing)
    assert word_continuations(tokenizer) is continuations


@pytest.mark.parametrize(
    "text, expected", [("Haus", True), ("A4", True), ("Haus.", False), ("学校", False), ("", False)]
)
def test_ends_in_word_tells_letters_of_scripts_with_spaces(text, expected):
    assert ends_in_word(text) is expected
