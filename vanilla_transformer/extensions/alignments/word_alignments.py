"""
Alignments of words: the format of Moses, and two aligners that are fitted to the text itself in both directions.

`align_lexically` is IBM model 1 (Brown et al., 1993), and then has a prior for the diagonal as model 2 (Dyer et al.,
"A Simple, Fast, and Effective Reparameterization of IBM Model 2", 2013).

Letters in shapes: R target words of some pairs, C cells: for each target word, no word and each word of its source.
"""

import re
from collections.abc import Iterator, Sequence
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
_NEIGHBORS = [(here, there) for here in (-1, 0, 1) for there in (-1, 0, 1) if (here, there) != (0, 0)]


class GoldAlignment(NamedTuple):
    """The word pairs that an aligner must find, and the pairs that it may find, the former included."""

    sure: set[WordPair]
    possible: set[WordPair]


def read_alignments(path: str | Path, pairs: Sequence[SentencePair]) -> list[set[WordPair]]:
    """Return the aligned words of each pair, counted from 0 between white space."""
    return [parse_alignment(*row) for row in _rows(path, pairs)]


def read_gold_alignments(path: str | Path, pairs: Sequence[SentencePair]) -> list[GoldAlignment]:
    """Return the sure (`0-1`) and the possible (`0p1`) links of each pair."""
    return [_parse_gold(*row) for row in _rows(path, pairs)]


def _rows(path: str | Path, pairs: Sequence[SentencePair]) -> list[tuple[str, SentencePair, str]]:
    lines = read_lines(path)
    if len(lines) != len(pairs):
        raise UserError(f"{path} must have a line for each of {len(pairs)} pairs of sentences, got {len(lines)}.")
    rows = enumerate(zip(lines, pairs, strict=True), start=1)
    return [(line, pair, f"line {number} of {path}") for number, (line, pair) in rows]


def _parse_gold(line: str, pair: SentencePair, location: str) -> GoldAlignment:
    optional = [text for text in line.split() if _POSSIBLE.fullmatch(text)]
    sure = parse_alignment(" ".join(text for text in line.split() if text not in optional), pair, location)
    return GoldAlignment(sure, sure | parse_alignment(" ".join(optional).replace("p", "-"), pair, location))


def parse_alignment(line: str, pair: SentencePair, location: str) -> set[WordPair]:
    """Return the aligned words of a pair."""
    matches = [(text, _SURE.fullmatch(text)) for text in line.split()]
    sizes = len(pair.source.split()), len(pair.target.split())
    found = set[WordPair]()
    for text, match in matches:
        link = (int(match[1]), int(match[2])) if match else (sizes[0], sizes[1])
        if link[0] >= sizes[0] or link[1] >= sizes[1]:
            rule = f"pairs such as 0-1 of {sizes[0]} words of the source and {sizes[1]} of the target"
            raise UserError(f"An alignment must have {rule}, got {text!r} in {location}.")
        found.add(link)
    return found


def grow_diagonally(forward: Sequence[set[WordPair]], backward: Sequence[set[WordPair]]) -> list[set[WordPair]]:
    """Return the links of both directions, and neighbors of them in one direction that link a word without a link.

    This is grow-diag (Koehn et al., 2003). The first of several neighbors is added first.
    """
    return [_grow(ours & theirs, ours | theirs) for ours, theirs in zip(forward, backward, strict=True)]


def _grow(links: set[WordPair], union: set[WordPair]) -> set[WordPair]:
    grown, waiting = set(links), sorted(union - links)
    while True:
        linked = [{link[side] for link in grown} for side in (0, 1)]
        free = (each for each in waiting if each[0] not in linked[0] or each[1] not in linked[1])
        added = next((each for each in free if _has_neighbor(each, grown)), None)
        if added is None:
            return grown
        grown.add(added)
        waiting.remove(added)


def _has_neighbor(link: WordPair, links: set[WordPair]) -> bool:
    return any((link[0] + here, link[1] + there) in links for here, there in _NEIGHBORS)


FITTED_PAIRS = 100_000  # at most; further pairs are aligned by the probabilities of these
_ITERATIONS = 5  # of model 1, and then with the prior
_TENSION = 2.0  # of the prior: weak, since few pairs suffice to choose a head, and other languages have other orders
_NO_WORD_PROBABILITY = 0.08  # as in fast_align
_PAIRS_PER_CHUNK = 1_000
_EDGES = regex.compile(r"^[\p{P}\p{S}]+|[\p{P}\p{S}]+$")

Sentence = np.ndarray  # numbers of words, from 1; 0 is no word


