# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""One joint subword vocabulary for source and target (section 5.1 of "Attention Is All You Need")."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

# In the order of their ids, which are the defaults of VanillaTransformerConfig.
_SPECIAL_TOKENS = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
_BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())  # one character for each of the 256

# WordPiece gives up on longer words, and its time grows with their square.
_LONGEST_WORDPIECE_WORD = 100
# The trainer of the unigram model crashes at a word of a million bytes, and its pieces have 16 at most.
_LONGEST_UNIGRAM_WORD = 1000


class VanillaTransformerTokenizer(PreTrainedTokenizerFast):
    """
    Byte-pair encoding over bytes, or another model of subwords over them, trained from raw text.

    Every sentence, source or target (`text_target=`), ends with EOS; the decoder's input starts with `bos_token`. The
    256 bytes are part of the vocabulary, so that there is no unknown token and every string of Unicode scalar values
    comes back from `decode(..., skip_special_tokens=True)` as it went in. A `</s>` in a text is five characters, not
    the special token.

    All of it lives in `tokenizer.json`: saved folders load with `AutoTokenizer`, with this package or without it.
    """

    model_input_names = ["input_ids", "attention_mask"]

    @classmethod
    def train_from_iterator(
        cls,
        texts: Iterable[str],
        vocab_size: int = 37000,
        min_frequency: int = 2,
        show_progress: bool = False,
        model: str = "bpe",
    ) -> "VanillaTransformerTokenizer":
        """
        Learns a vocabulary from the sentences of both languages together.

        The same texts give the same vocabulary of the models bpe and wordpiece, in every process. Of unigram each
        training gives another, of other floats and now and then other pieces: processes that work together must load
        one that was saved.

        Args:
            texts (iterable of `str`): Raw sentences, in any order.
            vocab_size (`int`):
                Entries at most, special tokens and the 256 bytes counted; fewer where the texts give no more. The
                paper has about 37,000.
            min_frequency (`int`): Pairs seen more rarely are not merged. Unigram merges none, and passes over it.
            show_progress (`bool`): Show the bars of `tokenizers`.
            model (`str`):
                `"bpe"`, the paper's for English-German; `"wordpiece"`, the paper's for English-French; or `"unigram"`.

        Raises:
            ValueError: the vocabulary has no room for bytes and special tokens, there is no such model, there was no
                text, or `texts` is one string.
        """
        _check_training(texts, vocab_size, model)
        counted = _CountedTexts(texts)
        tokenizer = _LEARNERS[model](counted, vocab_size, min_frequency, show_progress)
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


def _check_training(texts: Iterable[str], vocab_size: int, model: str) -> None:
    if isinstance(texts, str):
        raise ValueError(f"`texts` must be an iterable of sentences, got the one string {texts[:40]!r}.")
    if model not in TOKENIZER_MODELS:
        raise ValueError(f"`model` must be one of {', '.join(TOKENIZER_MODELS)}, got {model!r}.")
    needed = f"256 bytes and {len(_SPECIAL_TOKENS)} special tokens"
    smallest = len(_SPECIAL_TOKENS) + len(_BYTES)
    if model == "unigram":  # told to learn none, its trainer learns as many as it can
        needed, smallest = f"{needed}, and for unigram a piece to learn", smallest + 1
    if vocab_size < smallest:
        raise ValueError(f"`vocab_size` must be at least {smallest} ({needed}), got {vocab_size}.")


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


def _byte_level(model: models.Model) -> Tokenizer:
    """
    An untrained tokenizer. The space put before every text lets a word at its start share the entry of the same word
    further on; the decoder takes exactly that one space away again.
    """
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Prepend(" ")
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    return tokenizer


def _learn_bpe(texts: Iterable[str], vocab_size: int, min_frequency: int, show_progress: bool) -> Tokenizer:
    tokenizer = _byte_level(models.BPE())
    trainer = trainers.BpeTrainer(min_frequency=min_frequency, **_options(vocab_size, show_progress))
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _learn_wordpiece(texts: Iterable[str], vocab_size: int, min_frequency: int, show_progress: bool) -> Tokenizer:
    """
    WordPiece as Wu et al. (2016) have it, which the paper cites for English-French: pieces that start a word bear a
    mark (here the byte of the space before it), the others none, so that 256 bytes cover both; a word is split by
    taking the longest piece from its left. BERT's `##` for the others would need every byte twice, and cannot be told
    from two number signs in the text.

    Differs from Wu et al.: pieces are learnt by the frequency of pairs, as those of BPE, since `tokenizers` has no
    trainer for the likelihood.
    """
    tokenizer = _byte_level(models.WordPiece())
    tokenizer.pre_tokenizer = _in_parts(tokenizer.pre_tokenizer, _LONGEST_WORDPIECE_WORD)
    trainer = trainers.WordPieceTrainer(
        min_frequency=min_frequency, continuing_subword_prefix="", **_options(vocab_size, show_progress)
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.model.max_input_chars_per_word = _LONGEST_WORDPIECE_WORD
    return tokenizer


def _learn_unigram(texts: Iterable[str], vocab_size: int, min_frequency: int, show_progress: bool) -> Tokenizer:
    """
    The unigram language model of Kudo (2018), "Subword Regularization", section 3.2: a word is split into the pieces
    of the highest probability.

    Differs from Kudo: the trainer of `tokenizers` takes the pieces to begin with from a list of words without their
    frequencies, so that a frequent word that is part of no other is never one of them. Texts have more tokens for it:
    with 8000 entries a sixth more than by BPE on the sentences of Multi30k.
    """
    tokenizer = _byte_level(models.Unigram())
    whole_words = tokenizer.pre_tokenizer
    tokenizer.pre_tokenizer = _in_parts(whole_words, _LONGEST_UNIGRAM_WORD)
    tokenizer.train_from_iterator(texts, trainers.UnigramTrainer(**_options(vocab_size, show_progress)))
    tokenizer.pre_tokenizer = whole_words
    return tokenizer


def _in_parts(pre_tokenizer: pre_tokenizers.PreTokenizer, longest: int) -> pre_tokenizers.PreTokenizer:
    """The same, but that it cuts longer words into parts."""
    return pre_tokenizers.Sequence([pre_tokenizer, pre_tokenizers.FixedLength(longest)])


_LEARNERS: dict[str, Callable[[Iterable[str], int, int, bool], Tokenizer]] = {
    "bpe": _learn_bpe,
    "unigram": _learn_unigram,
    "wordpiece": _learn_wordpiece,
}
TOKENIZER_MODELS = tuple(_LEARNERS)


def _options(vocab_size: int, show_progress: bool) -> dict[str, Any]:
    """What the trainers of `tokenizers` are told alike."""
    return {
        "vocab_size": vocab_size,
        "special_tokens": list(_SPECIAL_TOKENS.values()),
        "initial_alphabet": _BYTES,
        "show_progress": show_progress,
    }


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


__all__ = ["TOKENIZER_MODELS", "VanillaTransformerTokenizer", "encode_sentences"]
