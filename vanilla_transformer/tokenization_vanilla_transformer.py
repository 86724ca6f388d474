# Copyright 2026 The vanilla-transformer authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""One joint subword vocabulary for source and target (section 5.1 of "Attention Is All You Need")."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

# In the order of their ids, which are the defaults of VanillaTransformerConfig.
_SPECIAL_TOKENS = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
_BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())  # one character for each of the 256

# WordPiece gives up on longer words, and its time grows with their square.
_LONGEST_WORDPIECE_WORD = 100
# Of the unigram model: SentencePiece's values, and the number of BPE pieces that it starts from.
_LONGEST_PIECE = 16
_KEPT_BY_PRUNING = 0.75
_STEPS_BETWEEN_PRUNINGS = 2
_SEEDS_PER_PIECE = 4
# The forward probability of so many bytes is a float above 0 even where each of them is as rare as 1e-9.
_LONGEST_LEARNT_WORD = 32


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
        Learns a vocabulary from the sentences of both languages together. The same texts give the same vocabulary, in
        every process.

        Args:
            texts (iterable of `str`): Raw sentences, in any order.
            vocab_size (`int`): Entries, special tokens and the 256 bytes counted. The paper has about 37,000.
            min_frequency (`int`): Pairs seen more rarely are not merged.
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
    smallest = len(_SPECIAL_TOKENS) + len(_BYTES)
    if vocab_size < smallest:
        raise ValueError(
            f"`vocab_size` must be at least {smallest} (256 bytes and {len(_SPECIAL_TOKENS)} special tokens), "
            f"got {vocab_size}."
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
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(**_options(vocab_size, min_frequency, show_progress)))
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
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [tokenizer.pre_tokenizer, pre_tokenizers.FixedLength(_LONGEST_WORDPIECE_WORD)]
    )
    options = _options(vocab_size, min_frequency, show_progress)
    tokenizer.train_from_iterator(texts, trainers.WordPieceTrainer(**options, continuing_subword_prefix=""))
    tokenizer.model.max_input_chars_per_word = _LONGEST_WORDPIECE_WORD
    return tokenizer


def _learn_unigram(texts: Iterable[str], vocab_size: int, min_frequency: int, show_progress: bool) -> Tokenizer:
    """
    The unigram language model of Kudo (2018), "Subword Regularization", section 3.2: many pieces to begin with, those
    of a larger BPE; then expectation maximisation of their probabilities in turn with the removal of those that the
    likelihood misses least. A word is split into the pieces of the highest probability.

    `tokenizers` has a trainer for it, but that looks for pieces in a list of words without their frequencies, so that
    a frequent word which is part of no other is never one of them: with 8000 entries the sentences of Multi30k have a
    fifth more tokens. It also adds floats in the order of a hash map and breaks ties by them, so that two processes of
    one run would have different vocabularies.
    """
    tokenizer = _byte_level(models.BPE())
    words: Counter[str] = Counter()
    options = _options(_SEEDS_PER_PIECE * vocab_size, min_frequency, show_progress)
    trainer = trainers.BpeTrainer(**options, max_token_length=_LONGEST_PIECE)
    tokenizer.train_from_iterator(_counting_words(texts, words), trainer)
    seeds = sorted(tokenizer.get_vocab().keys() - set(_SPECIAL_TOKENS.values()))
    probabilities = _fit_pieces(seeds, words, vocab_size - len(_SPECIAL_TOKENS))
    scores = [(piece, math.log(probability)) for piece, probability in probabilities.items()]
    scores.sort(key=lambda item: (item[0] not in _BYTES, -item[1], item[0]))
    # No word of a text holds a special token: the pre-tokenizer parts letters from other signs.
    special = [(token, 0.0) for token in _SPECIAL_TOKENS.values()]
    tokenizer.model = models.Unigram([*special, *scores], unk_id=None, byte_fallback=False)
    return tokenizer


_LEARNERS: dict[str, Callable[[Iterable[str], int, int, bool], Tokenizer]] = {
    "bpe": _learn_bpe,
    "unigram": _learn_unigram,
    "wordpiece": _learn_wordpiece,
}
TOKENIZER_MODELS = tuple(_LEARNERS)


