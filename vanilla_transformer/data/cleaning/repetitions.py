"""Hashes by which pairs are compared with all earlier ones."""

import re
import unicodedata
from hashlib import blake2b

import numpy as np

from vanilla_transformer.data.readers import SentencePair

_NO_LETTERS = re.compile(r"[\W\d_]+")


def hash_pair(pair: SentencePair) -> bytes:
    """Return a 16-byte hash of a pair. The length of the source tells ("ab", "c") from ("a", "bc")."""
    source = pair.source.encode()
    return blake2b(b"%d %s%s" % (len(source), source, pair.target.encode()), digest_size=16).digest()


def hash_repetition(rule: str, pair: SentencePair, direction: str) -> bytes:
    """
    Return a 16-byte hash that pairs share if one of them repeats the other by a rule of `REPETITIONS`.

    Args:
        direction: Of the pair. A source may have a translation in each of several languages.
    """
    if rule == "near_duplicates":
        return hash_pair(SentencePair(*map(_normalize, pair)))
    if rule == "repeated_sources":
        return hash_pair(SentencePair(pair.source, direction))
    return hash_pair(SentencePair(direction, pair.target) if rule == "repeated_targets" else pair)


def _normalize(text: str) -> str:
    """Return the letters of a text, without case. A text without letters is returned as it is."""
    return _NO_LETTERS.sub("", unicodedata.normalize("NFKC", text).casefold()) or text


def find_duplicates(hashes: bytes | bytearray) -> np.ndarray:
    """
    Return a mask of shape `(pairs,)` that is True for each pair equal to an earlier one.

    Args:
        hashes: The concatenated 16-byte hashes of all pairs. Sorting them takes a quarter of a set's memory.
    """
    first, second = np.frombuffer(hashes, dtype=np.uint64).reshape(-1, 2).T
    order = np.lexsort((second, first))  # stable: the earliest of equal pairs comes first
    repeated = (first[order][1:] == first[order][:-1]) & (second[order][1:] == second[order][:-1])
    duplicates = np.zeros(len(order), dtype=bool)
    duplicates[order[1:]] = repeated
    return duplicates
