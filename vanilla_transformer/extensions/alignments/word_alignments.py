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
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import regex

from vanilla_transformer.data.readers import SentencePair, WordPair, read_lines
from vanilla_transformer.errors import UserError

_SURE = re.compile(r"(\d{1,9})-(\d{1,9})")
_POSSIBLE = re.compile(r"(\d{1,9})p(\d{1,9})")
_NEIGHBORS = [link for link in product((-1, 0, 1), repeat=2) if link != (0, 0)]


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
    alignments = list[GoldAlignment]()
    for line, pair, location in _rows(path, pairs):
        optional = [text for text in line.split() if _POSSIBLE.fullmatch(text)]
        required = [text for text in line.split() if text not in optional]
        sure = parse_alignment(" ".join(required), pair, location)
        possible = parse_alignment(" ".join(optional).replace("p", "-"), pair, location)
        alignments.append(GoldAlignment(sure, sure | possible))
    return alignments


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
    sizes = len(pair.source.split()), len(pair.target.split())
    links = set[WordPair]()
    for text in line.split():
        match = _SURE.fullmatch(text)
        link = (int(match[1]), int(match[2])) if match else sizes
        if link[0] >= sizes[0] or link[1] >= sizes[1]:
            raise UserError(
                f"An alignment must have pairs such as 0-1 of {sizes[0]} words of the source and "
                f"{sizes[1]} of the target, got {text!r} in {location}."
            )
        links.add(link)
    return links


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
                    (link[0] + source_step, link[1] + target_step) in grown
                    for source_step, target_step in _NEIGHBORS
                )
                if is_near and (link[0] not in sources or link[1] not in targets):
                    grown.add(link)
                    waiting.remove(link)
                    added = True
                    break
        rows.append(grown)
    return rows


# Further pairs are aligned by the probabilities of these.
FITTED_PAIRS = 100_000
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
    chunks = []
    for start in range(0, len(sources), _PAIRS_PER_CHUNK):
        part = slice(start, start + _PAIRS_PER_CHUNK)
        chunks.append((sources[part], targets[part]))
    fitted_chunks = chunks[: FITTED_PAIRS // _PAIRS_PER_CHUNK]
    known, probabilities = _fit([_cells(*chunk) for chunk in fitted_chunks])
    alignments: list[set[WordPair]] = []
    for chunk_sources, chunk_targets in chunks:
        cells = _cells(chunk_sources, chunk_targets)
        index = np.searchsorted(known, cells.keys).clip(max=len(known) - 1)
        fitted = np.where(known[index] == cells.keys, probabilities[index], 0.0)
        joint = fitted * cells.prior
        start = 0
        for source, target in zip(chunk_sources, chunk_targets, strict=True):
            end = start + (len(source) + 1) * len(target)
            best = joint[start:end].reshape(-1, len(source) + 1).argmax(axis=1)
            start = end
            links = {(int(column) - 1, row) for row, column in enumerate(best) if column}
            alignments.append(links)
    return alignments


def _fit(chunks: Sequence[_Cells]) -> tuple[np.ndarray, np.ndarray]:
    """Return the keys of all words that occur together and the probability of the target word, by
    EM.
    """
    keys = [np.empty(0, np.int64)]
    for chunk in chunks:
        keys.append(np.unique(chunk.keys))
    known = np.unique(np.concatenate(keys))
    indices = [np.searchsorted(known, chunk.keys).astype(np.int32) for chunk in chunks]
    sources = np.unique(known >> 32, return_inverse=True)[1]
    probabilities = np.ones(len(known))
    for iteration in range(2 * _ITERATIONS):
        counts = np.zeros(len(known))
        for chunk, index in zip(chunks, indices, strict=True):
            prior = 1.0 if iteration < _ITERATIONS else chunk.prior
            joint = probabilities[index] * prior
            totals = np.add.reduceat(joint, np.cumsum(chunk.sizes) - chunk.sizes)
            # (C,): that the word of a row comes from the cell
            posterior = joint / np.repeat(totals, chunk.sizes)
            counts += np.bincount(index, posterior, len(known))
        probabilities = counts / np.bincount(sources, counts)[sources]
    return known, probabilities


def _cells(sources: Sequence[Sentence], targets: Sequence[Sentence]) -> _Cells:
    keys, prior, sizes = [], [], []
    for source, target in zip(sources, targets, strict=True):
        words = np.concatenate([[0], source])
        keys.append((words << 32 | target[:, None]).ravel())
        prior.append(_prior(len(source), len(target)))
        sizes.append(np.full(len(target), len(words)))
    return _Cells(np.concatenate(keys), np.concatenate(prior), np.concatenate(sizes))


@lru_cache(maxsize=10_000)
def _prior(source_length: int, target_length: int) -> np.ndarray:
    """Return the probability of no word and of each place in the source, for each place in the
    target, `(C,)`.
    """
    columns = np.arange(1, source_length + 1) / max(1, source_length)
    rows = np.arange(1, target_length + 1) / max(1, target_length)
    weights = np.exp(-_TENSION * np.abs(rows[:, None] - columns))
    shares = (1 - _NO_WORD_PROBABILITY) * weights / weights.sum(axis=1, keepdims=True)
    return np.insert(shares, 0, _NO_WORD_PROBABILITY, axis=1).ravel()
