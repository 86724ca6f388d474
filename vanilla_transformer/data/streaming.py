"""
Corpora that outgrow the disk: epoch n is the n-th window of an endless stream, read and tokenised as it is needed.

A window is counted in lines as they are read, before cleaning, so that a run resumed at window n skips lines without
tokenising them and gets the pairs that it would have come to.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import datasets
import numpy as np

from .cleaning import CleaningReport, CleaningRules, Overlap, OverlapCounter, clean_text, nothing_left
from .corpus import Corpus, drop_by_length, find_held_out
from .readers import CorpusSpec, SentencePair, read_pairs
from .tokenized_corpus import Encode, EncodedPairs, encode_texts


class StreamedTexts:
    """
    The cleaned text of a mix of streams, window by window.

    Of each window every corpus gives the share that its weight is of all weights, and starts again when it ends:
    window n has pairs n·s to (n + 1)·s of a corpus with a share of s pairs.
    """

    def __init__(self, specs: Sequence[CorpusSpec], rules: CleaningRules, window: int):
        self.specs = specs
        self.rules = rules
        self.shares = share_window([spec.weight for spec in specs], window)
        self.report = CleaningReport()
        self._streams = [EndlessPairs(spec) for spec in specs]

    def read(self, number: int) -> datasets.Dataset:
        """
        Window `number`: columns `source`, `target` and `corpus`, in memory.

        Raises:
            ValueError, OSError: what `read_pairs` and `clean_text` raise; or cleaning leaves nothing.
        """
        shares = [list(self._read_share(corpus, number)) for corpus in range(len(self.specs))]
        pairs = list(chain.from_iterable(shares))
        if not pairs:
            raise nothing_left(self.report)
        corpora = np.repeat(np.arange(len(shares)), [len(share) for share in shares])
        sources, targets = zip(*pairs, strict=True)
        return datasets.Dataset.from_dict({"source": sources, "target": targets, "corpus": corpora})

    def _read_share(self, corpus: int, number: int) -> Iterator[SentencePair]:
        share = self.shares[corpus]
        pairs = self._streams[corpus].read(number * share, share)
        return clean_text(self.specs[corpus], pairs, self.rules, self.report)


def share_window(weights: Sequence[float], window: int) -> list[int]:
    """
    How many of `window` pairs each corpus gives: in proportion to its weight, at least one, `window` in all.

    Raises:
        ValueError: there are more corpora than pairs in the window.
    """
    if window < len(weights):
        raise ValueError(
            f"`stream_window` must have a pair of each of the {len(weights)} corpora, got a window of {window}."
        )
    # One for each, and the rest by the largest remainders.
    exact = np.asarray(weights) / sum(weights) * (window - len(weights))
    shares = np.floor(exact).astype(int)
    most = np.argsort(shares - exact, kind="stable")[: window - len(weights) - shares.sum()]
    shares[most] += 1
    return (shares + 1).tolist()


class EndlessPairs:
    """A corpus that starts again when it ends, with each pair's line number. Reading on is cheaper than going back."""

    def __init__(self, spec: CorpusSpec):
        self.spec = spec
        self.length: int | None = None  # known once it has ended
        self._restart()

    def _restart(self) -> None:
        self.position = 0
        self._pairs = self._open()

    def _open(self) -> Iterator[tuple[int, SentencePair]]:
        return enumerate(read_pairs(self.spec, streaming=True), start=1)

    def read(self, first: int, count: int) -> Iterator[tuple[int, SentencePair]]:
        """Pairs `first` to `first + count` of the endless stream."""
        self._go_to(first)
        for _ in range(count):
            yield self._next()

    def _go_to(self, position: int) -> None:
        if position < self.position:
            self._restart()
        while self.position < position:
            self._next()
            if self.length is not None:  # whole passes end where they began
                self.position += (position - self.position) // self.length * self.length

    def _next(self) -> tuple[int, SentencePair]:
        item = next(self._pairs, None)
        if item is None:
            self.length = self.length or self.position
            self._pairs = self._open()
            item = next(self._pairs, None)
            if item is None:
                raise ValueError(f"{self.spec.name} is empty. It must have pairs of sentences.")
        self.position += 1
        return item


class StreamedCorpus(Corpus):
    """
    Training pairs from a stream: `epoch(n)` is window n.

    `texts` are those of the window read last; `report` and `overlaps` count all windows that this process has read.
    A subclass that tokenises otherwise in each epoch overrides `encode_window`.
    """

    def __init__(
        self,
        stream: StreamedTexts,
        encode: Encode,
        held_out: Mapping[str, Sequence[SentencePair]],
        num_proc: int | None = None,
    ):
        self.stream = stream
        self.encode = encode
        self.num_proc = num_proc
        self.report = stream.report
        self._counters = {name: OverlapCounter(pairs) for name, pairs in held_out.items()}
        self._read: tuple[int, EncodedPairs] | None = None

    def epoch(self, number: int) -> EncodedPairs:
        if self._read is None or self._read[0] != number:
            self._read = None  # two windows at once would need the memory of two
            self.texts = self.stream.read(number)
            for counter in self._counters.values():
                counter.add(find_held_out(self.texts, counter))
            encoded = EncodedPairs(self.encode_window(number))
            self._read = number, drop_by_length(encoded, self.texts, self.stream.rules, self.report)
        return self._read[1]

    def encode_window(self, number: int) -> datasets.Dataset:
        """Token ids of `texts`, which is window `number`, row for row."""
        return encode_texts(self.texts, self.encode, self.num_proc)

    @property
    def overlaps(self) -> dict[str, Overlap]:
        return {name: counter.overlap() for name, counter in self._counters.items()}

    @property
    def max_source_length(self) -> int:
        return self.stream.rules.max_length or int(self.epoch(0).source_lengths.max())
