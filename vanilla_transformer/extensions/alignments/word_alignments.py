"""
Alignments of words: the format of Moses, and two aligners that are fitted to the text itself in
both directions.

`align_lexically` is IBM model 1 (Brown et al., 1993), and then has a prior for the diagonal as
model 2 (Dyer et al., "A Simple, Fast, and Effective Reparameterization of IBM Model 2", 2013).

Letters in shapes: R target words of some pairs, C cells: for each target word, no word and each
word of its source.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import regex

from vanilla_transformer.data.readers import SentencePair, WordPair, read_lines
from vanilla_transformer.errors import UserError

_SURE = re.compile(r"(\d{1,9})-(\d{1,9})")
_POSSIBLE = re.compile(r"(\d{1,9})p(\d{1,9})")
_NEIGHBORS = [
    (here, there) for here in (-1, 0, 1) for there in (-1, 0, 1) if (here, there) != (0, 0)
]


class GoldAlignment(NamedTuple):
    """The word pairs that an aligner must find, and the pairs that it may find, the former
    included.
    """

    sure: set[WordPair]
    possible: set[WordPair]


def read_alignments(path: str | Path, pairs: Sequence[SentencePair]) -> list[set[WordPair]]:
    """Return the aligned words of each pair, counted from 0 between white space."""
    return [parse_alignment(*row) for row in _rows(path, pairs)]


def read_gold_alignments(path: str | Path, pairs: Sequence[SentencePair]) -> list[GoldAlignment]:
    """Return the sure (`0-1`) and the possible (`0p1`) links of each pair."""
    found = list[GoldAlignment]()
    for line, pair, location in _rows(path, pairs):
        optional = [text for text in line.split() if _POSSIBLE.fullmatch(text)]
        sure = parse_alignment(
            " ".join(text for text in line.split() if text not in optional), pair, location
        )
        possible = parse_alignment(" ".join(optional).replace("p", "-"), pair, location)
        found.append(GoldAlignment(sure, sure | possible))
    return found


def _rows(path: str | Path, pairs: Sequence[SentencePair]) -> list[tuple[str, SentencePair, str]]:
    lines = read_lines(path)
    if len(lines) != len(pairs):
        raise UserError(
            f"{path} must have a line for each of {len(pairs)} pairs of sentences, got "
            f"{len(lines)}."
        )
    rows = enumerate(zip(lines, pairs, strict=True), start=1)
    return [(line, pair, f"line {number} of {path}") for number, (line, pair) in rows]


def parse_alignment(line: str, pair: SentencePair, location: str) -> set[WordPair]:
    """Return the aligned words of a pair."""
    matches = [(text, _SURE.fullmatch(text)) for text in line.split()]
    sizes = len(pair.source.split()), len(pair.target.split())
    found = set[WordPair]()
    for text, match in matches:
        link = (int(match[1]), int(match[2])) if match else (sizes[0], sizes[1])
        if link[0] >= sizes[0] or link[1] >= sizes[1]:
            rule = (
                f"pairs such as 0-1 of {sizes[0]} words of the source and {sizes[1]} of the target"
            )
            raise UserError(f"An alignment must have {rule}, got {text!r} in {location}.")
        found.add(link)
    return found


def grow_diagonally(
    forward: Sequence[set[WordPair]], backward: Sequence[set[WordPair]]
) -> list[set[WordPair]]:
    """Return the links of both directions, and neighbors of them in one direction that link a word
    without a link.

    This is grow-diag (Koehn et al., 2003). The first of several neighbors is added first.

    Args:
        backward: Links from the target to the source.
    """
    rows = list[set[WordPair]]()
    for ours, reversed_links in zip(forward, backward, strict=True):
        theirs = {(source, target) for target, source in reversed_links}
        grown = ours & theirs
        waiting = sorted((ours | theirs) - grown)
        added = True
        while added:
            sources = {source for source, _ in grown}
            targets = {target for _, target in grown}
            added = False
            for link in waiting:
                is_near = any(
                    (link[0] + here, link[1] + there) in grown for here, there in _NEIGHBORS
                )
                if is_near and (link[0] not in sources or link[1] not in targets):
                    grown.add(link)
                    waiting.remove(link)
                    added = True
                    break
        rows.append(grown)
    return rows


FITTED_PAIRS = 100_000  # at most; further pairs are aligned by the probabilities of these
_ITERATIONS = 5  # of model 1, and then with the prior
# Of the prior: weak, since few pairs suffice to choose a head, and other languages have other
# orders
_TENSION = 2.0
_NO_WORD_PROBABILITY = 0.08  # as in fast_align
_PAIRS_PER_CHUNK = 1_000
_EDGES = regex.compile(r"^[\p{P}\p{S}]+|[\p{P}\p{S}]+$")

Sentence = np.ndarray  # numbers of words, from 1; 0 is no word


class _Cells(NamedTuple):
    """Cells of some pairs: the source word and the target word in one number, the prior, and how
    many a row has.
    """

    keys: np.ndarray  # (C,)
    prior: np.ndarray  # (C,)
    sizes: np.ndarray  # (R,)


def align_lexically(pairs: Sequence[SentencePair]) -> list[set[WordPair]]:
    """Return the linked words of each pair: links of both directions, and their neighbors of one
    direction.
    """
    sources = _number_words([pair.source for pair in pairs])
    targets = _number_words([pair.target for pair in pairs])
    return grow_diagonally(_align(sources, targets), _align(targets, sources))


def _number_words(texts: Sequence[str]) -> list[Sentence]:
    """Return the words of each text as numbers, in lower case and without the punctuation at
    them.
    """
    numbers: dict[str, int] = {}
    sentences = []
    for text in texts:
        sentence = []
        for word in text.split():
            word = _EDGES.sub("", word).lower() or word
            sentence.append(numbers.setdefault(word, len(numbers) + 1))
        sentences.append(np.array(sentence, dtype=np.int64))
    return sentences


def _align(sources: Sequence[Sentence], targets: Sequence[Sentence]) -> list[set[WordPair]]:
    """Return the source word of each target word that has one, for each pair."""
    parts = [
        slice(start, start + _PAIRS_PER_CHUNK) for start in range(0, len(sources), _PAIRS_PER_CHUNK)
    ]
    chunks = [(sources[part], targets[part]) for part in parts]
    known, probabilities = _fit(
        [_cells(*chunk) for chunk in chunks[: FITTED_PAIRS // _PAIRS_PER_CHUNK]]
    )
    found = list[set[WordPair]]()
    for chunk in chunks:
        cells, pairs = _cells(*chunk), [*zip(*chunk, strict=True)]
        place = np.searchsorted(known, cells.keys).clip(max=len(known) - 1)
        joint = np.where(known[place] == cells.keys, probabilities[place], 0.0) * cells.prior
        ends = np.cumsum([0, *((len(source) + 1) * len(target) for source, target in pairs)])
        for (source, _), (start, end) in zip(pairs, pairwise(ends), strict=True):
            best = joint[start:end].reshape(-1, len(source) + 1).argmax(axis=1)
            found.append({(int(column) - 1, row) for row, column in enumerate(best) if column})
    return found


def _fit(chunks: Sequence[_Cells]) -> tuple[np.ndarray, np.ndarray]:
    """Return the keys of all words that occur together and the probability of the target word, by
    EM.
    """
    known = np.unique(
        np.concatenate([np.empty(0, np.int64), *(np.unique(chunk.keys) for chunk in chunks)])
    )
    places = [np.searchsorted(known, chunk.keys).astype(np.int32) for chunk in chunks]
    sources = np.unique(known >> 32, return_inverse=True)[1]
    probabilities = np.ones(len(known))
    for iteration in range(2 * _ITERATIONS):
        counts = np.zeros(len(known))
        for chunk, place in zip(chunks, places, strict=True):
            joint = probabilities[place] * (1.0 if iteration < _ITERATIONS else chunk.prior)
            totals = np.add.reduceat(joint, np.cumsum(chunk.sizes) - chunk.sizes)
            posterior = joint / np.repeat(
                totals, chunk.sizes
            )  # (C,): that the word of a row comes from the cell
            counts += np.bincount(place, posterior, len(known))
        probabilities = counts / np.bincount(sources, counts)[sources]
    return known, probabilities


def _cells(sources: Sequence[Sentence], targets: Sequence[Sentence]) -> _Cells:
    pairs = [*zip(sources, targets, strict=True)]
    keys = [
        (np.concatenate([[0], source]) << 32 | target[:, None]).ravel() for source, target in pairs
    ]
    prior = [_prior(len(source), len(target)) for source, target in pairs]
    sizes = [np.full(len(target), len(source) + 1) for source, target in pairs]
    return _Cells(*(np.concatenate(arrays) for arrays in (keys, prior, sizes)))


@lru_cache(maxsize=10_000)
def _prior(source_length: int, target_length: int) -> np.ndarray:
    """Return the probability of no word and of each place in the source, for each place in the
    target, `(C,)`.
    """
    there, here = (
        np.arange(1, length + 1) / max(1, length) for length in (source_length, target_length)
    )
    weights = np.exp(-_TENSION * np.abs(here[:, None] - there))
    shares = (1 - _NO_WORD_PROBABILITY) * weights / weights.sum(axis=1, keepdims=True)
    return np.insert(shares, 0, _NO_WORD_PROBABILITY, axis=1).ravel()
