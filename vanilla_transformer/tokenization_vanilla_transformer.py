# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Tokenizer with one joint subword vocabulary for source and target (section 5.1 of "Attention Is All You Need")."""

from transformers import PreTrainedTokenizerFast


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


__all__ = ["VanillaTransformerTokenizer"]
