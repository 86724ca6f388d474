"""
Find pairs whose sides are not translations of each other, by words of the corpus itself.

IBM model 1 (Brown et al., 1993) is fitted to each half of the corpus, in both directions, and
scores the pairs of the other half, since a model finds sense in the pairs that it was fitted to.
The score of a pair is the sum over both directions of the mean over the words of log(p(word | other
side) / p(word)): below 0 the other side makes the words less likely than they are by themselves.
Sources with the targets of other pairs show how misaligned pairs score.

Letters in shapes: R target words of some pairs, C cells: for each target word, no word and each
word of its source.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import datasets
import numpy as np

from vanilla_transformer.text.units import split_words

LEAST_PAIRS = 5_000  # with fewer, words are too rare
_FITTED_PAIRS = 50_000  # at most, in each half
_FITTED_CELLS = 15_000_000  # at most, which bounds the memory
_LEAST_COUNT = 3  # of pairs that have a word
_MOST_WORDS = 60  # of a side
_ITERATIONS = 5
_SMOOTHING = 0.1  # of the probability of a word by itself
_SHUFFLED_PAIRS = 20_000
_PAIRS_PER_BATCH = 1_000
# Of a corpus: pairs that are dropped beyond the ones that are estimated to be misaligned.
_MOST_LOST = 0.002

Sentence = np.ndarray  # 0, which is no word, and the numbers of different words


class _Lexicon(NamedTuple):
    """Probabilities of words given a word of the other side, by keys of both in one number, and by
    themselves.
    """

    keys: np.ndarray  # (K,)
    probabilities: np.ndarray  # (K,)
    by_themselves: np.ndarray  # (words of the target,)


class _Model(NamedTuple):
    """The numbers of the words of both sides, and the lexicons of both directions."""

    numbers: tuple[dict[str, int], dict[str, int]]
    forward: _Lexicon
    backward: _Lexicon


def find_misaligned(texts: datasets.Dataset, num_proc: int | None = None) -> np.ndarray:
    """
    Return a mask of shape `(pairs,)` that is True for pairs that are probably misaligned.

    A pair counts as misaligned if it scores below 0 and no higher than most misaligned pairs: so
    low that besides the estimated number of these, at most 0.2 % of the corpus scores lower.

    Args:
        texts: Columns `source` and `target`, of one direction, at least `LEAST_PAIRS`.
        num_proc (`int`): Number of processes.
    """
    models = [_fit(texts, half) for half in (0, 1)]
    results = texts.map(
        partial(_score_batch, models=models),
        batched=True,
        batch_size=_PAIRS_PER_BATCH,
        with_indices=True,
        remove_columns=texts.column_names,
        features=datasets.Features({"score": datasets.Value("float32")}),
        num_proc=num_proc,
        keep_in_memory=True,
        load_from_cache_file=False,
        new_fingerprint="misalignment",  # without it `datasets` would hash the function
        desc="Looking for misaligned pairs",
    )
    scores = results.data.column("score").to_numpy()
    # The first sources with targets from far away, since neighbors may share words.
    rows = range(min(len(texts), _SHUFFLED_PAIRS))
    columns = texts[rows]
    sources, targets = columns["source"], columns["target"]
    shuffled: list[np.ndarray] = []
    targets = targets[len(rows) // 2 :] + targets[: len(rows) // 2]
    for start in range(0, len(rows), _PAIRS_PER_BATCH):
        part = slice(start, start + _PAIRS_PER_BATCH)
        batch = {"source": sources[part], "target": targets[part]}
        shuffled.append(_score_batch(batch, rows[part], models)["score"])
    of_shuffled = np.concatenate(shuffled)
    of_shuffled = of_shuffled[~np.isnan(of_shuffled)]
    return scores < find_threshold(scores[~np.isnan(scores)], of_shuffled)


def find_threshold(scores: np.ndarray, shuffled: np.ndarray) -> float:
    """Return the lowest score to keep, given the scores of pairs and the ones of sources with other
    targets.
    """
    scores = np.sort(scores)
    share = np.arange(1, len(scores) + 1) / len(scores)
    ranks = np.searchsorted(np.sort(shuffled), scores, side="right")
    of_shuffled = ranks / len(shuffled)
    most = of_shuffled >= 0.5  # where few pairs are below, their share is uncertain
    misaligned = np.min(share[most] / of_shuffled[most], initial=1.0)
    is_most_lost = share - misaligned * of_shuffled <= _MOST_LOST
    dropped = np.flatnonzero(is_most_lost & (scores < 0))
    if not len(dropped):
        return -np.inf
    return float(np.nextafter(scores[dropped[-1]], np.inf))


def _fit(texts: datasets.Dataset, half: int) -> _Model:
    """Fit a model to pairs of a half: the even or the odd ones."""
    rows = np.arange(half, len(texts), 2)
    rows = rows[:: -(-len(rows) // _FITTED_PAIRS)]
    pairs = texts[rows.tolist()]
    source_words = list(map(_words, pairs["source"]))
    target_words = list(map(_words, pairs["target"]))
    sizes = []
    for source, target in zip(source_words, target_words, strict=True):
        sizes.append((len(source) + 1) * (len(target) + 1))
    fitted = max(1, int(np.searchsorted(np.cumsum(sizes), _FITTED_CELLS)))
    source_numbers = _number_words(source_words[:fitted])
    target_numbers = _number_words(target_words[:fitted])
    sources = _as_numbers(source_words[:fitted], source_numbers)
    targets = _as_numbers(target_words[:fitted], target_numbers)
    forward = _fit_lexicon(sources, targets, len(target_numbers) + 1)
    backward = _fit_lexicon(targets, sources, len(source_numbers) + 1)
    return _Model((source_numbers, target_numbers), forward, backward)


def _words(text: str) -> list[str]:
    """Return the different words of a text, in lower case."""
    return list(dict.fromkeys(split_words(text.casefold())))[:_MOST_WORDS]


def _number_words(side: Sequence[Sequence[str]]) -> dict[str, int]:
    counts = Counter(chain.from_iterable(side))
    frequent = [word for word, count in counts.items() if count >= _LEAST_COUNT]
    return {word: number for number, word in enumerate(frequent, 1)}


def _as_numbers(side: Sequence[Sequence[str]], numbers: dict[str, int]) -> list[Sentence]:
    sentences = []
    for words in side:
        known = [numbers[word] for word in words if word in numbers]
        sentences.append(np.array([0, *known]))
    return sentences


def _cells(
    sources: Sequence[Sentence], targets: Sequence[Sentence]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the keys of all cells, `(C,)`, and how many each target word has, `(R,)`."""
    keys = [np.empty(0, np.int64)]
    for source, target in zip(sources, targets, strict=True):
        keys.append((source << 32 | target[1:, None]).ravel())
    source_lengths = np.array([len(source) for source in sources], np.int64)
    target_lengths = np.array([len(target) for target in targets], np.int64)
    return np.concatenate(keys), np.repeat(source_lengths, target_lengths - 1)


