"""Extend the vocabulary of a trained tokenizer by further merges, learned on other text."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase

from vanilla_transformer.tokenization_vanilla_transformer import VanillaTransformerTokenizer, constructor_arguments

_FIRST_SYMBOL = 0xF0000  # of two planes of Unicode for private use: one character for each entry of the vocabulary
_MOST_ENTRIES = 2**17


def extend_tokenizer(
    tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], vocab_size: int, min_frequency: int = 2
) -> VanillaTransformerTokenizer:
    """
    Return a tokenizer with the same entries and further ones, which merge pairs of them that are frequent in `texts`.

    Training of BPE continues where it ended: the former merges come first. So text whose words have no new merge is
    tokenized as before. Added tokens, such as tags of languages, come after the new entries.

    Args:
        texts: Sentences, read twice.
        vocab_size: Entries of the new vocabulary. There are fewer if the text has fewer pairs.
        min_frequency: Rarer pairs are not merged.

    Raises:
        ValueError: the tokenizer is not BPE of this package, or has as many entries already.
    """
    if not isinstance(tokenizer, VanillaTransformerTokenizer) or not isinstance(_model(tokenizer), models.BPE):
        raise ValueError(
            "`init_vocabulary` extend needs a BPE tokenizer of this package, got another one. Use keep or replace."
        )
    if not len(tokenizer) < vocab_size <= _MOST_ENTRIES:
        raise ValueError(
            f"`vocab_size` must be above the {len(tokenizer):,} entries to extend and at most {_MOST_ENTRIES:,}, got "
            f"{vocab_size:,}."
        )
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    entries, merges = state["model"]["vocab"], state["model"]["merges"]
    words = _Words(tokenizer)
    for first, second in _learn_merges(words, list(texts), vocab_size - len(tokenizer), min_frequency):
        merges.append([first, second])
        entries.setdefault(first + second, len(entries))
    return tokenizer_from_state(state, tokenizer)


def tokenizer_from_state(state: dict[str, Any], tokenizer: VanillaTransformerTokenizer) -> VanillaTransformerTokenizer:
    """Return a tokenizer with the content `state` of a `tokenizer.json`, and otherwise like `tokenizer`."""
    return VanillaTransformerTokenizer(
        tokenizer_object=Tokenizer.from_str(json.dumps(state)), **constructor_arguments(tokenizer)
    )


def _model(tokenizer: Any) -> models.Model:
    return tokenizer.backend_tokenizer.model


class _Words:
    """Write words as strings with one private character for each piece, and read such strings."""

    def __init__(self, tokenizer: VanillaTransformerTokenizer):
        self._backend = tokenizer.backend_tokenizer
        self._written: dict[str, str] = {}
        self.alphabet: set[str] = set()

    def write(self, texts: Iterable[str]) -> Iterator[str]:
        """Yield each text as its words, separated by spaces."""
        backend = self._backend
        for text in texts:
            words = backend.pre_tokenizer.pre_tokenize_str(backend.normalizer.normalize_str(text))
            yield " ".join(self._write_word(word) for word, _ in words)

    def read(self, symbols: str) -> str:
        """Return the entry that private characters spell."""
        return "".join(self._backend.id_to_token(ord(symbol) - _FIRST_SYMBOL) for symbol in symbols)

    def _write_word(self, word: str) -> str:
        if word not in self._written:
            self._written[word] = "".join(
                chr(_FIRST_SYMBOL + piece.id) for piece in self._backend.model.tokenize(word)
            )
            self.alphabet |= set(self._written[word])
        return self._written[word]


def _learn_merges(words: _Words, texts: list[str], count: int, min_frequency: int) -> list[tuple[str, str]]:
    """Return `count` further merges of entries, the most frequent first."""
    for _ in words.write(texts):  # fills the alphabet
        pass
    learned = Tokenizer(models.BPE())
    learned.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    size = len(words.alphabet) + count
    learned.train_from_iterator(
        words.write(texts), trainers.BpeTrainer(vocab_size=size, min_frequency=min_frequency, show_progress=False)
    )
    return [
        (words.read(first), words.read(second)) for first, second in json.loads(learned.to_str())["model"]["merges"]
    ]


__all__ = ["extend_tokenizer", "tokenizer_from_state"]
