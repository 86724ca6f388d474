# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""One joint byte-pair vocabulary for source and target (section 5.1 of "Attention Is All You Need")."""

from collections.abc import Iterable, Iterator, Sequence

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

# In the order of their ids, which are the defaults of VanillaTransformerConfig.
_SPECIAL_TOKENS = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}


class VanillaTransformerTokenizer(PreTrainedTokenizerFast):
    """
    Byte-pair encoding over bytes, trained from raw text.

    Every sentence, source or target (`text_target=`), ends with EOS; the decoder's input starts with `bos_token`. The
    256 bytes are part of the vocabulary, so that there is no unknown token and every string of Unicode scalar values
    comes back from `decode(..., skip_special_tokens=True)` as it went in. A `</s>` in a text is five characters, not
    the special token.

    All of it lives in `tokenizer.json`: saved folders load with `AutoTokenizer`, with this package or without it.
    """

    model_input_names = ["input_ids", "attention_mask"]

    @classmethod
    def train_from_iterator(
        cls, texts: Iterable[str], vocab_size: int = 37000, min_frequency: int = 2, show_progress: bool = False
    ) -> "VanillaTransformerTokenizer":
        """
        Learns a vocabulary from the sentences of both languages together.

        Args:
            texts (iterable of `str`): Raw sentences, in any order.
            vocab_size (`int`): Entries, special tokens and the 256 bytes counted. The paper has about 37,000.
            min_frequency (`int`): Pairs seen more rarely are not merged.
            show_progress (`bool`): Show the bars of `tokenizers`.

        Raises:
            ValueError: the vocabulary has no room for bytes and special tokens, there was no text, or `texts` is one
                string.
        """
        if isinstance(texts, str):
            raise ValueError(f"`texts` must be an iterable of sentences, got the one string {texts[:40]!r}.")
        smallest = len(_SPECIAL_TOKENS) + len(pre_tokenizers.ByteLevel.alphabet())
        if vocab_size < smallest:
            raise ValueError(
                f"`vocab_size` must be at least {smallest} (256 bytes and {len(_SPECIAL_TOKENS)} special tokens), "
                f"got {vocab_size}."
            )
        tokenizer = _byte_level_bpe()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            min_frequency=min_frequency,
            special_tokens=list(_SPECIAL_TOKENS.values()),
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=show_progress,
        )
        counted = _CountedTexts(texts)
        tokenizer.train_from_iterator(counted, trainer)
        if not counted.characters:
            raise ValueError(f"A vocabulary needs text to learn from, got {counted.texts} texts without a character.")
        eos = _SPECIAL_TOKENS["eos_token"]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"$A {eos}", pair=f"$A $B {eos}", special_tokens=[(eos, tokenizer.token_to_id(eos))]
        )
        return cls(
            tokenizer_object=tokenizer,
            split_special_tokens=True,
            clean_up_tokenization_spaces=False,
            **_SPECIAL_TOKENS,
        )


class _CountedTexts:
    """Passes texts on and counts them, since a trainer given nothing returns a vocabulary all the same."""

    def __init__(self, texts: Iterable[str]):
        self._source = texts
        self.texts = 0
        self.characters = 0

    def __iter__(self) -> Iterator[str]:
        for text in self._source:
            self.texts += 1
            self.characters += len(text)
            yield text


def _byte_level_bpe() -> Tokenizer:
    """
    An untrained tokenizer. The space put before every text lets a word at its start share the entry of the same word
    further on; the decoder takes exactly that one space away again.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Prepend(" ")
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    return tokenizer


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