def _fit_lexicon(sources: Sequence[Sentence], targets: Sequence[Sentence], words: int) -> _Lexicon:
    keys, sizes = _cells(sources, targets)
    known, cells = np.unique(keys, return_inverse=True)
    source_words = np.unique(known >> 32, return_inverse=True)[1]
    probabilities, starts = np.ones(len(known)), np.cumsum(sizes) - sizes
    for _ in range(_ITERATIONS if len(known) else 0):
        joint = probabilities[cells]
        totals = np.add.reduceat(joint, starts)
        counts = np.bincount(cells, joint / np.repeat(totals, sizes), len(known))
        probabilities = counts / np.bincount(source_words, counts)[source_words]
    target_words = np.concatenate([target[1:] for target in targets])
    counts = np.bincount(target_words, minlength=words)
    return _Lexicon(known, probabilities, counts / max(1, counts.sum()))


def _score_batch(
    batch: dict[str, Any], indices: Sequence[int], models: Sequence[_Model]
) -> dict[str, np.ndarray]:
    """Score pairs by the model of the other half."""
    source_words = list(map(_words, batch["source"]))
    target_words = list(map(_words, batch["target"]))
    scores = np.full(len(indices), np.nan, np.float32)
    for half, model in enumerate(models):
        source_numbers, target_numbers = model.numbers
        rows = [row for row, index in enumerate(indices) if index % 2 != half]
        sources = _as_numbers([source_words[row] for row in rows], source_numbers)
        targets = _as_numbers([target_words[row] for row in rows], target_numbers)
        forward = _score_targets(sources, targets, model.forward)
        scores[rows] = forward + _score_targets(targets, sources, model.backward)
    return {"score": scores}


def _score_targets(
    sources: Sequence[Sentence], targets: Sequence[Sentence], lexicon: _Lexicon
) -> np.ndarray:
    """Return the mean over the words of each target.

    A pair without a known word on a side has no score.
    """
    keys, sizes = _cells(sources, targets)
    lengths = np.array([len(target) - 1 for target in targets], np.int64)
    scores = np.full(len(lengths), np.nan)
    if not len(keys) or not len(lexicon.keys):
        return scores
    index = np.searchsorted(lexicon.keys, keys).clip(max=len(lexicon.keys) - 1)
    joint = np.where(lexicon.keys[index] == keys, lexicon.probabilities[index], 0.0)
    starts = np.cumsum(sizes) - sizes
    by_themselves = lexicon.by_themselves[keys[starts] & (2**32 - 1)]
    sums = np.add.reduceat(joint, starts)
    likely = (1 - _SMOOTHING) * sums / sizes + _SMOOTHING * by_themselves
    filled = lengths > 0
    first = (np.cumsum(lengths) - lengths)[filled]
    gains = np.log(likely / by_themselves)
    scores[filled] = np.add.reduceat(gains, first) / lengths[filled]
    return scores
