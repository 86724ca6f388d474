# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Tokenizer with one joint subword vocabulary for source and target (section 5.1 of "Attention Is All You Need")."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast


class VanillaTransformerTokenizer(PreTrainedTokenizerFast):
    """
    Byte-level BPE, WordPiece or unigram tokenizer, trained by `vanilla_transformer.data.tokenizer_training`.

    Every sentence, source or target (`text_target=`), ends with EOS; the decoder input starts with `bos_token`. The
    vocabulary contains the 256 bytes, so there is no unknown token, and `decode(..., skip_special_tokens=True)`
    returns every string of Unicode scalar values unchanged. A `</s>` in a text is five characters, not the special
    token.

    `tokenizer.json` holds everything: `AutoTokenizer` loads a saved folder without this package too, as a
    `PreTrainedTokenizerFast`.
    """

    model_input_names = ["input_ids", "attention_mask"]


def encode_sentences(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[int]]:
    """
    Token ids of each text with exactly one EOS, at the end, whatever tokenizer they come from: many of transformers'
    tokenizers put none, some put one in front, and most take an EOS written in a text for the symbol.

    Raises:
        ValueError: the tokenizer has no `eos_token`.
    """
    if tokenizer.eos_token_id is None:
        raise ValueError(
            f"The tokenizer must have an `eos_token`, got none from {type(tokenizer).__name__}. Set one with "
            "`tokenizer.add_special_tokens({'eos_token': '</s>'})`."
        )
    if not texts:
        return []
    sentences = tokenizer(list(texts), add_special_tokens=True, return_attention_mask=False)["input_ids"]
    return [_with_one_eos(sentence, tokenizer.eos_token_id) for sentence in sentences]


def _with_one_eos(sentence: list[int], eos_token_id: int) -> list[int]:
    return [*(token for token in sentence if token != eos_token_id), eos_token_id]


__all__ = ["VanillaTransformerTokenizer", "encode_sentences"]
