"""A parallel text of the size and the lengths of WMT14: random words of five letters, translated one by one."""

from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from vanilla_transformer import VanillaTransformerTokenizer

_SPECIAL = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
_LETTERS = np.frombuffer(b"adeilnorst", np.uint8)
# The logarithms of WMT14's lengths in words: their mean, and the standard deviations of the part that both sides have
# in common and of the part that each has for itself.
_MEAN, _COMMON_DEVIATION, _OWN_DEVIATION = 3.07, 0.6, 0.15
_LONGEST = 249
_PAIRS_AT_A_TIME = 100_000


class TextFiles(NamedTuple):
    """The files of both sides."""

    source: Path
    target: Path


def write_text(folder: Path, name: str, pairs: int, vocab_size: int, seed: int) -> TextFiles:
    """Write lines of random words, as frequent as Zipf's law says.

    Each target word translates the source word at about the same place, so that a model learns when a line ends.

    Args:
        name: Begins the names of the files.
        vocab_size: Entries of the vocabulary, with special tokens.
        seed: Of the lines. The words and their translations are always the same.
    """
    words, random = _spell_words(vocab_size), np.random.default_rng(seed)
    translations = np.random.default_rng(0).permutation(len(words))
    common = random.normal(_MEAN, _COMMON_DEVIATION, pairs)
    sources, targets = (
        np.exp(common + random.normal(0.0, _OWN_DEVIATION, pairs)).round().clip(1, _LONGEST).astype(int)
        for _ in range(2)
    )
    files = TextFiles(folder / f"{name}.source", folder / f"{name}.target")
    with files.source.open("wb") as source_file, files.target.open("wb") as target_file:
        for first in range(0, pairs, _PAIRS_AT_A_TIME):
            source, target = (side[first : first + _PAIRS_AT_A_TIME] for side in (sources, targets))
            # With probability ∝ 1 / rank, the logarithm of a rank is uniform.
            ranks = np.exp(random.random(source.sum(), np.float32) * np.float32(np.log(len(words))))
            ids = np.minimum(ranks.astype(np.int32), len(words)) - 1
            _write_lines(source_file, words[ids], source)
            _write_lines(target_file, words[translations[ids[_aligned(source, target)]]], target)
    return files


def build_tokenizer(vocab_size: int) -> VanillaTransformerTokenizer:
    """Build a tokenizer whose tokens are the words."""
    words = [bytes(word[:-1]).decode() for word in _spell_words(vocab_size)]
    vocabulary = {word: number for number, word in enumerate([*_SPECIAL.values(), *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=_SPECIAL["bos_token"]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    return VanillaTransformerTokenizer(tokenizer_object=tokenizer, **_SPECIAL)


def _spell_words(vocab_size: int) -> np.ndarray:
    """Return the words as bytes, each with a space after it, `(words, letters + 1)`."""
    numbers = np.arange(vocab_size - len(_SPECIAL))[:, None]
    letters = _LETTERS[numbers // len(_LETTERS) ** np.arange(5) % len(_LETTERS)]
    return np.pad(letters, ((0, 0), (0, 1)), constant_values=ord(" "))


def _aligned(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the index of the source word of each target word, given the words of each line."""
    begins, own_begins = (np.cumsum(side) - side for side in (source, target))
    places = np.arange(target.sum()) - np.repeat(own_begins, target)  # in their lines
    return np.repeat(begins, target) + places * np.repeat(source, target) // np.repeat(target, target)


def _write_lines(file: BinaryIO, words: np.ndarray, lengths: np.ndarray) -> None:
    words[np.cumsum(lengths) - 1, -1] = ord("\n")
    file.write(words.tobytes())
