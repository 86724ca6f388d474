# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Tokenizer with one joint subword vocabulary for source and target (section 5.1 of "Attention Is All You Need")."""

from collections.abc import Sequence
from typing import Any

from tokenizers import AddedToken
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.utils import to_py_obj


class VanillaTransformerTokenizer(PreTrainedTokenizerFast):
    """
    Byte-level BPE, WordPiece or unigram tokenizer, trained by `vanilla_transformer.data.tokenizer_training`.

    Every sentence, source or target (`text_target=`), ends with EOS; the decoder input starts with `bos_token`. The
    vocabulary contains the 256 bytes, so there is no unknown token, and `decode(..., skip_special_tokens=True)`
    returns every string of Unicode scalar values unchanged. A `</s>` in a text is five characters, not the special
    token: padding, BOS and EOS are never found in a text. Tokens that a user adds, special or not, are:
    `tokenizer.add_special_tokens({"mask_token": "<mask>"})` keeps each `<mask>` of a text in one piece.

    `tokenizer.json` holds everything: `AutoTokenizer` loads a saved folder without this package too, as a
    `PreTrainedTokenizerFast`.
    """

    model_input_names = ["input_ids", "attention_mask"]

    def add_tokens(self, new_tokens: Any, special_tokens: bool = False) -> int:
        """Add tokens to the vocabulary. Special ones, such as a mask or a language, take the spaces around them."""
        if not self.split_special_tokens:
            return super().add_tokens(new_tokens, special_tokens)
        added = 0
        for token in [new_tokens] if isinstance(new_tokens, str | AddedToken) else new_tokens:
            added += super().add_tokens(*self._arguments_to_find(token, special_tokens))
        return added

    def decode(self, token_ids: Any, skip_special_tokens: bool = False, **kwargs: Any) -> Any:
        """Convert ids to text, or several rows of ids to a list of texts."""
        token_ids = to_py_obj(token_ids)
        if skip_special_tokens:
            token_ids = _without(token_ids, set(self.all_special_ids))
        if _are_rows(token_ids) and not self.clean_up_tokenization_spaces and not any(kwargs.values()):
            return self.backend_tokenizer.decode_batch(token_ids, skip_special_tokens=skip_special_tokens)
        return super().decode(token_ids, skip_special_tokens, **kwargs)

    def _arguments_to_find(self, token: str | AddedToken, special: bool) -> tuple[list[str | AddedToken], bool]:
        """Return the arguments of `add_tokens` by which the backend finds a special token in texts."""
        special = special or getattr(token, "special", False)
        if not special or str(token) in (self.pad_token, self.bos_token, self.eos_token):
            return [token], special
        return [AddedToken(str(token), lstrip=True, rstrip=True, normalized=False, special=False)], False


def constructor_arguments(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Return the arguments, besides `tokenizer_object`, with which a tokenizer has the settings of another one."""
    named = {name: token for name, token in tokenizer.special_tokens_map.items() if isinstance(token, str)}
    stored = {name: value for name, value in tokenizer.init_kwargs.items() if name == "directions"}  # see `Languages`
    return (
        named
        | stored
        | {
            "extra_special_tokens": tokenizer.extra_special_tokens,
            "split_special_tokens": tokenizer.split_special_tokens,
            "clean_up_tokenization_spaces": False,
        }
    )


def _without(token_ids: Any, special: set[int]) -> Any:
    """Remove special ids from a row, or from each row; a single id stays as it is."""
    if not isinstance(token_ids, Sequence):
        return token_ids
    if _are_rows(token_ids):
        return [_without(row, special) for row in token_ids]
    return token_ids if special.isdisjoint(token_ids) else [token for token in token_ids if token not in special]


def _are_rows(token_ids: Any) -> bool:
    return isinstance(token_ids, list | tuple) and len(token_ids) > 0 and isinstance(token_ids[0], list | tuple)


__all__ = ["VanillaTransformerTokenizer", "constructor_arguments"]