class _Cells(NamedTuple):
    """Cells of some pairs: the source word and the target word in one number, the prior, and how many a row has."""

    keys: np.ndarray  # (C,)
    prior: np.ndarray  # (C,)
    sizes: np.ndarray  # (R,)


def align_lexically(pairs: Sequence[SentencePair]) -> list[set[WordPair]]:
    """Return the linked words of each pair: links of both directions, and their neighbors of one direction."""
    sources, targets = (_number_words([pair[side] for pair in pairs]) for side in (0, 1))
    forward, backward = _align(sources, targets), _align(targets, sources)
    return grow_diagonally(forward, [{(source, target) for target, source in links} for links in backward])


def _number_words(texts: Sequence[str]) -> list[Sentence]:
    """Return the words of each text as numbers, in lower case and without the punctuation at them."""
    numbers = dict[str, int]()
    rows = ([_EDGES.sub("", word).lower() or word for word in text.split()] for text in texts)
    return [np.array([numbers.setdefault(word, len(numbers) + 1) for word in row], dtype=np.int64) for row in rows]


def _align(sources: Sequence[Sentence], targets: Sequence[Sentence]) -> list[set[WordPair]]:
    """Return the source word of each target word that has one, for each pair."""
    parts = [slice(start, start + _PAIRS_PER_CHUNK) for start in range(0, len(sources), _PAIRS_PER_CHUNK)]
    chunks = [(sources[part], targets[part]) for part in parts]
    known, probabilities = _fit([_cells(*chunk) for chunk in chunks[: FITTED_PAIRS // _PAIRS_PER_CHUNK]])
    return [links for chunk in chunks for links in _best_sources(*chunk, known, probabilities)]


def _fit(chunks: Sequence[_Cells]) -> tuple[np.ndarray, np.ndarray]:
    """Return the keys of all words that occur together and the probability of the target word, by EM."""
    known = np.unique(np.concatenate([np.empty(0, np.int64), *(np.unique(chunk.keys) for chunk in chunks)]))
    places = [np.searchsorted(known, chunk.keys).astype(np.int32) for chunk in chunks]
    sources = np.unique(known >> 32, return_inverse=True)[1]
    probabilities = np.ones(len(known))
    for iteration in range(2 * _ITERATIONS):
        counts = np.zeros(len(known))
        for chunk, place in zip(chunks, places, strict=True):
            joint = probabilities[place] * (1.0 if iteration < _ITERATIONS else chunk.prior)
            counts += np.bincount(place, _posterior(joint, chunk.sizes), len(known))
        probabilities = counts / np.bincount(sources, counts)[sources]
    return known, probabilities


def _posterior(joint: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the probability that the word of a cell's row comes from the cell, `(C,)`."""
    totals = np.add.reduceat(joint, np.cumsum(sizes) - sizes)
    return joint / np.repeat(totals, sizes)


def _best_sources(
    sources: Sequence[Sentence], targets: Sequence[Sentence], known: np.ndarray, probabilities: np.ndarray
) -> Iterator[set[WordPair]]:
    cells = _cells(sources, targets)
    place = np.searchsorted(known, cells.keys).clip(max=len(known) - 1)
    joint = np.where(known[place] == cells.keys, probabilities[place], 0.0) * cells.prior
    ends = np.cumsum([0, *((len(source) + 1) * len(target) for source, target in zip(sources, targets, strict=True))])
    for source, (start, end) in zip(sources, pairwise(ends), strict=True):
        best = joint[start:end].reshape(-1, len(source) + 1).argmax(axis=1)
        yield {(int(column) - 1, row) for row, column in enumerate(best) if column}


def _cells(sources: Sequence[Sentence], targets: Sequence[Sentence]) -> _Cells:
    pairs = [*zip(sources, targets, strict=True)]
    keys = [(np.concatenate([[0], source]) << 32 | target[:, None]).ravel() for source, target in pairs]
    prior = [_prior(len(source), len(target)) for source, target in pairs]
    sizes = [np.full(len(target), len(source) + 1) for source, target in pairs]
    return _Cells(*(np.concatenate(arrays) for arrays in (keys, prior, sizes)))


@lru_cache(maxsize=10_000)
def _prior(source_length: int, target_length: int) -> np.ndarray:
    """Return the probability of no word and of each place in the source, for each place in the target, `(C,)`."""
    there, here = (np.arange(1, length + 1) / max(1, length) for length in (source_length, target_length))
    weights = np.exp(-_TENSION * np.abs(here[:, None] - there))
    shares = (1 - _NO_WORD_PROBABILITY) * weights / weights.sum(axis=1, keepdims=True)
    return np.insert(shares, 0, _NO_WORD_PROBABILITY, axis=1).ravel()