def _options(vocab_size: int, min_frequency: int, show_progress: bool) -> dict[str, Any]:
    """What the trainers of `tokenizers` are told alike."""
    return {
        "vocab_size": vocab_size,
        "min_frequency": min_frequency,
        "special_tokens": list(_SPECIAL_TOKENS.values()),
        "initial_alphabet": _BYTES,
        "show_progress": show_progress,
    }


def _counting_words(texts: Iterable[str], words: Counter[str]) -> Iterator[str]:
    """Passes texts on and counts their words, long ones in parts."""
    splitting = _byte_level(models.BPE())  # the tokenizer in training is locked while it reads
    normalizer, pre_tokenizer = splitting.normalizer, splitting.pre_tokenizer
    for text in texts:
        for word, _ in pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(text)):
            for first in range(0, len(word), _LONGEST_LEARNT_WORD):
                words[word[first : first + _LONGEST_LEARNT_WORD]] += 1
        yield text


def _fit_pieces(seeds: Sequence[str], words: Mapping[str, int], size: int) -> dict[str, float]:
    """The probabilities of the `size` pieces, or fewer where there are fewer seeds, that are left in the end."""
    probabilities = dict.fromkeys(seeds, 1 / len(seeds))
    while True:
        for _ in range(_STEPS_BETWEEN_PRUNINGS):
            expected = _expected_counts(probabilities, words)
            total = sum(expected.values())
            probabilities = {piece: count / total for piece, count in expected.items()}
        if len(probabilities) <= size:
            return probabilities
        probabilities = _pruned(probabilities, max(size, int(_KEPT_BY_PRUNING * len(probabilities))))


def _expected_counts(probabilities: Mapping[str, float], words: Mapping[str, int]) -> dict[str, float]:
    """
    The E step: how often each piece is used, on average over the segmentations of each word by their probability. No
    count is less than a half, since a byte without a probability would leave texts without a segmentation.
    """
    expected = dict.fromkeys(probabilities, 0.0)
    for word, count in words.items():
        edges = _edges(word, probabilities)
        forward, backward = [1.0] + [0.0] * len(word), [0.0] * len(word) + [1.0]
        for start, end, probability in edges:
            forward[end] += forward[start] * probability
        for start, end, probability in reversed(edges):
            backward[start] += probability * backward[end]
        for start, end, probability in edges:
            share = forward[start] * probability * backward[end] / forward[-1]
            expected[word[start:end]] += count * share
    return {piece: max(count, 0.5) for piece, count in expected.items()}


def _edges(word: str, probabilities: Mapping[str, float]) -> list[tuple[int, int, float]]:
    """Each place of a piece in `word` as (start, end, probability), by start and end."""
    return [
        (start, end, probabilities[word[start:end]])
        for start in range(len(word))
        for end in range(start + 1, min(start + _LONGEST_PIECE, len(word)) + 1)
        if word[start:end] in probabilities
    ]


def _pruned(probabilities: dict[str, float], size: int) -> dict[str, float]:
    """
    The bytes, and the pieces whose removal would lower the logarithm of the likelihood most: by the piece's frequency
    times what the best segmentation into other pieces is less probable.
    """

    def loss(piece: str) -> float:
        return probabilities[piece] * (math.log(probabilities[piece]) - _best_without(piece, probabilities))

    by_loss = sorted(probabilities.keys() - set(_BYTES), key=lambda piece: (-loss(piece), piece))
    kept = {*_BYTES, *by_loss[: size - len(_BYTES)]}
    return {piece: probability for piece, probability in probabilities.items() if piece in kept}


def _best_without(piece: str, probabilities: Mapping[str, float]) -> float:
    """The logarithm of the probability of the best segmentation of `piece` into at least two others."""
    best = [0.0] + [-math.inf] * len(piece)
    for start, end, probability in _edges(piece, probabilities):
        if end - start < len(piece):
            best[end] = max(best[end], best[start] + math.log(probability))
    return best[-1]


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
