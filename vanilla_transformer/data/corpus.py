"""What the training loop asks a corpus for: the pairs of epoch n, with every corpus of a mix as often as it weighs."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute

from .cleaning import CleaningReport, CleaningRules, Overlap, OverlapCounter, find_dropped_by_length, nothing_left
from .readers import SentencePair
from .tokenized_corpus import EncodedPairs

_ROWS_AT_ONCE = 10_000


class Corpus(ABC):
    """
    Training text, cleaned and encoded, in numbered epochs.

    Attributes:
        texts (`datasets.Dataset`):
            Columns `source`, `target` and `corpus` (the number in the mix). `texts.select(pairs.rows)` is the text of
            `pairs = epoch(n)`, the epoch asked for last.
        report (`CleaningReport`): What cleaning dropped.
    """

    texts: datasets.Dataset
    report: CleaningReport

    @abstractmethod
    def epoch(self, number: int) -> EncodedPairs:
        """The pairs of an epoch, a function of its number alone: a resumed run gets what it would have come to."""

    @property
    @abstractmethod
    def overlaps(self) -> dict[str, Overlap]:
        """By name of the held-out text, such as "validation": how much of it the training text contains."""

    @property
    @abstractmethod
    def max_source_length(self) -> int:
        """Tokens of the longest source sentence, for the model's configuration."""

    def to_dict(self) -> dict[str, Any]:
        """Cleaning and overlap, for JSON."""
        overlaps = {name: vars(overlap) for name, overlap in self.overlaps.items()}
        return {"cleaning": self.report.to_dict(), "overlap": overlaps}

    def __str__(self) -> str:
        """Cleaning and overlap, for people."""
        overlaps = [f"Overlap with {name} text: {overlap}" for name, overlap in self.overlaps.items()]
        return "\n".join([f"Training text: {self.report}", *overlaps])


class TokenizedCorpus(Corpus):
    """
    Training pairs on disk, memory-mapped.

    A subclass that tokenises otherwise in each epoch (BPE-dropout) overrides `epoch`: the text of the pairs that this
    one returns is `texts.select(pairs.rows)`, and `EncodedPairs(encode_texts(text, encode))` encodes it anew.

    Args:
        pairs (`EncodedPairs`): Encoded rows of `texts`, those that cleaning has kept.
        weights (`Sequence[float]`): For each corpus of the mix, how many times its pairs come in an epoch.
        seed (`int`): Of the draw of pairs where a weight is no whole number.
    """

    def __init__(
        self,
        texts: datasets.Dataset,
        pairs: EncodedPairs,
        weights: Sequence[float],
        seed: int,
        report: CleaningReport,
        overlaps: dict[str, Overlap],
    ):
        self.texts = texts
        self.pairs = pairs
        self.weights = weights
        self.seed = seed
        self.report = report
        self._overlaps = overlaps

    def epoch(self, number: int) -> EncodedPairs:
        if all(weight == 1 for weight in self.weights):
            return self.pairs
        corpora = self.texts.data.column("corpus").to_numpy()[self.pairs.rows]
        return self.pairs.select(epoch_rows(corpora, self.weights, self.seed, number))

    @property
    def overlaps(self) -> dict[str, Overlap]:
        return self._overlaps

    @property
    def max_source_length(self) -> int:
        return int(self.pairs.source_lengths.max())


def epoch_rows(corpora: np.ndarray, weights: Sequence[float], seed: int, epoch: int) -> np.ndarray:
    """
    Which rows make up an epoch, in growing order.

    Args:
        corpora (`np.ndarray` of shape `(rows,)`): The number of each row's corpus.
        weights: By number of the corpus. Weight w has each of its n rows ⌊w⌋ times, and a random (w − ⌊w⌋)·n of them,
            rounded, once more; which ones is a function of `seed` and `epoch`.
    """
    random = np.random.default_rng((seed, epoch))
    rows = []
    for corpus, weight in enumerate(weights):
        own = np.flatnonzero(corpora == corpus)
        rows.append(np.repeat(own, int(weight)))
        rows.append(random.permutation(own)[: round((weight - int(weight)) * len(own))])
    return np.sort(np.concatenate(rows))


def drop_by_length(
    pairs: EncodedPairs, texts: datasets.Dataset, rules: CleaningRules, report: CleaningReport
) -> EncodedPairs:
    """
    The pairs that the rules on tokens keep; the others are counted in `report`.

    Raises:
        ValueError: none is left.
    """
    kept = np.ones(len(pairs), dtype=bool)
    for rule, mask in find_dropped_by_length(pairs.source_lengths, pairs.target_lengths, rules).items():
        rows = pairs.rows[mask]
        first = texts.select(rows[:3])
        report.add(rule, list(map(SentencePair, first["source"], first["target"])), count=len(rows))
        kept &= ~mask
    if not kept.any():
        raise nothing_left(report)
    return pairs if kept.all() else pairs.select(kept)


def find_held_out(texts: datasets.Dataset, counter: OverlapCounter) -> Iterator[SentencePair]:
    """The pairs of `texts` of which the counter's held-out text has a side: few, and found by Arrow among millions."""
    sources, targets = (pa.array(sorted(side), pa.string()) for side in (counter.sources, counter.targets))
    for table in texts.with_format("arrow").iter(_ROWS_AT_ONCE):
        known = pa.compute.or_(
            pa.compute.is_in(table["source"], value_set=sources), pa.compute.is_in(table["target"], value_set=targets)
        )
        found = table.filter(known)
        yield from map(SentencePair, found["source"].to_pylist(), found["target"].to_pylist())
