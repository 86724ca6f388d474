"""Tokenized corpora of given lengths, in memory."""

import datasets
import numpy as np

from vanilla_transformer.data.tokenized_corpus import (
    EncodedPair,
    EncodedPairs,
    TokenTable,
    to_dataset,
)


def encoded_pairs(pairs, chunks=1):
    """Return pairs in a table of several Arrow chunks."""
    bounds = np.linspace(0, len(pairs), chunks + 1).astype(int)
    parts = [
        to_dataset(pairs[begin:end])
        for begin, end in zip(bounds, bounds[1:], strict=False)
        if end > begin
    ]
    return EncodedPairs(TokenTable(datasets.concatenate_datasets(parts)))


class LengthsCorpus:
    """Pairs of the given lengths, the same in every epoch.

    Each token of a source is the number of its pair.
    """

    is_constant = True

    def __init__(self, lengths):
        self.lengths = lengths
        self.pairs = self.tokenize(0)

    def tokenize(self, epoch):
        return encoded_pairs(
            [EncodedPair([n] * length, [epoch] * length) for n, length in enumerate(self.lengths)]
        )

    def epoch(self, number, stage=0):
        return self.pairs


class FreshCorpus(LengthsCorpus):
    """Pairs in another table for each epoch, as with BPE-dropout.

    Each token of a target is the epoch.
    """

    is_constant = False

    def epoch(self, number, stage=0):
        return self.tokenize(number)
